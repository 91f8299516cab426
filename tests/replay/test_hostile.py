"""Modules that are damaged, hostile or too large, and toolchains that misbehave: each is a row with one sentence."""
from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path

import pytest

from triage.replay.measure import measure
from triage.replay.process import Limits, run_compiler
from triage.replay.source import Source
from triage.replay.toolchains import Toolchain, own
from triage.replay.variants import BASELINE, Variant

GOOD = """HloModule good, entry_computation_layout={(f32[64,128]{1,0})->f32[64,128]{1,0}}

ENTRY %main (p: f32[64,128]) -> f32[64,128] {
  %p = f32[64,128]{1,0} parameter(0)
  ROOT %negate = f32[64,128]{1,0} negate(%p)
}
"""
#: Constant folding would have to write terabytes.
HUGE = GOOD.replace("ROOT %negate = f32[64,128]{1,0} negate(%p)",
                    "%c = f32[] constant(1)\n  %b = f32[1000000,1000000]{1,0} broadcast(%c), dimensions={}\n"
                    "  %s = f32[1000000,1000000]{1,0} sort(%b), dimensions={0}, to_apply=%less\n"
                    "  ROOT %r = f32[64,128]{1,0} slice(%s), slice={[0:64],[0:128]}").replace(
    "ENTRY", "%less (a: f32[], b: f32[]) -> pred[] {\n  %a = f32[] parameter(0)\n  %b.1 = f32[] parameter(1)\n"
             "  ROOT %l = pred[] compare(%a, %b.1), direction=LT\n}\n\nENTRY")


def source(text: str) -> Source:
    return Source("good", text, "cpu", "this machine's CPU", "", "", 1, 1)


def row(text: str, tmp_path: Path, variant: Variant = BASELINE, limits: Limits | None = None,
        python: Path | None = None) -> dict:
    toolchain = Toolchain("cpu", own().version, python or own().python)
    found = measure(source(text), variant, toolchain, tmp_path, 1, limits or Limits()).row
    assert found["status"] == "ok" or (found["message"] and "\n" not in found["message"]), found
    return found


def test_a_good_module_is_measured(tmp_path):
    assert row(GOOD, tmp_path)["status"] == "ok"


@pytest.mark.parametrize("text", ["", "no HLO at all", GOOD[:-40], GOOD.replace("negate(%p)", "negate(%q)"), "\0" * 1000,
                                  "\udcff" + GOOD, GOOD.replace("f32[64,128]", "f32[-1,128]"), GOOD * 2])
def test_a_damaged_module_is_a_row(tmp_path, text):
    assert row(text, tmp_path)["status"] in ("error", "crash")


def test_an_unknown_flag_is_a_row(tmp_path):
    found = row(GOOD, tmp_path, Variant("flag", "flag", "x", job={"options": {"xla_of_tomorrow": "true"}}))
    assert found["status"] == "error" and "xla_of_tomorrow" in found["message"]


@pytest.mark.parametrize("name", ["; touch pwned", "$(touch pwned)", "../../x", "no-such-pass"])
def test_the_name_of_a_pass_is_only_a_name(tmp_path, name):
    assert row(GOOD, tmp_path, Variant("d", "disable_pass", "x", pass_=name, job={"disable": [name]}))["status"] == "ok"
    assert not list(tmp_path.rglob("pwned"))


def test_a_compile_that_takes_too_long_is_a_row(tmp_path):
    found = row(GOOD, tmp_path, limits=Limits(seconds=0))
    assert found["status"] == "timeout" and "longer than 0 seconds" in found["message"]


def test_a_compile_that_needs_too_much_memory_is_a_row(tmp_path):
    found = row(GOOD, tmp_path, limits=Limits(memory_bytes=600 * 1024**2))
    assert found["status"] in ("memory", "crash", "error")


def test_a_module_of_absurd_size_is_a_row(tmp_path):
    assert row(HUGE, tmp_path, limits=Limits(seconds=60))["status"] in ("ok", "error", "timeout", "memory", "crash")


@pytest.mark.parametrize("limit", [1500, 700, 300, 30])
def test_a_dump_that_reached_its_limit_is_never_measured(tmp_path, limit):
    """XLA leaves out what it cannot write, and goes on: copies would be missing that are there."""
    found = row(GOOD, tmp_path, limits=Limits(dump_bytes=limit))
    assert found["status"] == "size" and "copies" not in found


@pytest.mark.parametrize("damage,said", [
    (lambda path: path.write_text(path.read_text()[:-30]), "incomplete"), (lambda path: path.write_text(""), "incomplete"),
    (lambda path: path.unlink(), "no text after optimizations")])
def test_a_dump_that_is_incomplete_is_never_measured(tmp_path, monkeypatch, damage, said):
    """As a full disk leaves it."""
    def with_damage(*arguments: object) -> dict:
        outcome = run_compiler(*arguments)
        damage(next((tmp_path / "dump").glob("*after_optimizations.txt")))
        return outcome

    monkeypatch.setattr("triage.replay.measure.run_compiler", with_damage)
    found = row(GOOD, tmp_path)
    assert found["status"] == "error" and said in found["message"]


def fake(tmp_path: Path, body: str) -> Path:
    """A toolchain's Python that does something else."""
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\nimport json, os, signal, sys, time\njob = json.load(sys.stdin)\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("body,status,said", [
    ("os.kill(os.getpid(), signal.SIGABRT)", "crash", "XLA aborted"),
    ("print('F0000 00:00 1 file.cc:12] Check failed: a == b', file=sys.stderr); os.kill(os.getpid(), signal.SIGABRT)",
     "crash", "XLA aborted: Check failed: a == b"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", "crash", "segmentation fault"),
    ("os.kill(os.getpid(), signal.SIGKILL)", "crash", "killed"),
    ("sys.exit(3)", "crash", "exit code 3"),
    ("pass", "crash", "said nothing"),
    ("open(job['result'], 'w').write('{')", "crash", "said nothing"),
    ("open(job['result'], 'w').write('[1]')", "crash", "said nothing"),
    ("open(job['result'], 'w').write('{\"status\": \"splendid\"}')", "crash", "said nothing"),
    ("print('std::bad_alloc'); sys.exit(1)", "memory", "memory"),
    ("time.sleep(1000)", "timeout", "longer than 2 seconds"),
    ("for n in 'xy': open(job['dump'] + '/' + n, 'wb').write(b'x' * 3_000_000)\ntime.sleep(1000)", "size", "grew beyond"),
    ("json.dump({'status': 'ok', 'left_out': [], 'seconds': 1, 'temp_bytes': 1, 'argument_bytes': 1, 'output_bytes': 1, "
     "'flops': 1, 'bytes_accessed': 1}, open(job['result'], 'w'))", "error", "no readable dump"),
])
def test_a_toolchain_that_misbehaves_is_a_row(tmp_path, body, status, said):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    limits = Limits(seconds=2 if "longer" in said else 30, dump_bytes=4_000_000)
    found = row(GOOD, scratch, limits=limits, python=fake(tmp_path, body))
    assert found["status"] == status and said in found["message"], found


def test_a_toolchain_that_is_not_there_is_a_row(tmp_path):
    assert "cannot be started" in row(GOOD, tmp_path, python=Path("/nowhere/python"))["message"]


def test_nothing_of_a_compile_is_left_running(tmp_path):
    """Neither after its time is over nor after it was cancelled; its own children go with it."""
    body = "import subprocess\nsubprocess.Popen(['sleep', '1000'])\nopen('pids', 'w').write(str(os.getpid()))\ntime.sleep(1000)"
    python, started = fake(tmp_path, body), time.monotonic()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    outcome = run_compiler(python, {}, scratch, Limits(), cancelled=lambda: (scratch / "pids").exists())
    assert outcome["status"] == "cancelled" and time.monotonic() - started < 20
    group = int((scratch / "pids").read_text())
    for _ in range(50):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("a process of the compile still runs")


def test_the_compiler_is_told_nothing_of_the_service(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "hidden")
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    body = "open('environment', 'w').write(json.dumps(dict(os.environ)))"
    run_compiler(fake(tmp_path, body), {}, scratch, Limits())
    seen = (scratch / "environment").read_text()
    assert "hidden" not in seen and "no_such_flag" not in seen
