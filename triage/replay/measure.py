"""One variant measured: compiled by a toolchain, its own dump analysed."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from triage.engine.analysis import Analysis, InputError, ModuleTexts
from triage.engine.knowledge import Releases, pass_facts
from triage.engine.report import analyse

from .compiler.parameters import aliased
from .process import DEFAULT_LIMITS, Limits, run_compiler
from .source import Source
from .toolchains import Toolchain, key
from .variants import Variant, with_attribute

#: Before this release autotuning looks for a GPU to measure on.
AUTOTUNES_WITHOUT_GPU = (0, 7, 0)
MAX_COPIES = 2000           # told of one variant


@dataclass(frozen=True)
class Measurement:
    """`row` is what is kept of a variant, JSON: see `measure`. `analysis` is that of its dump, where it compiled."""
    row: dict
    analysis: Analysis | None = None

    @property
    def module(self) -> dict | None:
        return self.analysis.report["modules"][0] if self.analysis is not None else None


def measure(source: Source, variant: Variant, toolchain: Toolchain, scratch: Path, min_bytes: int,
            limits: Limits = DEFAULT_LIMITS, every_pass: bool = False,
            cancelled: Callable[[], bool] = lambda: False) -> Measurement:
    """Compiles one variant in the empty directory `scratch`. Does not raise for anything the module or the compiler does.

    The row: variant, action, pass, flag, scope, says, transposed, returned (with AUTO layouts: the numbers of results that
    take the buffers of donated arguments, and come in the layouts that XLA chooses for those), toolchain, device, status (of
    `run_compiler`, or "error" where its dump cannot be read), message; and where status is "ok": seconds of the compile,
    left_out (flags of the dump that this release does not know), temp_bytes (None: this platform does not tell),
    argument_bytes, output_bytes, flops, bytes_accessed (XLA's estimate, a loop's body counted once; None: it makes none),
    copied_bytes, hoisted_bytes, in_loop_bytes, copies (parameters, kind, where, bytes, instruction), layouts (of AUTO, one
    per parameter) and, where every pass was dumped, fired: pass -> [runs with an effect, lines changed].
    """
    row = {"variant": variant.key, "action": variant.action, "pass": variant.pass_, "flag": variant.flag,
           "scope": variant.scope, "says": variant.says, "transposed": variant.job.get("transposed"),
           "returned": _returned(source.text, variant.job.get("auto")), "toolchain": toolchain.name,
           "device": source.device}
    if unknown := _unknown_attribute(variant, toolchain):
        return Measurement({**row, "status": "error", "message": unknown})
    path = scratch / "module.txt"
    path.write_text(with_attribute(source.text, variant.attribute) if variant.attribute else source.text, "utf-8",
                    "backslashreplace")
    job = {**source.job(str(path)), **variant.job, "every_pass": every_pass,
           "disable": [*source.disabled, *variant.job.get("disable", [])],
           "no_autotuning": toolchain.platform == "cuda" and key(toolchain.version) < AUTOTUNES_WITHOUT_GPU}
    outcome = run_compiler(toolchain.python, job, scratch, limits, cancelled)
    if outcome["status"] != "ok":
        return Measurement({**row, "status": outcome["status"], "message": _first_lines(outcome["message"])})
    try:
        analysis = analyse(scratch / "dump", min_bytes=min_bytes)
    except InputError as error:
        return Measurement({**row, "status": "error", "message": f"It compiled, but left no readable dump: {error}"})
    _put_first(analysis, source.name)
    if missing := _incomplete(analysis.report["modules"][0]):
        return Measurement({**row, "status": "error", "message": f"It compiled, but its dump is incomplete: {missing}"})
    facts = _facts(outcome, analysis, "auto" in variant.job)
    return Measurement({**row, "status": "ok", "message": "", **facts}, analysis)


def _returned(text: str, auto: str | list[int] | None) -> list[int]:
    pairs = aliased(text.partition("\n")[0]) if auto else []
    return sorted(result for argument, result in pairs if auto == "all" or argument in auto)


def _unknown_attribute(variant: Variant, toolchain: Toolchain) -> str:
    """Why an attribute would be ignored; "" for none."""
    facts = pass_facts(variant.pass_ or "") if variant.attribute else None
    if facts is None or Releases(toolchain.version, toolchain.version).within(facts.attribute_releases):
        return ""
    return f"jaxlib {toolchain.version} does not know `{variant.attribute}`; {facts.attribute_releases} does"


def _incomplete(module: dict) -> str:
    """What is missing of a dump, "" for nothing. A full disk does not end a compile: it shows in what was written."""
    if damaged := module["files"]["unparsed"]:
        return f"{damaged[0]['file']} {damaged[0]['reason']}"
    last = [stage["label"] for stage in module["stages"] if stage["step"] is None][-1:]
    return "" if any("after_optimizations" in label for label in last) else "there is no text after optimizations"


def _put_first(analysis: Analysis, name: str) -> None:
    """The module that was compiled before helpers that the compiler makes for itself."""
    modules = analysis.report["modules"]
    position = next((index for index, module in enumerate(modules) if module["name"] == name), 0)
    modules.insert(0, modules.pop(position))
    analysis.modules.insert(0, analysis.modules.pop(position))
    for index, module in enumerate(modules):
        module["index"] = index


def _facts(outcome: dict, analysis: Analysis, with_layouts: bool) -> dict:
    module = analysis.report["modules"][0]
    temp = module["memory"]["temp_bytes"]
    if temp is None and module["platform"] != "tpu":        # there the executable says 0, whatever it needs
        temp = outcome["temp_bytes"]
    facts = {key: outcome[key] for key in ("seconds", "left_out", "argument_bytes", "output_bytes", "flops", "bytes_accessed")}
    facts |= {key: module["totals"][key] for key in ("copied_bytes", "hoisted_bytes", "in_loop_bytes")}
    facts |= {"temp_bytes": temp, "layouts": _layouts(module) if with_layouts else None, "copies": [
        {key: copy[key] for key in ("parameters", "kind", "where", "bytes", "instruction")}
        for copy in module["copies"][:MAX_COPIES]]}
    fired = _fired(module, analysis.modules[0])
    return {**facts, "fired": fired} if fired else facts


def _layouts(module: dict) -> list[str]:
    """Of every parameter the layout that it has in the optimised text, `{0,2,1}`; "" where a number is missing."""
    shapes = {parameter["number"]: parameter["shape"] for parameter in module["parameters"]}
    return ["".join(shapes.get(number, "").partition("{")[1:]) for number in range(max(shapes, default=-1) + 1)]


def _fired(module: dict, texts: ModuleTexts) -> dict[str, list[int]]:
    """For each pass that changed something: in how many runs, and how many lines it wrote in all of them."""
    runs: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for before, after, stage in zip(texts.stages, texts.stages[1:], module["stages"][1:]):
        if not stage["changed"] or not stage["pass"] or stage["step"] is None:
            continue
        left, right = {chunk.key for chunk in before.chunks}, {chunk.key for chunk in after.chunks}
        old = {line for key in left - right for line in texts.texts[key].split("\n")}
        runs[stage["pass"]] += 1
        lines[stage["pass"]] += sum(line not in old and " = " in line for key in right - left
                                    for line in texts.texts[key].split("\n"))
    return {name: [count, lines[name]] for name, count in runs.items()}


def _first_lines(message: str) -> str:
    """A compiler's message without the stack traces that it appends."""
    kept = []
    for line in message.split("\n"):
        if line.startswith(("Suspected Python Code Location", "***", "=== Source Location", "Detailed error from MLIR")):
            break
        kept.append(line.strip())
    return " ".join(" ".join(kept).split())[:500]
