"""A small dump with hostile names, analysed by the real engine and stored as a worker would store it.

The program is the smallest that shows a parameter copied before a loop: `w` is transposed by layout-assignment because
the loop reads it in another order. Every name that a dump may choose holds markup.
"""
from __future__ import annotations

from pathlib import Path

import pytest

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.engine.report import analyse

EVIL = "<script>alert(1)</script>"
W, X = "f32[1024,16,64]{2,1,0}", "f32[1,1024]{1,0}"
STATE = f"(s32[], {X}, {W})"
FILES = {
    "before_optimizations": False,
    "0001.simplification.after_algsimp.before_dce": False,
    "0002.layout_assignment.after_pipeline-start.before_layout-assignment": False,
    "0003.layout_assignment.after_layout-assignment.before_pipeline-end": True,
    "0004.fusion.after_<i>fusion.before_pipeline-end": True,
    "after_optimizations": True,
}


def hlo(copied: bool, step: int) -> str:
    """The module's text before or after the copy; `step` changes something else."""
    wanted = W.replace("{2,1,0}", "{0,2,1}") if copied else W
    state = STATE.replace(W, wanted)
    copy = f"  %copy.<b>1 = {wanted} copy(%w.<i>1), metadata={{op_name=\"{EVIL}\"}}\n" if copied else ""
    filler = "".join(f"  %add.{n} = {X} add(%x, %x)\n" for n in range(40))
    return f"""HloModule jit_<u>, entry_computation_layout={{({W}, {X})->{X}}}

%quiet.{step % 2} (q.1: f32[]) -> f32[] {{
  %q.1 = f32[] parameter(0)
  ROOT %n.{step} = f32[] negate(%q.1), metadata={{op_name="{EVIL}"}}
}}

%body (p.1: {state}) -> {state} {{
  %p.1 = {state} parameter(0)
  %i = s32[] get-tuple-element(%p.1), index=0
  %x.1 = {X} get-tuple-element(%p.1), index=1
  %w.2 = {wanted} get-tuple-element(%p.1), index=2
  %b.3 = f32[1024,16,64]{{0,2,1}} broadcast(%x.1), dimensions={{2,0}}
  %m.4 = f32[1024,16,64]{{0,2,1}} multiply(%w.2, %b.3), metadata={{op_name="jit(f)/{EVIL}" source_line={step}}}
  %r.5 = {X} custom-call(%m.4), custom_call_target="{EVIL}"
  ROOT %t.6 = {state} tuple(%i, %r.5, %w.2)
}}

%cond (p.2: {state}) -> pred[] {{
  %p.2 = {state} parameter(0)
  ROOT %lt = pred[] constant(true)
}}

ENTRY %main.<u>{'9' if copied else '8'} (w.<i>1: {W}, x: {X}) -> {X} {{
  %w.<i>1 = {W} parameter(0), metadata={{op_name="params['{EVIL}']"}}
  %x = {X} parameter(1)
{filler}{copy}  %z = s32[] constant({step})
  %init = {state} tuple(%z, %x, {'%copy.<b>1' if copied else '%w.<i>1'})
  %loop = {state} while(%init), condition=%cond, body=%body
  ROOT %out = {X} get-tuple-element(%loop), index=1
}}
"""


def write_dump(folder: Path, name: str = "jit_<u>") -> None:
    for step, (stage, copied) in enumerate(FILES.items()):
        text = hlo(copied, 0 if stage.startswith("0002") else step)
        (folder / f"module_0001.{name}.{stage}.txt").write_text(text.replace("jit_<u>", name))


def store(path: Path) -> Dump:
    """The finished dump of a directory."""
    row = Dump.objects.create(name=f"{EVIL}.tar.gz", status=Dump.Status.DONE, lease="test")
    storage.save_analysis(row, analyse(path))
    return row


@pytest.fixture(scope="session")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    write_dump(folder)
    return folder


@pytest.fixture
def dump(db, hostile_folder: Path) -> Dump:
    """A finished dump of one module; its stages are those of FILES."""
    return store(hostile_folder)
