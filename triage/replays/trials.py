"""One trial, from queue to stored row. `run` may be called twice or be killed anywhere."""
from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.jobs.analysis import OVERDUE, STALE, child_environment, is_gone, new_lease
from triage.replay.command import configured_limits
from triage.replay.merge import has_history
from triage.replay.source import NoReplay
from triage.replay.variants import BASELINE
from triage.replays import runs
from triage.replays.child import REPRODUCE
from triage.replays.models import Run, Trial
from triage.tether import tethered

logger = logging.getLogger(__name__)
BEAT_SECONDS = 1.0                      # how often a trial says that it lives, and asks whether it is still wanted
MAX_ATTEMPTS = 3
SPARE_SECONDS = 300                     # for the analysis of a recompile's dump, beyond the compile itself
SCRATCH = "triage-analysis-replay-"     # begins like those of analyses: what a killed one leaves is cleaned up alike


class NotWanted(Exception):
    """It was cancelled, or another attempt has taken over."""


def run(trial_id: int) -> None:
    """Measures a trial that waits for it and stores the row; plans what follows from it."""
    trial = claim(trial_id)
    if trial is None:
        return
    started = time.monotonic()
    try:
        module = storage.load_report(trial.run.dump)["modules"][trial.run.module]
        with tempfile.TemporaryDirectory(prefix=SCRATCH) as scratch:
            row = _row(trial, module, Path(scratch))
            _keep(trial, module, row, Path(scratch, "result"))
        with transaction.atomic():      # a row that is stored has its followers planned
            _finish(trial, row)
            runs.plan_after(trial, module)
    except NotWanted:
        logger.info("replay %s: not wanted any more", trial.pk)
    except Exception:
        logger.exception("replay %s failed", trial.pk)
        _give_up(trial, "the replay itself failed; the service's log has the details")
    logger.info("replay %s: %s after %.1f s", trial.pk, (trial.row or {}).get("status", "no row"), time.monotonic() - started)


def claim(trial_id: int) -> Trial | None:
    """Takes the lease of a trial that waits or whose attempt died; None where there is nothing to do."""
    now, lease = timezone.now(), new_lease()
    free = Trial.objects.filter(Q(status=Trial.Status.QUEUED) | _dead(), pk=trial_id)
    if not free.update(status=Trial.Status.RUNNING, lease=lease, heartbeat=now):
        return None
    trial = Trial.objects.select_related("run__dump", "run__history").get(pk=trial_id)
    trial.attempts += 1
    Trial.objects.filter(pk=trial_id, lease=lease).update(attempts=trial.attempts)
    if trial.attempts > MAX_ATTEMPTS:
        _give_up(trial, f"it was interrupted {MAX_ATTEMPTS} times, perhaps because the machine ran out of memory")
        return None
    return trial


def requeue_lost(all_queued: bool = False) -> None:
    """Queues again the trials whose attempt died and those that wait for too long, or all that wait."""
    now = timezone.now()
    queued = Q(status=Trial.Status.QUEUED)
    if not all_queued:
        queued &= Q(heartbeat=None) | Q(heartbeat__lt=now - OVERDUE)
    lost = Trial.objects.filter(queued | _dead())
    for trial in lost:
        if lost.filter(pk=trial.pk).update(status=Trial.Status.QUEUED, lease="", heartbeat=now):
            runs.enqueue(trial)


def _dead() -> Q:
    leases = Trial.objects.filter(status=Trial.Status.RUNNING).values_list("lease", flat=True)
    gone = [lease for lease in leases if is_gone(lease)]
    silent = Q(heartbeat=None) | Q(heartbeat__lt=timezone.now() - STALE)
    return Q(status=Trial.Status.RUNNING) & (silent | Q(lease__in=gone))


def _finish(trial: Trial, row: dict) -> None:
    trial.status, trial.row = Trial.Status.DONE, row
    if not Trial.objects.filter(pk=trial.pk, lease=trial.lease).update(status=trial.status, row=row):
        raise NotWanted


def _give_up(trial: Trial, message: str) -> None:
    with contextlib.suppress(NotWanted):
        _finish(trial, _failed(trial, message))


def _failed(trial: Trial, message: str) -> dict:
    variant = trial.variant
    return {"variant": trial.key, **{name: variant[name] for name in ("action", "flag", "scope", "says")},
            "pass": variant["pass_"], "toolchain": trial.run.toolchain, "device": "", "status": "crash", "message": message}


def _row(trial: Trial, module: dict, scratch: Path) -> dict:
    """What the child says of the trial. Raises NotWanted."""
    toolchain = runs.find_toolchain(trial.run.toolchain)
    if toolchain is None:
        return _failed(trial, f"the toolchain {trial.run.toolchain} is not installed any more")
    try:
        source = runs.source(trial.run.dump, module, trial.run.gpu)
    except NoReplay as reason:
        return _failed(trial, str(reason))
    (scratch / "result").mkdir()
    job = {"source": asdict(source), "variant": trial.variant,
           "toolchain": {**asdict(toolchain), "python": str(toolchain.python)}, "min_bytes": module["totals"]["min_bytes"],
           "limits": asdict(configured_limits()), "keep": trial.key == BASELINE.key,
           "memory_bytes": settings.TRIAGE_ANALYSIS_MEMORY_BYTES, "scratch": str(scratch), "result": str(scratch / "result")}
    if trial.variant["action"] == REPRODUCE:
        job |= {"module": runs.with_replays(trial.run.dump, module), "copy": runs.reproduced_copy(module)}
    code = _watch(trial, job, scratch)
    try:
        return json.loads((scratch / "row.json").read_text("utf-8"))
    except (OSError, ValueError):
        logger.error("replay %s: its process ended with exit code %s", trial.pk, code)
        return _failed(trial, "reading the recompile's dump took too long" if code is None else
                       "the recompile's dump could not be analysed")


def _watch(trial: Trial, job: dict, scratch: Path) -> int | None:
    """Runs the child to its end; its exit code, None where it had to be stopped. Raises NotWanted."""
    deadline = time.monotonic() + job["limits"]["seconds"] + SPARE_SECONDS
    with (scratch / "job").open("w+") as given, (scratch / "said").open("w+b") as said:
        json.dump(job, given)
        given.seek(0)
        child = subprocess.Popen(tethered([sys.executable, "-m", "triage.replays.child"]), stdin=given, stdout=said,
                                 stderr=said, cwd=settings.BASE_DIR, env=child_environment())
        try:
            while True:
                try:
                    return child.wait(BEAT_SECONDS)
                except subprocess.TimeoutExpired:
                    _live(trial)
                if time.monotonic() > deadline:
                    return None
        finally:
            child.kill()
            child.wait()


def _live(trial: Trial) -> None:
    rows = Trial.objects.filter(pk=trial.pk, lease=trial.lease, status=Trial.Status.RUNNING)
    if not rows.update(heartbeat=timezone.now()):
        raise NotWanted


def _keep(trial: Trial, module: dict, row: dict, result: Path) -> None:
    """Stores the baseline's own dump, where the uploaded one has no passes: its pages show what they did."""
    if trial.key != BASELINE.key or row["status"] != "ok" or has_history(module) or trial.run.history_id:
        return
    made = Dump.objects.create(name=f"{module['name']} compiled again"[:200], status=Dump.Status.DONE, finished=timezone.now())
    try:
        storage.save_packed(made, result, lambda: _live(trial))
        with transaction.atomic():
            if not Run.objects.filter(pk=trial.run_id, history=None).update(history=made):
                raise NotWanted
    except BaseException:
        storage.delete_files(made)
        made.delete()
        raise
    trial.run.history = made
