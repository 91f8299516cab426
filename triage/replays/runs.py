"""Starting, cancelling and reading the replays of a module."""
from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.replay.merge import put_versions
from triage.replay.replay import assemble, seen
from triage.replay.source import NoReplay, Source, source_of
from triage.replay.toolchains import Toolchain, choose, installed
from triage.replay.variants import BASELINE, Variant, followers, variants
from triage.replays.child import REPRODUCE
from triage.replays.models import Run, Trial

logger = logging.getLogger(__name__)
MAX_WANTED = 3              # modules of one upload that are replayed without a button being pressed


def toolchains() -> list[Toolchain]:
    return installed(Path(settings.TRIAGE_TOOLCHAINS))


def find_toolchain(name: str) -> Toolchain | None:
    return next((toolchain for toolchain in toolchains() if toolchain.name == name), None)


def default_toolchain(module: dict, platform: str) -> Toolchain | None:
    """The installed one that is nearest to the release that wrote the dump."""
    version = module["version"] or {"jaxlib_first": None, "jaxlib_last": None}
    return choose(toolchains(), platform, version["jaxlib_first"], version["jaxlib_last"])


def source(dump: Dump, module: dict, gpu: str = "") -> Source:
    """What a recompile of this module needs. Raises NoReplay."""
    chunks = storage.load_stage(dump, module["index"], 0).record.chunks
    texts = storage.load_texts(dump, module["index"], {chunk.key for chunk in chunks})
    return source_of(module, "".join(texts[chunk.key] for chunk in chunks), storage.load_gpu_target(dump, module["index"]),
                     gpu or None)


def start(dump: Dump, module: dict, toolchain: Toolchain, gpu: str = "") -> Run:
    """The run that was asked for; one that was asked for before is that one, its cancelled trials queued again."""
    with transaction.atomic():
        run, made = Run.objects.get_or_create(dump=dump, module=module["index"], toolchain=toolchain.name, gpu=gpu)
        if made:
            plan(run, [BASELINE])
        else:           # it is shown, not one that was asked for in between
            Run.objects.filter(pk=run.pk).update(created=timezone.now())
        _requeue_cancelled(run.trials.all())
    return run


def needs_gpu(dump: Dump, module: dict) -> bool:
    """Whether the reader has to say for which GPU the module was compiled."""
    return module["platform"] == "gpu" and not storage.load_gpu_target(dump, module["index"])


def start_reproducer(run: Run) -> None:
    """Has the module cut down to a small program that shows its first copy; once for a run, or again where it was
    cancelled."""
    plan(run, [Variant(REPRODUCE, REPRODUCE, "cut down to a small program")])
    _requeue_cancelled(run.trials.filter(key=REPRODUCE))


def _requeue_cancelled(trials: QuerySet[Trial]) -> None:
    for trial in trials.filter(status=Trial.Status.CANCELLED):
        if trials.filter(pk=trial.pk, status=Trial.Status.CANCELLED).update(status=Trial.Status.QUEUED, attempts=0, row=None):
            enqueue(trial)


def reproduced_copy(module: dict) -> str:
    """The copy that a reproducer is to show: the largest of the first pattern."""
    sizes = {copy["id"]: copy["bytes"] for copy in module["copies"]}
    return max(module["patterns"][0]["copies"], key=lambda identity: sizes[identity])


def start_wanted(dump: Dump) -> None:
    """Starts the replays of an upload that asked for them: the worst modules that can be compiled again."""
    modules = [module for module in storage.load_report(dump)["modules"] if module["copies"]]
    for module in modules[:MAX_WANTED]:
        try:
            toolchain = default_toolchain(module, source(dump, module).platform)
        except NoReplay:
            continue        # the page says why
        if toolchain is not None:
            start(dump, module, toolchain)


def cancel(run: Run) -> None:
    """Ends what has not ended; a compile that runs is killed within seconds."""
    run.trials.filter(status__in=(Trial.Status.QUEUED, Trial.Status.RUNNING)).update(status=Trial.Status.CANCELLED, lease="")


def plan(run: Run, found: list[Variant]) -> None:
    """Adds trials for these variants, those that are there already left out, and queues them."""
    with transaction.atomic():
        Run.objects.select_for_update().get(pk=run.pk)
        known = set(run.trials.values_list("key", flat=True))
        new = [variant for variant in found if variant.key not in known]
        trials = Trial.objects.bulk_create(
            Trial(run=run, position=len(known) + place, key=variant.key, variant=asdict(variant))
            for place, variant in enumerate(new))
    for trial in trials:
        enqueue(trial)


def plan_after(trial: Trial, module: dict) -> None:
    """What a trial that is done gives rise to: after the baseline all variants, after AUTO its orders stored by hand."""
    variant = Variant(**trial.variant)
    if variant.action == REPRODUCE:
        return
    if variant.key == BASELINE.key:
        plan(trial.run, variants(seen(module, trial.row, replayed(trial.run)), trial.row.get("fired")))
    else:
        plan(trial.run, followers(variant, trial.row, module))


def enqueue(trial: Trial) -> None:
    """Sends a trial to the workers, once the transaction is through. Without a broker it waits for a worker's look."""
    from triage.replays.tasks import measure_trial  # the tasks need the models of this app

    def send() -> None:
        sent = timezone.now()
        try:
            measure_trial.delay(trial.pk)
        except OperationalError:
            logger.warning("replay %s: no broker, it waits until a worker looks for lost ones", trial.pk)
            sent = None
        Trial.objects.filter(pk=trial.pk, status=Trial.Status.QUEUED).update(heartbeat=sent)
    transaction.on_commit(send)


def replayed(run: Run) -> dict | None:
    """The module as the baseline's own dump shows it, where it was kept for its passes."""
    return storage.load_report(run.history)["modules"][0] if run.history is not None else None


def best_run(dump: Dump, index: int) -> Run | None:
    """The run whose results a page shows: the newest with a measured baseline, or the newest."""
    runs = list(Run.objects.filter(dump=dump, module=index).prefetch_related("trials").select_related("history"))
    measured = [run for run in runs if any(trial.row and trial.key == BASELINE.key for trial in run.trials.all())]
    return next(iter(measured or runs), None)


def with_replays(dump: Dump, module: dict) -> dict:
    """The module of a report with what its best run has measured so far."""
    run = best_run(dump, module["index"])
    rows = [trial.row for trial in run.trials.all() if trial.row and trial.key != REPRODUCE] if run else []
    if rows and rows[0]["variant"] == BASELINE.key:
        baselines = Trial.objects.filter(run__dump=dump, run__module=module["index"], key=BASELINE.key).exclude(row=None)
        put_versions(module, list({trial.row["toolchain"]: trial.row for trial in baselines}.values()))
        assemble(module, rows, replayed(run))
        module["reproducer"] = next((trial.row.get("reproducer") for trial in run.trials.all()
                                     if trial.row and trial.key == REPRODUCE), None)
    return module


def report_json(dump: Dump) -> bytes:
    """The report as JSON text, with what was measured since."""
    if not dump.runs.exists():
        return storage.load_report_json(dump)
    report = storage.load_report(dump)
    report["modules"] = [with_replays(dump, module) for module in report["modules"]]
    return json.dumps(report).encode()
