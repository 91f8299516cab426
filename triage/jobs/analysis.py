"""The analysis of one dump, from queue to stored result. `run` may be called twice or be killed anywhere."""
from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from django.conf import settings
from django.core.files.storage import storages
from django.db.models import Q
from django.utils import timezone

from triage.dumps import storage
from triage.dumps.intake import enqueue
from triage.dumps.models import Dump
from triage.replays import runs
from triage.tether import tethered

logger = logging.getLogger(__name__)
HEARTBEAT_SECONDS = 5                   # how often an attempt that has nothing to tell says that it lives
TELL_SECONDS = 0.5                      # progress is written at most this often
STALE = timedelta(seconds=45)           # without a sign for this long it is dead, and another may take over
OVERDUE = timedelta(minutes=10)         # a dump queued for this long may have lost its message
MAX_ATTEMPTS = 3
COPY_BYTES = 1024 * 1024
LOG_BYTES = 4000                        # of what a child that died had printed
SCRATCH = "triage-analysis-"            # how the names of scratch directories begin
CRASHED = "The analysis of this dump crashed; the service's log has the details. This is a fault of HLO Triage."
KILLED = "The analysis of this dump was killed, most likely because the machine ran out of memory."
GAVE_UP = f"The analysis was interrupted {MAX_ATTEMPTS} times, perhaps because the machine ran out of memory."


def run(dump_id: str) -> None:
    """Analyses a dump that waits for it, and stores the result or one sentence that says why there is none."""
    dump = claim(dump_id)
    if dump is None:
        return
    started = time.monotonic()
    try:
        storage.delete_leftovers(dump)
        with tempfile.TemporaryDirectory(prefix=SCRATCH) as scratch:
            error = _Attempt(dump, Path(scratch)).run()
        if not error and dump.wants_replay:
            runs.start_wanted(dump)
        _finish(dump, error)
    except storage.Superseded:
        logger.warning("dump %s: another attempt has taken over", dump.id)
    except Exception:
        logger.exception("dump %s: analysis failed", dump.id)
        _finish(dump, CRASHED)
    logger.info("dump %s: %s after %.1f s", dump.id, dump.status, time.monotonic() - started)


def claim(dump_id: str) -> Dump | None:
    """Takes the lease of a dump that waits or whose attempt died; None where there is nothing to do."""
    now, lease = timezone.now(), new_lease()
    free = Dump.objects.filter(Q(status=Dump.Status.QUEUED) | _dead(now), pk=dump_id)
    if not free.update(status=Dump.Status.RUNNING, lease=lease, heartbeat=now, started=now, phase="", done=0, total=0,
                       first=[]):
        return None
    dump = Dump.objects.get(pk=dump_id)
    dump.attempts += 1
    Dump.objects.filter(pk=dump_id, lease=lease).update(attempts=dump.attempts)
    if dump.attempts > MAX_ATTEMPTS:
        _finish(dump, GAVE_UP)
        return None
    return dump


def requeue_lost(all_queued: bool = False) -> list[str]:
    """Queues again the dumps whose attempt died and those that wait for too long, or all that wait; their ids.

    A message too many does no harm: who comes second finds nothing to claim.
    """
    now, ids = timezone.now(), []
    queued = Q(status=Dump.Status.QUEUED)
    if not all_queued:
        queued &= Q(heartbeat=None) | Q(heartbeat__lt=now - OVERDUE)
    lost = Dump.objects.filter(queued | _dead(now)).order_by("created")
    for dump in lost:
        if lost.filter(pk=dump.pk).update(status=Dump.Status.QUEUED, lease="", heartbeat=now):
            ids.append(dump.id)
            enqueue(dump)
    return ids


def clean_scratch() -> None:
    """Deletes the scratch directories of attempts that were killed; no attempt may take as long as these are old."""
    oldest = time.time() - settings.TRIAGE_TASK_SECONDS - 3600
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder)


def _dead(now: datetime) -> Q:
    """Attempts that will not end: without a sign of life for long, or of a process of this machine that is gone."""
    leases = Dump.objects.filter(status=Dump.Status.RUNNING).values_list("lease", flat=True)
    gone = [lease for lease in leases if is_gone(lease)]
    return Q(status=Dump.Status.RUNNING) & (Q(heartbeat=None) | Q(heartbeat__lt=now - STALE) | Q(lease__in=gone))


def new_lease() -> str:
    """`<machine>.<process>.<random>`: tells another process of the machine whether the holder still runs."""
    return f"{_machine()}.{os.getpid()}.{secrets.token_hex(4)}"


def is_gone(lease: str) -> bool:
    """Whether the process that took the lease is known to have ended; False where it was on another machine."""
    machine, _, rest = lease.partition(".")
    process = rest.partition(".")[0]
    if machine != _machine() or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False        # it runs as somebody else
    return False


def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _finish(dump: Dump, error: str) -> None:
    dump.status, dump.error = (Dump.Status.FAILED, error) if error else (Dump.Status.DONE, "")
    Dump.objects.filter(pk=dump.pk, lease=dump.lease).update(
        status=dump.status, error=error, finished=timezone.now(), phase="", done=0, total=0, first=[])


@dataclass
class _Attempt:
    """One child process, watched."""
    dump: Dump
    scratch: Path
    last: dict = field(default_factory=dict)        # fields of the row that tell how far it is
    error: str | None = None                        # the child's verdict; None until it has given one
    beat: float = 0.0                               # when the row was last written

    def run(self) -> str:
        """The sentence for the user where the dump cannot be analysed; "" where the result is stored."""
        result, archive = self.scratch / "result", self.scratch / "archive"
        result.mkdir()
        self._fetch(archive)
        job = {"archive": str(archive), "result": str(result), "scratch": str(self.scratch), "name": self.dump.name,
               "files": settings.TRIAGE_MAX_FILES, "bytes": settings.TRIAGE_MAX_UNPACKED_BYTES,
               "memory_bytes": settings.TRIAGE_ANALYSIS_MEMORY_BYTES}
        error = self._watch(job)
        if not error:
            storage.save_packed(self.dump, result, self._live)
        return error

    def _fetch(self, archive: Path) -> None:
        with storages["default"].open(storage.archive_name(self.dump), "rb") as source, archive.open("wb") as target:
            for chunk in source.chunks(COPY_BYTES):
                target.write(chunk)
                self._live()

    def _watch(self, job: dict) -> str:
        with (self.scratch / "stderr").open("w+b") as errors:
            child = subprocess.Popen(tethered([sys.executable, "-m", "triage.jobs.child"]),
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                     cwd=settings.BASE_DIR, env=child_environment())
            try:
                with contextlib.suppress(BrokenPipeError):      # it ended already; _follow finds out
                    child.stdin.write(json.dumps(job).encode())
                    child.stdin.close()
                self._follow(child)
            finally:
                child.kill()
                child.wait()
                child.stdout.close()
            if self.error is None:
                self.error = self._died(child.returncode, errors)
        return self.error

    def _died(self, code: int, errors: BinaryIO) -> str:
        """The sentence for a child that ended without a verdict. What it printed names code, never the dump's text."""
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - LOG_BYTES))
        said = errors.read().decode("utf-8", "replace").strip()
        logger.error("dump %s: the analysis ended with exit code %d: %s", self.dump.id, code, said)
        return KILLED if code == -signal.SIGKILL else CRASHED

    def _follow(self, child: subprocess.Popen) -> None:
        """Reads messages until the child ends; tells the database that the attempt lives. Raises Superseded."""
        seconds = max(30, settings.TRIAGE_TASK_SECONDS - 60)    # Celery ends the task itself after TRIAGE_TASK_SECONDS
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            rest = b""
            while True:
                if selector.select(timeout=HEARTBEAT_SECONDS):
                    data = os.read(child.stdout.fileno(), 65536)
                    if not data:
                        self._tell()
                        return
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        self._hear(json.loads(line))
                self._live()
                if time.monotonic() > deadline:
                    self.error = f"The analysis took longer than {seconds // 60} minutes, the limit of this service."
                    return

    def _hear(self, message: dict) -> None:
        if "phase" in message:
            self.last = {**self.last, "phase": message["phase"][:200], "done": message["done"], "total": message["total"]}
        self.last |= {key: message[key] for key in ("files", "first") if key in message}
        if "error" in message or "finished" in message:
            self.error = message.get("error", "")

    def _live(self) -> None:
        if time.monotonic() - self.beat >= TELL_SECONDS:
            self._tell()

    def _tell(self) -> None:
        """Writes progress and heartbeat. Raises Superseded where another attempt has the lease."""
        self.beat = time.monotonic()
        rows = Dump.objects.filter(pk=self.dump.pk, lease=self.dump.lease, status=Dump.Status.RUNNING)
        if not rows.update(heartbeat=timezone.now(), **self.last):
            raise storage.Superseded


def child_environment() -> dict[str, str]:
    """What the child gets to know of the environment: no address, no password."""
    names = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR", "HOME")
    return {name: os.environ[name] for name in names if name in os.environ}
