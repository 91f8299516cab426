"""Damaged and hostile modules. Run as a program it analyses each one given by name and prints a line of JSON for it;
a name that is a file's path stands for mutations of that file.

The tests run it as a child process, so that text on which the engine hangs fails a test instead of stopping all.
"""
from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path

from triage.engine.analysis import InputError
from triage.engine.handlers import HANDLERS
from triage.engine.opcodes import FOLLOWED
from triage.engine.report import analyse

HEADER = "HloModule m, entry_computation_layout={(f32[1024,1024]{1,0})->f32[1024,1024]{0,1}}\n\n"
HEAD = "ENTRY %e (p: f32[1024,1024]) -> f32[1024,1024] {\n  %p = f32[1024,1024]{1,0} parameter(0)\n"
TAIL = "  ROOT %c = f32[1024,1024]{0,1} copy(%p)\n}\n"
ARRAY = "f32[1024,1024]{1,0}"
MANY = 100_000
OPCODES = sorted({*FOLLOWED, *HANDLERS, "async-start", "async-update", "async-done", "copy-start", "all-gather-start"})
ODD = ("", "(", ")", "{", "}", "[", '"', "%", ",", "=", "\\", "\0", "\r", "\u00b2", "#9", "/*", "ROOT ", "\udcff")


def body(lines: str, before: str = "") -> str:
    return HEADER + before + HEAD + lines + TAIL


def chain(kind: str, depth: int, root: str = "ROOT %k = f32[1024,1024]{0,1} copy(%p)") -> str:
    """Computations %c0 to %c<depth>, each calling the one before: `call`, `while` or `fan` (two calls)."""
    parts = [f"%c0 (p: f32[]) -> f32[] {{\n  %p = {ARRAY} parameter(0)\n  {root}\n}}\n\n"]
    for i in range(1, depth + 1):
        call = ARRAY + (f" while(%p), condition=%c0, body=%c{i - 1}" if kind == "while" else f" call(%p), to_apply=%c{i - 1}")
        twice = f"  %q = {call}\n" if kind == "fan" else ""
        parts.append(f"%c{i} (p: f32[]) -> f32[] {{\n  %p = {ARRAY} parameter(0)\n{twice}  ROOT %r = {call}\n}}\n\n")
    return "".join(parts)


def tuples(depth: int, width: int) -> str:
    """Values that nest deeper, or grow faster, than the shapes they print."""
    lines = ["  %t0 = (f32[]) tuple(%p)\n"]
    lines += [f"  %t{i} = (f32[]) tuple({', '.join([f'%t{i - 1}'] * width)})\n" for i in range(1, depth)]
    return "".join(lines) + f"  %o = f32[] opt-barrier(%t{depth - 1})\n  %x = f32[] add(%t{depth - 1}, %o)\n"


def operations(shape: str, operands: str, attributes: str = "") -> str:
    """One instruction of every opcode through which values flow, each read by another."""
    return "".join(f"  %o{i} = {shape} {opcode}({operands}){attributes}\n  %u{i} = {ARRAY} add(%o{i}, %p)\n"
                   for i, opcode in enumerate(OPCODES))


MODULES = {
    "deep tuple shape": lambda: body(f"  %t = {'(' * MANY}{')' * MANY} tuple()\n"),
    "deep tuple shape with an array": lambda: body(f"  %t = {'(' * 5000}f32[]{')' * 5000} tuple()\n"),
    "deep brackets": lambda: body(f"  %x = f32[] add({'([{' * MANY}\n"),
    "doubling tuples": lambda: body(tuples(60, 2)),
    "deep tuples": lambda: body(tuples(20_000, 1)),
    "wide tuple": lambda: body(f"  %t = ({', '.join([ARRAY] * 20_000)}) tuple({', '.join(['%p'] * 20_000)})\n" + "".join(
        f"  %g{i} = {ARRAY} get-tuple-element(%t), index={i}\n" for i in range(20_000))),
    "deep calls": lambda: body("  %x = f32[] call(%p), to_apply=%c3000\n", chain("call", 3000)),
    "deep loops": lambda: body("  %x = f32[] while(%p), condition=%c0, body=%c500\n",
                               chain("while", 500, "ROOT %k = f32[] add(%p)")),
    "calls that double": lambda: body("  %x = f32[] call(%p), to_apply=%c40\n", chain("fan", 40)),
    "calls in a circle": lambda: body("  %x = f32[] call(%p), to_apply=%c1\n",
                                      chain("call", 1, "ROOT %k = f32[] call(%p), to_apply=%c1")),
    "entry that calls itself": lambda: body(f"  %x = {ARRAY} call(%p), to_apply=%e\n"),
    "loop without body": lambda: body(f"  %x = {ARRAY} while(%p), condition=%a, body=%b\n  %y = {ARRAY} while()\n"),
    "many branches": lambda: body(f"  %i = s32[] constant(0)\n  %x = {ARRAY} conditional(%i{', %p' * 4000}), "
                                  f"branch_computations={{{', '.join(['%c0'] * 4000)}}}\n", chain("call", 0)),
    "many computations": lambda: body("", "".join(
        f"%c{i} (p: f32[]) -> f32[] {{\n  ROOT %p = f32[] parameter(0)\n}}\n\n" for i in range(30_000))),
    "operands in a circle": lambda: body(f"  %x = {ARRAY} copy(%y)\n  %y = {ARRAY} copy(%x)\n"),
    "an operand of its own": lambda: body(f"  %x = {ARRAY} copy(%x)\n  %x = {ARRAY} copy(%x)\n"),
    "long chain": lambda: body(f"  %x0 = {ARRAY} add(%p, %p)\n" + "".join(
        f"  %x{i} = {ARRAY} add(%x{i - 1}, %p)\n" for i in range(1, 10_000))),
    "long chain backwards": lambda: body("".join(
        f"  %x{i} = {ARRAY} add(%x{i + 1}, %p)\n" for i in range(10_000)) + f"  %x10000 = {ARRAY} copy(%p)\n"),
    "cut in an escaped string": lambda: HEADER + HEAD + '  %x = f32[] custom-call(%p), backend_config="' + '\\"a' * MANY,
    "cut in a quoted operand": lambda: HEADER + HEAD + '  %x = f32[] custom-call("' + '\\"a' * MANY,
    "cut in a header": lambda: HEADER + 'FileNames\n1 "' + '\\"a' * MANY,
    "comments that do not end": lambda: body(f"  %x = f32[] add({'/*' * MANY})\n  %y = ({'/*' * MANY}) add()\n"),
    "spaces": lambda: body(f"  %x = f32[] add(%p), {' ' * MANY}!\n{' ' * MANY}\n{' ' * MANY}=\n"),
    "letters in a layout": lambda: body(f"  %x = f32[2]{{0:{'A' * MANY}}} add(%p)\n  %y = f32[2]{{0:{'T(' * MANY}}} add(%p)\n"),
    "letters in metadata": lambda: body("").replace("copy(%p)", f"copy(%p), metadata={{{'a' * MANY}}}"),
    "quotes in metadata": lambda: body("").replace("copy(%p)", f"copy(%p), metadata={{{chr(92) + chr(34)}{'a=' * MANY}"),
    "lines of no HLO": lambda: body("foo\n" * MANY),
    "literal lines": lambda: body("  %k = f32[2] constant({\n" + "    {1, 2},\n" * MANY + "  })\n"),
    "closing braces": lambda: HEADER + "}\n" * MANY + HEAD + TAIL + "}\n" * MANY,
    "closing braces and empty lines": lambda: body("") + "\n}\n\n" * MANY,
    "empty lines": lambda: body("") + "\n" * MANY,
    "lines of no HLO between closing braces": lambda: body("") + "foo\n}\n\n" * MANY,
    "nothing read": lambda: body(operations(ARRAY, "") + operations(f"({ARRAY}, {ARRAY})", "").replace("%o", "%t")),
    "fewer dimensions read": lambda: body("  %v = f32[4] constant({...})\n" + operations(
        ARRAY, "%v, %v, %v", ", dimensions={0}")),
    "more dimensions read": lambda: body(operations("f32[4]", "%p, %p, %p", ", dimensions={1,0}")),
    "names of elements": lambda: body("".join(f"  %x{i}#0 = {ARRAY} copy(%x{i + 1}#0)\n" for i in range(5000)) + (
        f"  %y#0 = {ARRAY} copy(%y#0)\n")),
    "heads without bodies": lambda: body("", "%c (p: f32[]) -> f32[] {\n" * 30_000),
    "no line ends": lambda: body("").replace("\n", " "),
    "one long line": lambda: "HloModule " + "m" * 1_000_000,
    "old line ends": lambda: body("").replace("\n", "\r"),
    "two line ends": lambda: body("").replace("\n", "\r\n"),
    "NUL": lambda: body("").replace(" ", " \0"),
    "parameter number that is no number": lambda: body("").replace("parameter(0)", "parameter(\u00b2)"),
    "parameter number of many digits": lambda: body("").replace("parameter(0)", f"parameter({'9' * 5000})"),
    "parameter number below zero": lambda: body("").replace("parameter(0)", "parameter(-1)"),
    "two parameters of one number": lambda: body(f"  %q = {ARRAY} parameter(0)\n  %d = {ARRAY} copy(%q)\n"),
    "size that is no number": lambda: body("").replace("[1024,1024]", "[\u00b2,1024]"),
    "huge sizes": lambda: body("").replace("[1024,1024]", f"[{','.join(['9' * 18] * 30)}]"),
    "huge rank": lambda: body("").replace("[1024,1024]", f"[{','.join(['9' * 18] * 100_000)}]"),
    "tiles of nothing": lambda: body("").replace("{1,0}", "{1,0:T(0,0)(*,*)(*)E(0)S(99999999999999999999)}"),
    "tuple index of many digits": lambda: body(
        f"  %t = (f32[4]) tuple(%p)\n  %g = f32[] get-tuple-element(%t), index={'9' * 5000}\n"
        f"  %h = f32[] add(%t#{'9' * 5000}, %t#\u00b2, %t#)\n"),
    "numbers of many digits": lambda: body("").replace("HloModule m", f"HloModule m, num_partitions={'9' * 5000}").replace(
        "ENTRY", f'FileNames\n{"9" * 5000} "a"\n\nStackFrames\n1 {{file_location_id={"9" * 5000}}}\n\nENTRY').replace(
        "copy(%p)", 'copy(%p), metadata={op_name="x" stack_frame_id=1}'),
    "nothing": lambda: "",
    "header alone": lambda: HEADER,
    "entry alone": lambda: "ENTRY %e {\n",
    "empty computation": lambda: "HloModule m\n\nENTRY %e {\n}\n",
}


def mutations(text: str, seed: int) -> list[str]:
    """Cut, spliced, shuffled and overwritten versions of a text."""
    chance = random.Random(seed)
    lines = text.split("\n")

    def place() -> int:
        return chance.randrange(len(text))

    def changed(count: int) -> str:
        new = list(lines)
        for _ in range(count):
            number = chance.randrange(len(new))
            line = new[number] or " "
            at = chance.randrange(len(line))
            odd = chance.choice([*ODD, line[:at], " " * 50])
            new[number] = line[:at] + odd + line[at + chance.randrange(3):]
        return "\n".join(new)
    first, second = sorted((place(), place()))
    shuffled = chance.sample(lines, len(lines))
    return [text[:place()], text[place():], text[:first] + text[second:], text[:second] + text[first:], changed(20),
            changed(len(lines) // 4), "\n".join(shuffled), text.replace("\n", "", 50), text.replace("}", "", 9)]


def outcome(texts: list[str]) -> dict:
    """What analyse() says about a dump whose stages are these texts."""
    with tempfile.TemporaryDirectory() as folder:
        for step, text in enumerate(texts):
            label = "before_optimizations" if step == 0 else f"{step:04}.pipe.after_p{step}.before_q"
            Path(folder, f"module_0001.m.{label}.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
        start = time.monotonic()
        try:
            analysis = analyse(folder)
        except InputError as error:
            return {"error": str(error), "seconds": time.monotonic() - start}
        for files, stage in ((Path(folder, s.file), s) for module in analysis.modules for s in module.stages):
            joined = "".join(analysis.modules[0].texts[chunk.key] for chunk in stage.chunks)
            assert joined == files.read_bytes().decode("utf-8", "backslashreplace").replace("\0", "\\x00")
        return {"report": len(json.dumps(analysis.report)), "seconds": time.monotonic() - start,
                "unparsed": [entry for module in analysis.report["modules"] for entry in module["files"]["unparsed"]],
                "copies": sum(len(module["copies"]) for module in analysis.report["modules"])}


def mutated_outcome(path: Path) -> dict:
    """Outcomes of the file's mutations, first each by itself, then all of them as stages of one module."""
    texts = mutations(path.read_bytes().decode("utf-8", "surrogateescape"), seed=len(path.name))
    outcomes = [outcome([text]) for text in texts] + [outcome(texts)]
    return {"seconds": max(one["seconds"] for one in outcomes), "reports": sum("report" in one for one in outcomes)}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps({"name": name, "outcome": "started"}), flush=True)
        if name in MODULES:
            made = MODULES[name]()
            result = outcome([made, made])
        else:
            result = mutated_outcome(Path(name))
        print(json.dumps({"name": name, "outcome": result}), flush=True)
