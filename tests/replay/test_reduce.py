"""Small programs that show a copy, found and confirmed by real compiles."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jaxlib import _hlo

from triage.replay.measure import measure
from triage.replay.reduce import NoReproducer, reproduce
from triage.replay.source import Source, source_of
from triage.replay.toolchains import own
from triage.replay.variants import BASELINE

ROOT = Path(__file__).resolve().parents[2]
#: On the CPU the weight is converted to f32, and that is moved before the loop.
UPCAST = """HloModule jit_secret

body {
  s = (s32[], f32[8,256]{1,0}, bf16[256,512]{1,0}, bf16[512,256]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8,256]{1,0} get-tuple-element(s), index=1
  up = bf16[256,512]{1,0} get-tuple-element(s), index=2
  down = bf16[512,256]{1,0} get-tuple-element(s), index=3
  up32 = f32[256,512]{1,0} convert(up), metadata={op_name="secret/convert" source_file="/home/secret/model.py"}
  down32 = f32[512,256]{1,0} convert(down)
  a = f32[8,512]{1,0} dot(x, up32), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[8,512]{1,0} tanh(a)
  c = f32[8,256]{1,0} dot(b, down32), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[8,256]{1,0} add(x, c)
  ROOT t = (s32[], f32[8,256]{1,0}, bf16[256,512]{1,0}, bf16[512,256]{1,0}) tuple(next, y, up, down)
}

test {
  s = (s32[], f32[8,256]{1,0}, bf16[256,512]{1,0}, bf16[512,256]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(16)
  ROOT lt = pred[] compare(i, n), direction=LT
}

ENTRY main {
  up = bf16[256,512]{1,0} parameter(0)
  down = bf16[512,256]{1,0} parameter(1)
  x = f32[8,256]{1,0} parameter(2)
  z = s32[] constant(0)
  init = (s32[], f32[8,256]{1,0}, bf16[256,512]{1,0}, bf16[512,256]{1,0}) tuple(z, x, up, down)
  loop = (s32[], f32[8,256]{1,0}, bf16[256,512]{1,0}, bf16[512,256]{1,0}) while(init), condition=test, body=body
  ROOT out = f32[8,256]{1,0} get-tuple-element(loop), index=1
}
"""
SOURCE = Source("jit_secret", UPCAST, "cpu", "this machine's CPU", "", "", 1, 1)


@pytest.fixture(scope="module")
def upcast(tmp_path_factory) -> dict:
    """The module of a report, as the service's own jaxlib compiles it."""
    measured = measure(SOURCE, BASELINE, own(), tmp_path_factory.mktemp("upcast"), 1024, every_pass=True)
    assert [copy["kind"] for copy in measured.module["copies"]] == ["convert", "convert"]
    return measured.module


def shows(found, copy) -> bool:
    kept = {key: found.shown[key] for key in ("kind", "where")}
    by = found.shown["introduced_by"]["pass"]
    return kept == {key: copy[key] for key in kept} and by == copy["introduced_by"]["pass"]


def test_on_the_services_own_jaxlib(upcast):
    calls = []
    found = reproduce(upcast, "c2", SOURCE, own(), progress=lambda *call: calls.append(call))
    assert shows(found, upcast["copies"][1])
    assert found.instructions <= 21 and found.stopped == "" and found.copy == "c2"
    assert found.same_trigger and found.same_order
    assert (found.toolchain, found.device) == (own().name, "this machine's CPU")
    assert found.commands[0].startswith("hlo-opt --platform=cpu") and found.commands[0].endswith("repro.hlo")
    assert "secret" not in found.text and "convert" in found.text and "tanh" not in found.text
    assert re.search(r"constant\(2\)", found.text)
    _hlo.hlo_module_from_text(found.text)
    assert len({phase for phase, _, _ in calls}) == 3 and calls[-1][1] == found.tries
    again = reproduce(upcast, "c2", SOURCE, own())
    assert (again.text, again.tries) == (found.text, found.tries)


def test_limits_end_the_search_with_a_sentence(upcast):
    with pytest.raises(NoReproducer, match="no copy c9"):
        reproduce(upcast, "c9", SOURCE, own())
    with pytest.raises(NoReproducer, match="the time was up"):
        reproduce(upcast, "c1", SOURCE, own(), seconds=0)
    with pytest.raises(NoReproducer, match="it was cancelled"):
        reproduce(upcast, "c1", SOURCE, own(), cancelled=lambda: True)
    found = reproduce(upcast, "c1", SOURCE, own(), max_tries=1)
    assert found.tries == 1 and found.stopped.startswith("1 compiles were made") and shows(found, upcast["copies"][0])


def test_a_copy_that_the_recompile_does_not_show(upcast):
    other = {**upcast, "copies": [{**upcast["copies"][0], "kind": "gather"}]}
    with pytest.raises(NoReproducer, match="does not show this copy"):
        reproduce(other, "c1", SOURCE, own())


def test_another_release_may_call_the_pass_otherwise(upcast):
    renamed = {**upcast, "copies": [{**copy, "introduced_by": {"pass": "old-name"}} for copy in upcast["copies"]]}
    found = reproduce(renamed, "c1", SOURCE, own())
    assert shows(found, upcast["copies"][0])


@pytest.mark.parametrize("name, copy, trigger", [
    ("h100-jaxlib0.10.2-attn_heads", "c1", "dot-strength-reduction"),
    ("h100-jaxlib0.10.2-int8_dot", "c1", None),
    ("h100-jaxlib0.10.2-llama3_8b_generate", "c1", None),
])
def test_programs_of_an_h100(analysed, toolchain, name, copy, trigger):
    analysis = analysed(name)
    module, texts = analysis.report["modules"][0], analysis.modules[0]
    found = reproduce(module, copy, source_of(module, texts.text(0), texts.gpu_target), toolchain("cuda", "0.10.2"))
    wanted = next(c for c in module["copies"] if c["id"] == copy)
    assert found.instructions < 40 and found.seconds < 120 and shows(found, wanted)
    assert (found.shown["trigger"] or {}).get("pass") == trigger
    assert found.same_trigger and found.same_order and found.device == "NVIDIA H100 80GB HBM3"
    for parameter in module["parameters"]:
        assert parameter["name"] not in found.text
    for word in ("metadata", "op_name", "/home", "stack_frame", "jit"):
        assert word not in found.text


def manage(*arguments: object, **environ: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "triage.settings", "TRIAGE_TOOLCHAINS": "/nonexistent", **environ}
    return subprocess.run([sys.executable, str(ROOT / "manage.py"), "reproduce", *map(str, arguments)], cwd=ROOT,
                          env=environment, capture_output=True, text=True, timeout=200, check=False)


def test_on_the_command_line(unpack_dump, tmp_path):
    dump = unpack_dump("cpu-jaxlib0.10.2-f32_upcast")
    done = manage(dump, "--copy", "c2", "--output", tmp_path / "repro.hlo")
    assert (done.returncode, done.stderr) == (0, "")
    assert " instructions, found in " in done.stdout and "introduced by `while-loop-invariant-code-motion`" in done.stdout
    assert "hlo-opt --platform=cpu" in done.stdout
    _hlo.hlo_module_from_text((tmp_path / "repro.hlo").read_text())


@pytest.mark.parametrize("arguments, reason", [
    (["--copy", "c99"], "The module has no copy c99."),
    (["--module", "other"], "There is no module other; there are jit_f32_upcast."),
    (["--toolchain", "cpu-0.0.1"], "There is no toolchain cpu-0.0.1 for cpu; `manage.py toolchain add cpu` makes one."),
])
def test_what_is_not_there(unpack_dump, arguments, reason):
    done = manage(unpack_dump("cpu-jaxlib0.10.2-f32_upcast"), *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{reason}\n")
