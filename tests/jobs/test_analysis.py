"""The analysis job, called as the worker calls it: real archives, real child processes, no broker."""
from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.utils import timezone
from kombu.exceptions import OperationalError

from triage.dumps import storage
from triage.dumps.intake import enqueue
from triage.dumps.models import Dump
from triage.jobs import analysis, tasks

pytestmark = pytest.mark.django_db(transaction=True)

SMALL = """HloModule jit_small, entry_computation_layout={(f32[512,1024]{1,0})->f32[1024,512]{1,0}}

ENTRY main {
  w = f32[512,1024]{1,0} parameter(0), metadata={op_name="w"}
  ROOT t = f32[1024,512]{1,0} transpose(w), dimensions={1,0}
}
"""


def archive(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def uploaded(content: bytes, **fields: object) -> Dump:
    dump = Dump.objects.create(name="dump.tar.gz", bytes=len(content), **fields)
    storages["default"].save(storage.archive_name(dump), ContentFile(content))
    return dump


def small_dump(**fields: object) -> Dump:
    return uploaded(archive({"d/module_0001.jit_small.before_optimizations.txt": SMALL}), **fields)


def test_a_dump_ends_with_a_report_and_rows():
    dump = small_dump()
    analysis.run(dump.id)
    dump.refresh_from_db()
    assert (dump.status, dump.error, dump.files) == ("done", "", 1)
    [module] = storage.load_report(dump)["modules"]
    assert [(c["kind"], c["bytes"]) for c in module["copies"]] == [("transpose", 2097152)]
    [row] = dump.modules.all()
    assert (row.name, row.copied_bytes, row.verdict) == ("jit_small", 2097152, module["verdict"])
    stage = storage.load_stage(dump, 0, 0).record
    texts = storage.load_texts(dump, 0, [chunk.key for chunk in stage.chunks])
    assert "".join(texts[chunk.key] for chunk in stage.chunks) == SMALL


def test_running_twice_changes_nothing():
    dump = small_dump()
    analysis.run(dump.id)
    first = Dump.objects.get(pk=dump.pk)
    analysis.run(dump.id)
    second = Dump.objects.get(pk=dump.pk)
    assert (first.generation, first.finished, first.attempts) == (second.generation, second.finished, second.attempts)


def test_bad_input_becomes_one_sentence():
    dump = uploaded(archive({"d/readme.md": "nothing here"}))
    analysis.run(dump.id)
    dump.refresh_from_db()
    assert dump.status == "failed"
    assert dump.error and "\n" not in dump.error and "Traceback" not in dump.error
    assert not dump.generation


@pytest.fixture
def sent(monkeypatch) -> list[str]:
    """Ids of the dumps a message was sent for, instead of a broker."""
    ids: list[str] = []
    monkeypatch.setattr(tasks.analyse_dump, "delay", ids.append)
    return ids


LONG_AGO = timezone.now() - timedelta(hours=1)


def test_a_running_attempt_is_left_alone_and_a_dead_one_taken_over(sent):
    alive = small_dump(status="running", heartbeat=timezone.now(), lease="alive")
    analysis.run(alive.id)
    assert Dump.objects.get(pk=alive.pk).lease == "alive"
    dead = small_dump(status="running", heartbeat=LONG_AGO, attempts=1)
    assert analysis.requeue_lost() == sent == [dead.id]
    analysis.run(dead.id)
    assert Dump.objects.get(pk=dead.pk).status == "done"
    assert analysis.requeue_lost(all_queued=True) == []


def test_an_attempt_whose_process_has_ended_is_taken_over_at_once(sent):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    machine, _, token = analysis.new_lease().split(".")
    dead = small_dump(status="running", heartbeat=timezone.now(), lease=f"{machine}.{ended.pid}.{token}")
    elsewhere = small_dump(status="running", heartbeat=timezone.now(), lease=f"00000000.{ended.pid}.{token}")
    here = small_dump(status="running", heartbeat=timezone.now(), lease=analysis.new_lease())
    assert analysis.requeue_lost() == [dead.id]
    assert [analysis.claim(dump.id) is None for dump in (dead, elsewhere, here)] == [False, True, True]


def test_lost_messages_are_sent_again(sent):
    fresh, lost = small_dump(heartbeat=timezone.now()), small_dump(heartbeat=LONG_AGO)
    never_sent = small_dump(heartbeat=None)
    assert analysis.requeue_lost() == sent == [lost.id, never_sent.id]
    assert analysis.requeue_lost() == []                            # not again every few seconds
    assert analysis.requeue_lost(all_queued=True) == [fresh.id, lost.id, never_sent.id]     # a worker starts


def test_without_a_broker_the_dump_waits_for_the_next_look(monkeypatch):
    def no_broker(dump_id):
        raise OperationalError
    monkeypatch.setattr(tasks.analyse_dump, "delay", no_broker)
    dump = small_dump(heartbeat=timezone.now())
    enqueue(dump)
    monkeypatch.setattr(tasks.analyse_dump, "delay", (sent := []).append)
    assert analysis.requeue_lost() == sent == [dump.id]


def test_a_dump_that_kills_every_attempt_is_given_up():
    dump = small_dump(attempts=analysis.MAX_ATTEMPTS)
    analysis.run(dump.id)
    dump.refresh_from_db()
    assert (dump.status, dump.error) == ("failed", analysis.GAVE_UP)


def test_memory_is_limited(settings):
    settings.TRIAGE_ANALYSIS_MEMORY_BYTES = 160 * 1024 ** 2
    lines = "\n".join(f"  p{i} = f32[8]{{0}} add(p{i - 1}, p{i - 1})" for i in range(1, 600_000))
    dump = uploaded(archive({"d/module_0001.jit_big.before_optimizations.txt":
                             f"HloModule jit_big\n\nENTRY main {{\n  p0 = f32[8]{{0}} parameter(0)\n{lines}\n}}\n"}))
    analysis.run(dump.id)
    dump.refresh_from_db()
    assert dump.status == "failed" and "160.0 MiB of memory" in dump.error


def test_a_killed_child_is_a_crash_with_a_sentence(monkeypatch):
    """Whatever kills the child (a fault in C code, the kernel), the worker goes on and the reader is told."""
    dump = small_dump()
    real = subprocess.Popen

    def killed(command, **options):
        child = real([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], **options)
        return child

    monkeypatch.setattr(analysis.subprocess, "Popen", killed)
    analysis.run(dump.id)
    dump.refresh_from_db()
    assert (dump.status, dump.error) == ("failed", analysis.KILLED)


def test_a_fault_in_the_engine_is_logged_without_the_dump(monkeypatch, caplog):
    dump = small_dump()
    real = subprocess.Popen
    fault = ("import triage.jobs.child as c\n"
             "def analyse(*a, **k): raise KeyError('secret_weight_name')\n"
             "c.analyse = analyse\nc.main()")
    monkeypatch.setattr(analysis.subprocess, "Popen", lambda command, **options: real([sys.executable, "-c", fault], **options))
    analysis.run(dump.id)
    dump.refresh_from_db()
    assert (dump.status, dump.error) == ("failed", analysis.CRASHED)
    assert "KeyError at child.py" in caplog.text
    assert "secret_weight_name" not in caplog.text


def test_the_child_is_told_no_secret(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://user:password@host/name")
    assert not any("password" in value for value in analysis.child_environment().values())


def test_an_analysis_that_takes_too_long_is_ended_with_the_limit(monkeypatch, settings):
    settings.TRIAGE_TASK_SECONDS = 1
    monkeypatch.setattr(analysis, "HEARTBEAT_SECONDS", 0.05)
    clock = iter(range(0, 100_000, 20))
    monkeypatch.setattr(analysis.time, "monotonic", lambda: float(next(clock)))
    real = subprocess.Popen
    monkeypatch.setattr(analysis.subprocess, "Popen",
                        lambda command, **options: real([sys.executable, "-c", "import time; time.sleep(600)"], **options))
    dump = small_dump()
    analysis.run(dump.id)
    dump.refresh_from_db()
    assert dump.status == "failed" and "took longer than" in dump.error


def test_a_result_left_by_a_killed_attempt_is_cleaned_up():
    dump = small_dump()
    storages["default"].save(f"dumps/{dump.id}/dead/m0.pack0", ContentFile(b"half"))
    analysis.run(dump.id)
    dump.refresh_from_db()
    folders, files = storages["default"].listdir(f"dumps/{dump.id}")
    assert (folders, files) == ([dump.generation], ["archive"])


def test_scratch_directories_of_killed_attempts_go_after_a_while(tmp_path, monkeypatch, settings):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, new, other = (tmp_path / name for name in (analysis.SCRATCH + "old", analysis.SCRATCH + "new", "else"))
    for folder in (old, new, other):
        folder.mkdir()
        (folder / "archive").write_bytes(b"x")
    long_ago = time.time() - settings.TRIAGE_TASK_SECONDS - 7200
    for folder in (old, other):
        os.utime(folder, (long_ago, long_ago))
    analysis.clean_scratch()
    assert sorted(tmp_path.iterdir()) == [other, new]


def test_notes_about_the_archive_are_in_the_report():
    content = gzip.decompress(archive({"d/module_0001.jit_small.before_optimizations.txt": SMALL}))
    dump = uploaded(content[:1024])
    analysis.run(dump.id)
    dump.refresh_from_db()
    assert any("cut short" in note for note in storage.load_report(dump)["notes"])


def test_the_loser_of_a_lease_writes_nothing():
    dump = small_dump()
    mine = analysis.claim(dump.id)
    Dump.objects.filter(pk=dump.pk).update(lease="another")
    attempt = analysis._Attempt(mine, Path(os.devnull))
    with pytest.raises(storage.Superseded):
        attempt._tell()
    analysis._finish(mine, "")
    assert Dump.objects.get(pk=dump.pk).status == "running"


def test_progress_is_written_while_it_runs(monkeypatch):
    text = SMALL.replace("jit_small", "jit_many")
    files = {f"d/module_0001.jit_many.{i:04d}.pipe.after_p{i}.before_q.txt": text + f"// {i}\n" * 2000 for i in range(400)}
    dump = uploaded(archive({"d/module_0001.jit_many.before_optimizations.txt": text, **files}))
    seen: set[str] = set()
    told: set[str] = set()
    tell = analysis._Attempt._tell

    def watched(attempt) -> None:
        tell(attempt)
        row = Dump.objects.get(pk=dump.pk)
        seen.add(row.phase)
        told.update(module["verdict"] for module in row.first)
    monkeypatch.setattr(analysis._Attempt, "_tell", watched)
    analysis.run(dump.id)
    finished = Dump.objects.get(pk=dump.pk)
    assert (finished.status, finished.first) == ("done", [])
    assert any(phase for phase in seen), seen
    assert len(told) == 1 and "2.0 MiB, transposed outside any loop" in told.pop()


def test_no_child_outlives_the_job():
    before = _children()
    analysis.run(small_dump().id)
    for _ in range(100):        # another process of the test run may have one just now
        if _children() <= before:
            return
        time.sleep(0.1)
    raise AssertionError(_children() - before)


def _children() -> set[str]:
    """Analysing processes of this test run."""
    out = subprocess.run(["ps", "-eo", "pid,pgid,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in out.splitlines()[1:] if "triage.jobs.child" in line]
    return {pid for pid, group, _ in lines if group == str(os.getpgrp())}
