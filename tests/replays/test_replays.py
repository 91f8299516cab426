"""Replays as the service runs them, with real compiles on the CPU: what is asked for is measured once, whatever dies."""
from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.engine.report import analyse
from triage.jobs import analysis
from triage.replay.toolchains import own
from triage.replays import runs, trials
from triage.replays.models import Run, Trial

pytestmark = pytest.mark.django_db(transaction=True)

W, X = "bf16[256,512]{1,0}", "f32[512]{0}"
#: A loop that reads a bf16 weight: the CPU compiler converts it to f32 before the loop.
PROGRAM = f"""HloModule jit_up, entry_computation_layout={{({W}, {X})->{X}}}

%body (p: (s32[], {W}, {X})) -> (s32[], {W}, {X}) {{
  %p = (s32[], {W}, {X}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %w.1 = {W} get-tuple-element(%p), index=1
  %x.1 = {X} get-tuple-element(%p), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %wide = f32[256,512]{{1,0}} convert(%w.1)
  %y = f32[256]{{0}} dot(%wide, %x.1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  %z = {X} dot(%y, %wide), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT %t = (s32[], {W}, {X}) tuple(%next, %w.1, %z)
}}

%condition (q: (s32[], {W}, {X})) -> pred[] {{
  %q = (s32[], {W}, {X}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %bound = s32[] constant(8)
  ROOT %less = pred[] compare(%j, %bound), direction=LT
}}

ENTRY %main (w: {W}, x: {X}) -> {X} {{
  %w = {W} parameter(0), metadata={{op_name="w"}}
  %x = {X} parameter(1)
  %zero = s32[] constant(0)
  %start = (s32[], {W}, {X}) tuple(%zero, %w, %x)
  %loop = (s32[], {W}, {X}) while(%start), condition=%condition, body=%body
  ROOT %result = {X} get-tuple-element(%loop), index=2
}}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dump of the program, as this machine's compiler leaves it without --xla_dump_hlo_pass_re."""
    from triage.replay.process import DEFAULT_LIMITS, run_compiler

    scratch = tmp_path_factory.mktemp("compiled")
    (scratch / "module.txt").write_text(PROGRAM)
    job = {"module": str(scratch / "module.txt"), "platform": "cpu", "target": "", "topology": "", "partitions": 1,
           "replicas": 1}
    assert run_compiler(own().python, job, scratch, DEFAULT_LIMITS)["status"] == "ok"
    return scratch / "dump"


@pytest.fixture
def dump(compiled: Path) -> Dump:
    row = Dump.objects.create(name="up", status=Dump.Status.DONE)
    storage.save_analysis(row, analyse(compiled))
    return row


def module_of(dump: Dump) -> dict:
    return storage.load_report(dump)["modules"][0]


def run_all(run: Run) -> None:
    """Every trial as a worker would take it, those that follow from others included."""
    while waiting := run.trials.filter(status=Trial.Status.QUEUED).first():
        trials.run(waiting.pk)


def test_a_replay_measures_every_variant_and_the_page_says_so(dump, client):
    assert module_of(dump)["copies"], "the program must have a copy"
    assert b"Verify" in client.get(f"/d/{dump.id}/").content
    answer = client.post(f"/d/{dump.id}/m/0/replay")
    assert answer.status_code == 302 and answer["Location"].endswith("#remedies")
    run = Run.objects.get()
    assert [trial.key for trial in run.trials.all()] == ["baseline"]
    run_all(run)
    rows = {trial.key: trial.row for trial in run.trials.all()}
    assert {"baseline", "auto-all", "auto-copied", "disable-while-loop-invariant-code-motion"} <= rows.keys()
    assert all(row["status"] in ("ok", "error") for row in rows.values())
    module = client.get(f"/d/{dump.id}/report.json").json()["modules"][0]
    assert module["replays"][0]["matches_upload"] == "reproduced", module["replays"][0]
    assert module["replays"][0]["temp_bytes"] == module["memory"]["temp_bytes"]
    page = client.get(f"/d/{dump.id}/").content.decode()
    assert f"Reproduced with jaxlib {own().version} for this machine&#x27;s CPU." in page
    assert f"{rows['baseline']['temp_bytes']:,} bytes" in page and "Verify" not in page


def test_a_dump_without_passes_shows_those_of_its_recompile(dump, client):
    assert all(stage["step"] is None for stage in module_of(dump)["stages"])
    client.post(f"/d/{dump.id}/m/0/replay")
    run = Run.objects.get()
    run_all(run)
    run.refresh_from_db()
    assert run.history is not None and run.history.status == Dump.Status.DONE
    page = client.get(f"/d/{dump.id}/").content.decode()
    assert "These are the stages of the module compiled again" in page
    introduced = re.search(r'<dt>Introduced by</dt><dd><a href="([^"]+)"><code>([\w-]+)</code>', page)
    assert introduced and introduced[1].startswith(f"/d/{run.history.id}/m/0/s/")
    assert client.get(introduced[1]).status_code == 200
    made = client.get(f"/d/{run.history.id}/").content.decode()
    assert f"This is what {own().name} dumped" in made and f'href="/d/{dump.id}/m/0/"' in made
    module = client.get(f"/d/{dump.id}/report.json").json()["modules"][0]
    assert module["history"] == "replayed" and all(stage["replayed"] for stage in module["stages"])
    assert {copy["introduced_by"]["pass"] for copy in module["copies"]} == {introduced[2]}


def test_an_upload_can_ask_for_its_replay(client, compiled):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(compiled, "dump")
    url = client.post("/api/dumps?name=up&replay=1&format=text", buffer.getvalue(), "application/octet-stream").content.decode()
    dump = Dump.objects.get(pk=url.rstrip("/\n").rsplit("/", 1)[-1])
    analysis.run(dump.id)
    run = Run.objects.get(dump=dump)
    assert [trial.key for trial in run.trials.all()] == ["baseline"]
    dump.refresh_from_db()
    runs.start_wanted(dump)
    assert Run.objects.count() == 1


def test_what_was_asked_for_twice_is_done_once(dump):
    first = runs.start(dump, module_of(dump), own())
    assert runs.start(dump, module_of(dump), own()).pk == first.pk
    baseline = first.trials.get()
    trials.run(baseline.pk)
    baseline.refresh_from_db()
    row, count = baseline.row, first.trials.count()
    trials.run(baseline.pk)         # its message came a second time
    runs.plan_after(baseline, module_of(dump))
    baseline.refresh_from_db()
    assert baseline.row == row and first.trials.count() == count and baseline.attempts == 1


def test_cancelled_trials_are_not_run_and_can_be_asked_for_again(dump, client):
    client.post(f"/d/{dump.id}/m/0/replay")
    run = Run.objects.get()
    trials.run(run.trials.get().pk)
    client.post(f"/d/{dump.id}/m/0/replay/cancel")
    assert set(run.trials.exclude(key="baseline").values_list("status", flat=True)) == {"cancelled"}
    for trial in run.trials.exclude(key="baseline"):
        trials.run(trial.pk)
    assert not run.trials.exclude(key="baseline").exclude(row=None).exists()
    assert b"Measure again" in client.get(f"/d/{dump.id}/").content
    client.post(f"/d/{dump.id}/m/0/replay")
    run_all(run)
    assert set(run.trials.values_list("status", flat=True)) == {"done"}


def test_a_reproducer_that_was_cancelled_can_be_asked_for_again(dump, client):
    client.post(f"/d/{dump.id}/m/0/replay")
    run = Run.objects.get()
    trials.run(run.trials.get().pk)
    for _ in range(2):
        client.post(f"/d/{dump.id}/m/0/reproduce")
        assert run.trials.get(key="reproduce").status == Trial.Status.QUEUED
        client.post(f"/d/{dump.id}/m/0/replay/cancel")
        assert run.trials.get(key="reproduce").status == Trial.Status.CANCELLED


def test_what_a_module_has_no_use_for_makes_no_other_run(dump, client):
    """This one is for the CPU: no GPU has to be named."""
    for gpu in ("", "x" * 1000, "\0", "NVIDIA H100 80GB HBM3"):
        assert client.post(f"/d/{dump.id}/m/0/replay", {"gpu": gpu}).status_code == 302
    assert Run.objects.get().gpu == ""
    answer = client.post(f"/d/{dump.id}/m/0/replay", {"toolchain": "cpu-0.0.1"})
    assert answer.status_code == 400 and b"no such toolchain for cpu" in answer.content and Run.objects.count() == 1


def test_there_is_no_small_program_of_a_module_without_copies(dump, client):
    report = storage.load_report(dump)
    report["modules"][0]["copies"] = []
    Run.objects.create(dump=dump, module=0, toolchain=own().name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "load_report", lambda of: report)
        assert client.post(f"/d/{dump.id}/m/0/reproduce").status_code == 404
    assert not Trial.objects.exists()


def test_the_run_that_was_asked_for_last_is_shown(dump):
    first = runs.start(dump, module_of(dump), own())
    second = runs.start(dump, module_of(dump), replace(own(), version="0.0.1"))
    for run in (first, second):
        trials.run(run.trials.get().pk)
    assert runs.best_run(dump, 0) == second
    assert runs.start(dump, module_of(dump), own()) == first and runs.best_run(dump, 0) == first


def test_limits_hold_for_the_small_program_too(dump, client, settings):
    client.post(f"/d/{dump.id}/m/0/replay")
    run = Run.objects.get()
    trials.run(run.trials.get().pk)
    settings.TRIAGE_REPLAY_DUMP_BYTES = 1000
    client.post(f"/d/{dump.id}/m/0/reproduce")
    trial = run.trials.get(key="reproduce")
    trials.run(trial.pk)
    trial.refresh_from_db()
    assert trial.row["status"] == "error" and "grew beyond" in trial.row["message"]


def test_a_trial_that_is_cancelled_while_it_compiles_ends_within_seconds(dump, monkeypatch):
    run = runs.start(dump, module_of(dump), own())
    trial = run.trials.get()
    live = trials._live

    def cancelled(current: Trial) -> None:
        runs.cancel(run)
        live(current)
    monkeypatch.setattr(trials, "_live", cancelled)
    monkeypatch.setattr(trials, "BEAT_SECONDS", 0.05)
    started = time.monotonic()
    trials.run(trial.pk)
    trial.refresh_from_db()
    assert trial.status == Trial.Status.CANCELLED and trial.row is None and time.monotonic() - started < 20


def test_a_trial_whose_worker_died_is_taken_over(dump):
    run = runs.start(dump, module_of(dump), own())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    machine = trials.new_lease().split(".")[0]
    run.trials.update(status=Trial.Status.RUNNING, lease=f"{machine}.{gone.pid}.x", heartbeat=timezone.now())
    trials.requeue_lost()
    assert run.trials.get().status == Trial.Status.QUEUED
    run.trials.update(status=Trial.Status.RUNNING, lease=f"other.{os.getpid()}.x", heartbeat=timezone.now())
    trials.requeue_lost()
    assert run.trials.get().status == Trial.Status.RUNNING
    run.trials.update(heartbeat=timezone.now() - timedelta(minutes=5))
    trials.requeue_lost()
    assert run.trials.get().status == Trial.Status.QUEUED


def test_a_trial_that_kills_its_worker_again_and_again_becomes_a_row(dump):
    run = runs.start(dump, module_of(dump), own())
    run.trials.update(attempts=trials.MAX_ATTEMPTS)
    trials.run(run.trials.get().pk)
    row = run.trials.get().row
    assert row["status"] == "crash" and "interrupted" in row["message"]


def test_a_toolchain_that_was_removed_is_a_row(dump):
    run = Run.objects.create(dump=dump, module=0, toolchain="cpu-0.0.1")
    trial = Trial.objects.create(run=run, position=0, key="baseline", variant={
        "key": "baseline", "action": "baseline", "says": "nothing", "pass_": None, "flag": None, "scope": None})
    trials.run(trial.pk)
    trial.refresh_from_db()
    assert trial.row["message"] == "the toolchain cpu-0.0.1 is not installed any more"


def test_a_page_without_a_toolchain_says_so(client, compiled, settings, tmp_path):
    settings.TRIAGE_TOOLCHAINS = tmp_path
    analysed = analyse(compiled)
    analysed.report["modules"][0]["platform"] = "tpu"
    row = Dump.objects.create(name="up", status=Dump.Status.DONE)
    storage.save_analysis(row, analysed)
    assert "manage.py toolchain add tpu" in client.get(f"/d/{row.id}/").content.decode()
    answer = client.post(f"/d/{row.id}/m/0/replay")
    assert answer.status_code == 400 and b"no toolchain for tpu" in answer.content and not Run.objects.exists()


@pytest.mark.parametrize("path", ["m/9/replay", "m/9/replay/cancel"])
def test_there_is_nothing_to_replay_of_a_module_that_is_not_there(client, dump, path):
    assert client.post(f"/d/{dump.id}/{path}").status_code in (302, 404) and not Run.objects.exists()


def test_deleting_a_dump_deletes_its_replays(dump):
    run = runs.start(dump, module_of(dump), own())
    trials.run(run.trials.get().pk)
    dump.delete()
    assert not Run.objects.exists() and not Trial.objects.exists() and not Dump.objects.exists()


def test_a_small_program_can_be_had(dump, client):
    assert client.post(f"/d/{dump.id}/m/0/reproduce").status_code == 404
    client.post(f"/d/{dump.id}/m/0/replay")
    run = Run.objects.get()
    run_all(run)
    assert b"Make a small reproducer" in client.get(f"/d/{dump.id}/").content
    for _ in range(2):
        client.post(f"/d/{dump.id}/m/0/reproduce")
    run_all(run)
    row = run.trials.get(key="reproduce").row
    assert row["status"] == "ok", row
    assert row["reproducer"]["shown"]["kind"] == "convert" and row["reproducer"]["instructions"] < 40
    page = client.get(f"/d/{dump.id}/").content.decode()
    assert "A small program that shows it" in page and "Make a small reproducer" not in page
    text = client.get(f"/d/{dump.id}/m/0/repro.hlo")
    assert text.content.decode() == row["reproducer"]["text"] and "ENTRY" in row["reproducer"]["text"]
    report = client.get(f"/d/{dump.id}/report.json").json()["modules"][0]
    assert report["reproducer"]["text"] == row["reproducer"]["text"] and len(report["replays"]) == run.trials.count() - 1
