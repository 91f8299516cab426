"""The draft of an issue for openxla/xla out of one module's report. It says what the dump shows, and what it does not."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from triage.engine.cost import human_bytes
from triage.engine.printable import one_line
from triage.engine.sentences import percent, plural
from triage.reports.excerpt import Line
from triage.reports.markdown import block, code, plain, sentence, table

MAX_PARAMETER_ROWS = 40
MAX_PATTERNS = 10
MAX_FLAGS = 100
#: The lines of the stage with this index around the copy with this id.
Excerpt = Callable[[int, str], list[Line]]

VERSIONS = ("jax, jaxlib and libtpu or CUDA plugin versions: ____ "
            "(output of `python -c \"import jax; jax.print_environment_info()\"`)")
DRIVER = "GPU driver: ____ (from `nvidia-smi`)"
EXPECTATION = "Slowdown or memory limit that this causes for you: ____"


@dataclass
class Draft:
    """`blanks` are the facts the reader must add; each stands in the body with `____`."""
    title: str
    body: str
    blanks: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return f"# {self.title}\n\n{self.body}"


def draft(module: dict, generator: str, excerpt: Excerpt) -> Draft | None:
    """The draft for a module of the report, worst pattern first; None for a module without copies."""
    if not module["patterns"]:
        return None
    worst = module["patterns"][0]
    sample = _representative(module, worst)
    device = {"gpu": DRIVER, "cpu": "CPU model: ____ (from `lscpu`)", "tpu": "TPU type and topology: ____"}
    blanks = [VERSIONS, device.get(module["platform"], "Backend and device: ____"), EXPECTATION]
    sections = [
        _own_line(worst, sample), ["## Summary", "", *_summary(module, worst)], ["## Impact", "", *_impact(module)],
        ["## What the compiler does", "", *_history(module, worst, sample, excerpt)],
        ["## Parameters", "", *_parameters(module, worst)], ["## How to reproduce", "", *_reproduce(module)],
        ["## Environment", "", *_environment(module, blanks)], ["## Not known", "", *_unknown(module, worst, sample)],
        _footer(generator)]
    body = "\n\n".join("\n".join(section) for section in sections if section) + "\n"
    return Draft(title(module, worst), body, blanks)


def title(module: dict, pattern: dict) -> str:
    """`[GPU] 24.0 MiB of parameters transposed before the loop by layout-assignment (...)`, plain text."""
    platform = f"[{module['platform'].upper()}] " if module["platform"] else ""
    verb = {"transpose": "transposed", "copy": "copied", "convert": "converted", "gather": "all-gathered",
            "concat": "joined", "computed": "recomputed"}[pattern["kind"]]
    where = {"before_loop": "before the loop", "in_loop": "in every loop iteration", "entry": "outside any loop"}
    by = f" by {pattern['introduced_by']}" if pattern["introduced_by"] else ""
    trigger = f" (suspected trigger: {pattern['trigger']})" if pattern["trigger"] else ""
    total = sum(p["bytes"] for p in module["patterns"] if _heading(p) == _heading(pattern))
    return one_line(f"{platform}{human_bytes(total)} of parameters {verb} {where[pattern['where']]}{by}{trigger}")


def _heading(pattern: dict) -> tuple:
    return pattern["kind"], pattern["where"], pattern["introduced_by"], pattern["trigger"]


def _representative(module: dict, pattern: dict) -> dict:
    wanted = set(pattern["copies"])
    copies = [copy for copy in module["copies"] if copy["id"] in wanted]
    return max(copies, key=lambda copy: copy["bytes"])


def _own_line(pattern: dict, sample: dict) -> list[str]:
    """Where the program itself can be changed, the draft says so first."""
    if pattern["origin"] != "program":
        return []
    source = sample["source"] or {}
    named = ", ".join(part for part in (code(source["op_name"]) if source.get("op_name") else "", _place(source)) if part)
    free = f" It cost nothing until {code(sample['free_until'])}." if sample["free_until"] else ""
    reason = f" {sentence(_capital(sample['reason']))}." if sample["reason"] else ""
    return ["> **Perhaps to be fixed in the program first.** The operation is the program's own"
            + (f": {named}." if named else ".") + free + reason
            + " Storing these parameters in the form in which they are read should make it unnecessary (not measured)."]


def _place(source: dict) -> str:
    """`models.py:45`; the directory is the user's own business."""
    if not source.get("file"):
        return ""
    return code(source["file"].rsplit("/", 1)[-1] + (f":{source['line']}" if source.get("line") else ""))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _summary(module: dict, pattern: dict) -> list[str]:
    lines = [f"* {sentence(_capital(pattern['sentence']))} ({pattern['bytes']:,} bytes in "
             f"{plural(pattern['count'], 'buffer')})."]
    memory = module["memory"]
    if pattern["where"] == "before_loop" and memory.get("share_of_temp"):
        lines.append(f"* All copies before a loop are {percent(memory['share_of_temp'])} of the temporary memory: "
                     f"{module['totals']['hoisted_bytes']:,} of {memory['temp_bytes']:,} bytes.")
    if pattern["reason"] and pattern["trigger"]:
        lines.append(f"* The copy's reader: {sentence(pattern['reason'])}.")
    target = f" for {code(module['target'])}" if module["target"] else ""
    parts = f", {module['partitions']} partitions" if module["partitions"] else ""
    return [*lines, f"* Module {code(module['name'])}{target}{parts}; parameters take "
            f"{module['totals']['parameter_bytes']:,} bytes."]


def _impact(module: dict) -> list[str]:
    memory = module["memory"]
    names = (("arguments", "argument_bytes", "source"), ("output", "output_bytes", "source"),
             ("temporary", "temp_bytes", "source"), ("temporary, other memory spaces", "other_memory_bytes", "source"),
             ("peak", "peak_bytes", "peak_source"))
    rows = [[label, f"{memory[key]:,}", code(_file(memory[source]))] for label, key, source in names if memory.get(key)]
    lines = [*table(["memory", "bytes", "from"], rows), ""] if rows else ["The dump holds no memory figures.", ""]
    shown = module["patterns"][:MAX_PATTERNS]
    lines += table(["copies", "bytes", "what happens"],
                   [[str(p["count"]), f"{p['bytes']:,}", sentence(p["sentence"])] for p in shown])
    if len(module["patterns"]) > MAX_PATTERNS:
        lines += ["", f"{plural(len(module['patterns']) - MAX_PATTERNS, 'more pattern')} left out."]
    live = [copy for copy in module["copies"] if copy["live_at_peak"]]
    if live:
        lines += ["", f"{len(live)} of {plural(len(module['copies']), 'copy')} "
                  f"({sum(c['bytes'] for c in live):,} bytes) {'is' if len(live) == 1 else 'are'} live at the peak"
                  f"{_share(memory.get('share_of_peak'))}."]
    return lines


def _share(share: float | None) -> str:
    return f" and {percent(share)} of it" if share else ""


def _file(name: str | None) -> str:
    return (name or "").rsplit("/", 1)[-1]


def _history(module: dict, pattern: dict, sample: dict, excerpt: Excerpt) -> list[str]:
    which = "The copy" if pattern["count"] == 1 else f"One of the {plural(pattern['count'], 'copy')}"
    lines = [f"{which}: {code(sample['parameter_names'][0])}, "
             f"{code(sample['from_shape'])} to {code(sample['to_shape'])}, {sample['bytes']:,} bytes.", ""]
    if sample["trigger"]:
        stage = sample["trigger"]["stage"]
        lines += [f"**Suspected trigger**, {_stage_name(module, stage)}: {sentence(sample['trigger']['evidence'])}.", "",
                  *_before_after(sample["id"], stage, excerpt)]
    if sample["introduced_by"] or sample["between"]:
        where = _stage_name(module, sample["stage"])
        lines += [f"**The copy appears** {where}:" if sample["introduced_by"] else
                  f"**The copy appears** between {code(sample['between'][0])} and {code(sample['between'][1])}; "
                  "the passes in between are not in the dump:", "",
                  *_before_after(sample["id"], sample["stage"], excerpt)]
    last = len(module["stages"]) - 1
    if last != sample["stage"]:
        lines += [f"**In the final text** ({code(_file(module['stages'][last]['file']))}):", "",
                  *_block(excerpt(last, sample["id"]))]
    return lines[:-1] if lines[-1] == "" else lines


def _stage_name(module: dict, index: int) -> str:
    stage = module["stages"][index]
    step = f"step {stage['step']}, " if stage["step"] is not None else ""
    return f"{step}after {code(stage['pass'] or stage['label'])} ({code(_file(stage['file']))})"


def _before_after(copy_id: str, stage: int, excerpt: Excerpt) -> list[str]:
    before, after = excerpt(stage - 1, copy_id) if stage else [], excerpt(stage, copy_id)
    lines = (["Before:", "", *_block(before)] if before else []) + (["After:", "", *_block(after)] if after else [])
    return lines or ["(no instruction to show)", ""]


def _block(lines: list[Line]) -> list[str]:
    """Instructions with the computation they stand in as comments."""
    shown, computation = [], None
    for line in lines:
        if line.computation != computation:
            computation = line.computation
            shown.append(f"// in {computation}")
        shown.append(line.text)
    return [*block(shown, "hlo"), ""]


def _parameters(module: dict, pattern: dict) -> list[str]:
    wanted = set(pattern["parameters"])
    rows = [[str(p["number"]), code(p["op_name"] or p["name"]), code(p["shape"]), f"{p['bytes']:,}"]
            for p in module["parameters"] if p["number"] in wanted]
    lines = table(["number", "parameter", "shape", "bytes"], rows[:MAX_PARAMETER_ROWS])
    left = rows[MAX_PARAMETER_ROWS:]
    return lines + (["", f"and {len(left)} more."] if left else [])


def _reproduce(module: dict) -> list[str]:
    first = module["stages"][0]
    flags = ["--xla_dump_to=DIR", "--xla_dump_hlo_pass_re=.*"]
    lines = [("" if _has_passes(module) else "The dump holds no per-pass files. ")
             + f"{code('XLA_FLAGS')} that dump the text after every pass: {code(' '.join(flags))}."]
    if first["label"].startswith("before_optimization"):
        name = _file(first["file"])
        lines += ["", f"{code(name)} (to be attached) is the module before optimisation." + _command(module["platform"], name)]
    shown = _public_flags(module["flags"])
    if shown:
        lines += ["", "Flags that are not at their defaults (paths and dump options left out):", "", *block(shown[:MAX_FLAGS])]
        lines += ["", f"and {len(shown) - MAX_FLAGS} more."] if len(shown) > MAX_FLAGS else []
    return lines


def _has_passes(module: dict) -> bool:
    return any(not stage["named"] for stage in module["stages"])


def _command(platform: str | None, name: str) -> str:
    if platform == "gpu":
        return (" Without the GPU: " + code(f"hlo-opt --platform=gpu --stage=hlo "
                f"--xla_gpu_target_config_filename=FILE.gpu_target_config.pbtxt {name}") + ", with it: "
                + code(f"run_hlo_module --platform=CUDA {name}") + " (not run for this report).")
    if platform == "cpu":
        return f" {code(f'run_hlo_module --platform=CPU {name}')} compiles and runs it (not run for this report)."
    return ""


def _public_flags(flags: dict[str, str]) -> list[str]:
    """Flags worth showing: none that hold a path or a pattern of names."""
    return [f"--{name}={value}" for name, value in sorted(flags.items())
            if not name.startswith("xla_dump") and "/" not in value and "\\" not in value and not name.endswith("_dir")]


def _environment(module: dict, blanks: list[str]) -> list[str]:
    lines = [f"* Target: {code(module['target'])}"] if module["target"] else []
    if module["version"]:
        lines.append(f"* From the dump's form: {plain(module['version']['range'])}, "
                     f"because {sentence(module['version']['reason'])}")
    return lines + [f"* {blank}" for blank in blanks]


def _unknown(module: dict, pattern: dict, sample: dict) -> list[str]:
    lines = ["* Nothing was recompiled for this report: whether a pass can be disabled, and at what cost, is not measured.",
             "* Time was not measured."]
    if sample["trigger"]:
        lines.append(f"* That {code(sample['trigger']['pass'])} is the trigger is a suspicion from the texts of the stages.")
    if not pattern["introduced_by"] and pattern["between"]:
        lines.append("* Which pass introduced the copy: the dump has no text of the passes in between.")
    if module["files"]["unparsed"]:
        lines.append(f"* {plural(len(module['files']['unparsed']), 'file')} of the dump could not be read completely.")
    return lines


def _footer(generator: str) -> list[str]:
    return ["---", f"*Drafted by {plain(generator)} from a dump. The numbers come from the dump's own files; "
            "a person has yet to check the text and to fill in the blanks (`____`).*"]
