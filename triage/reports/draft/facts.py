"""Sections that say what the dump itself holds: the cost, where it was compiled, what to attach, what is not known."""
from __future__ import annotations

from collections import defaultdict

from triage.engine.sentences import percent, plural
from triage.reports.draft.document import BLANK, PROGRAM, Subject
from triage.reports.draft.words import capital, change, file_name, is_confirmed
from triage.reports.markdown import block, code, plain, sentence, table

_MEMORY = (("arguments", "argument_bytes", "source"), ("output", "output_bytes", "source"),
           ("temporary", "temp_bytes", "source"), ("temporary, other memory spaces", "other_memory_bytes", "source"),
           ("peak", "peak_bytes", "peak_source"))
MAX_PATTERNS = 5
SMALL_SHARE = 0.005     # would read "0%"
MAX_NAMES = 8           # parameters of one shape
MAX_SHAPES = 6
MAX_FLAGS = 100
SHORT_FLAGS = 6         # more than so many are folded

VERSIONS = f"jax, jaxlib and plugin versions: {BLANK} (`python -c \"import jax; jax.print_environment_info()\"`)"
DEVICES = {"gpu": f"Driver: {BLANK} (`nvidia-smi`)", "cpu": f"CPU model: {BLANK} (`lscpu`)", "tpu": f"TPU runtime: {BLANK}"}
EXPECTATION = f"Slowdown, or memory limit, that this causes: {BLANK}"
EMPTY_FLAGS = f"Does it happen with `XLA_FLAGS` empty? {BLANK}"


def summary(s: Subject) -> list[str]:
    pattern, memory, totals = s.pattern, s.module["memory"], s.module["totals"]
    lines = [f"* **What**: {sentence(capital(pattern['sentence']))} ({pattern['bytes']:,} bytes in "
             f"{plural(pattern['count'], 'buffer')})."]
    if pattern["where"] == "before_loop" and memory.get("share_of_temp"):
        whose = "That is" if totals["hoisted_bytes"] == pattern["bytes"] else "All copies before a loop together are"
        lines.append(f"* **Cost**: {whose} {percent(memory['share_of_temp'])} of the temporary memory, "
                     f"{totals['hoisted_bytes']:,} of {memory['temp_bytes']:,} bytes. "
                     f"Parameters take {totals['parameter_bytes']:,}.")
    else:
        temp = f"; temporary memory is {memory['temp_bytes']:,} bytes" if memory.get("temp_bytes") is not None else ""
        lines.append(f"* **Cost**: {pattern['bytes']:,} bytes; parameters take {totals['parameter_bytes']:,}{temp}.")
    if pattern["reason"] and pattern["trigger"]:      # without a trigger the first line has it
        lines.append(f"* **Why**: {sentence(pattern['reason'])}.")
    return [*lines, f"* **What removes it**: {_removes(s)}"]


def _removes(s: Subject) -> str:
    if s.baseline is None:
        return "not measured: nothing was recompiled for this report."
    if not s.verified:
        return f"none of {plural(len(s.module['replays']) - 1, 'change')} that a recompile tried (below)."
    best: dict[str, dict] = {}
    for remedy in s.verified:       # the best of each kind
        best.setdefault(remedy["action"], remedy)
    told = [f"{change(remedy)}: {_figure(remedy)}" for remedy in list(best.values())[:2]]
    return f"{'; '.join(told)} (this module recompiled; {_figure(s.baseline)} as it is)."


def _figure(row: dict) -> str:
    return f"{row['temp_bytes']:,} temp bytes" if row["temp_bytes"] is not None else f"{row['copied_bytes']:,} bytes copied"


def impact(s: Subject) -> list[str]:
    memory = s.module["memory"]
    rows = [[label, f"{memory[key]:,}", code(file_name(memory[source]))] for label, key, source in _MEMORY if memory.get(key)]
    lines = [*table(["memory", "bytes", "from"], rows), ""] if rows else ["The dump holds no memory figures.", ""]
    live = [copy for copy in s.copies if copy["live_at_peak"]]
    if live:
        size = sum(copy["bytes"] for copy in live)
        peak = memory.get("peak_bytes")
        share = f", {percent(size / peak)} of it" if peak and size >= SMALL_SHARE * peak else ""
        lines.append(f"* Live at the peak: {len(live)} of {plural(len(s.copies), 'copy')}, {size:,} bytes{share}.")
    return [*lines, *_parameters(s), *_other_patterns(s)]


def _parameters(s: Subject) -> list[str]:
    wanted, shapes = set(s.pattern["parameters"]), defaultdict(list)
    for parameter in s.module["parameters"]:
        if parameter["number"] in wanted:
            shapes[parameter["shape"], parameter["bytes"]].append(parameter["op_name"] or parameter["name"])
    lines = []
    for (shape, size), names in list(shapes.items())[:MAX_SHAPES]:
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        each = " each" if len(names) > 1 else ""
        lines.append(f"* {plural(len(names), 'parameter')} {code(shape)}, {size:,} bytes{each}: "
                     f"{', '.join(map(code, names[:MAX_NAMES]))}{more}.")
    if len(shapes) > MAX_SHAPES:
        lines.append(f"* {plural(len(shapes) - MAX_SHAPES, 'more shape')}.")
    return lines


def _other_patterns(s: Subject) -> list[str]:
    others = [pattern for number, pattern in enumerate(s.module["patterns"]) if number != s.number]
    if not others:
        return []
    rows = [[str(other["count"]), f"{other['bytes']:,}", sentence(other["sentence"])] for other in others[:MAX_PATTERNS]]
    more = len(others) - MAX_PATTERNS
    lines = ["", "Other copies of parameters in this module, each a matter of its own:", "",
             *table(["copies", "bytes", "what happens"], rows)]
    return [*lines, "", f"and {plural(more, 'more pattern')}."] if more > 0 else lines


def environment(s: Subject) -> list[str]:
    module = s.module
    lines = [f"* Target: {code(module['target'])}"] if module["target"] else []
    if module["partitions"]:
        lines.append(f"* Partitions: {module['partitions']}")
    if module["version"]:
        version = module["version"]
        lines.append(f"* From the dump's form: {plain(version['range'])}, because {sentence(version['reason'])}")
    lines.append(f"* {VERSIONS}")
    if s.address != PROGRAM:
        lines += [f"* {DEVICES.get(module['platform'], f'Backend and device: {BLANK}')}", f"* {EXPECTATION}"]
    flags = public_flags(module["flags"])
    if not flags:
        return [*lines, "* No flag other than the dump's own is set, as far as the dump shows."]
    if s.address != PROGRAM:
        lines.append(f"* {EMPTY_FLAGS}")
    shown = [*flags[:MAX_FLAGS], *([f"({len(flags) - MAX_FLAGS} more)"] if len(flags) > MAX_FLAGS else [])]
    if len(flags) <= SHORT_FLAGS:
        return [*lines, "* Flags that are not at their defaults (paths left out): " + ", ".join(map(code, shown))]
    return [*lines, "", f"<details><summary>{len(flags)} flags that are not at their defaults (paths left out)</summary>", "",
            *block(shown), "", "</details>"]


def public_flags(flags: dict[str, str]) -> list[str]:
    """Flags worth showing: none that hold a path or a pattern of names."""
    return [f"--{name}={value}" for name, value in sorted(flags.items())
            if not name.startswith("xla_dump") and "/" not in value and "\\" not in value and not name.endswith("_dir")]


def attachments(s: Subject) -> list[str]:
    stages, sample, uploaded = s.module["stages"], s.sample, s.module.get("uploaded_stages") or s.module["stages"]
    wanted = [uploaded[0]["file"]] if uploaded[0]["label"].startswith("before_optimization") else []
    if s.module.get("history") != "replayed" and sample["stage"] is not None:
        wanted += [stages[index]["file"] for index in (sample["previous_stage"], sample["stage"])]
    wanted += [uploaded[-1]["file"], s.module["memory"].get("source")]
    names = dict.fromkeys(file_name(name) for name in wanted if name)
    lines = [f"Of module {code(s.module['name'])}:", *[f"* {code(name)}" for name in names]]
    if s.module["platform"] == "gpu":
        lines.append(f"* {code('*.gpu_target_config.pbtxt')}: with it the module compiles without the GPU")
    return lines


def unknown(s: Subject) -> list[str]:
    pattern, module, lines = s.pattern, s.module, ["* Time was not measured."]
    if s.baseline is None:
        lines.append("* Nothing was recompiled: whether a pass can be disabled, and what that saves or costs, is not measured.")
    elif s.baseline["matches_upload"] != "reproduced":
        lines.append(f"* The recompile is not the dump: {sentence(s.baseline['difference'] or 'they differ')}.")
    if pattern["trigger"] and not is_confirmed(s):
        lines.append(f"* That {code(pattern['trigger'])} is the trigger is a suspicion from the texts of the stages.")
    if not pattern["introduced_by"] and pattern["between"]:
        lines.append("* Which pass introduced the copy: the dump has no text of the passes in between "
                     f"({code('--xla_dump_hlo_pass_re=.*')} adds them).")
    if len(module.get("versions", [])) < 2:
        lines.append("* Whether other releases make this copy.")
    if module["files"]["unparsed"]:
        lines.append(f"* {plural(len(module['files']['unparsed']), 'file')} of the dump could not be read completely.")
    return lines


def footer(s: Subject) -> list[str]:
    link = f"; the whole analysis: {s.link}" if s.link else ""
    return ["---", f"*Text generated by {plain(s.generator)} from a dump{link}. Figures are those of the dump's files"
            f"{' and of recompiles of its module' if s.baseline else ''}. No person has checked them yet.*"]
