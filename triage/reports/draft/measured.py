"""Sections that say what recompiles of the module measured: the ablation, what helps, the small program."""
from __future__ import annotations

from collections import defaultdict

from triage.engine.sentences import plural
from triage.replay.compare import headline
from triage.replay.reduce import Reproducer
from triage.replay.reduce.told import said
from triage.reports.draft.document import BLANK, Subject
from triage.reports.draft.words import capital, change, file_name
from triage.reports.markdown import block, code, sentence, table

MAX_ROWS = 12
MAX_WORKAROUNDS = 2
MAX_MESSAGE = 120       # characters of what the compiler said
MAX_NAMES = 8
MAX_INLINE = 60         # lines of a small program that stand in the text


def ablation(s: Subject) -> list[str]:
    if not s.module["replays"]:
        return ["Not measured. Candidates, from what is known of these passes: "
                + "; ".join(sentence(remedy["sentence"]) for remedy in s.module["remedies"][:MAX_WORKAROUNDS]) + "."
                ] if s.module["remedies"] else []
    baseline, *rows = s.module["replays"]
    if baseline["status"] != "ok":
        return [f"The module could not be compiled again: {_message(baseline)}"]
    rows.sort(key=lambda row: (row["status"] != "ok", row["temp_bytes"] or 0 if row["status"] == "ok" else 0))
    lines = [f"The module compiled again with one thing changed at a time; {sentence(headline(baseline))}. "
             "The copied bytes are those of all parameters; nothing was executed.", "",
             *table(["change", "temp bytes", "copied bytes", f"of these {plural(len(s.copies), 'copy')}"],
                    [_row(s, row) for row in (baseline, *rows[:MAX_ROWS])])]
    if len(rows) > MAX_ROWS:
        lines += ["", f"and {len(rows) - MAX_ROWS} more."]
    return [*lines, *_versions(s)]


def _row(s: Subject, row: dict) -> list[str]:
    what = "none (baseline)" if row["variant"] == "baseline" else change(row)
    if row["status"] != "ok":
        failed = "does not compile" if row["status"] == "error" else row["status"]
        return [what, f"{failed}: {_message(row)}", "", ""]
    temp = f"{row['temp_bytes']:,}" if row["temp_bytes"] is not None else "not told"
    return [what, temp, f"{row['copied_bytes']:,}", "" if row["variant"] == "baseline" else _became(s, row)]


def _became(s: Subject, row: dict) -> str:
    """What became of the pattern's copies: "12 gone", "8 made otherwise", "all stay"."""
    ours = set(s.pattern["copies"])
    counts = ((len(ours & set(row["gone"])), "gone"), (len(ours & set(row["moved"])), "made otherwise"))
    parts = [f"{count} {words}" for count, words in counts if count] or ["all stay"]
    parts += [f"{row['came_count']} new in the module"] if row["came_count"] else []
    return "; ".join([*parts, *(["no remedy: the pass must run"] if row["must_run"] else [])])


def _message(row: dict) -> str:
    """What the compiler said, as code."""
    return code(row["message"], MAX_MESSAGE)


def _versions(s: Subject) -> list[str]:
    versions = s.module.get("versions", [])
    if len(versions) < 2:
        return []
    rows = [[code(v["toolchain"]), f"{v['there']} of {len(s.module['copies'])}", f"{v['copied_bytes']:,}",
             f"{v['temp_bytes']:,}" if v["temp_bytes"] is not None else "not told"] if v["status"] == "ok" else
            [code(v["toolchain"]), _message(v), "", ""] for v in versions]
    return ["", "As it is, with other releases:", "",
            *table(["compiler", "of all copies still there", "copied bytes", "temp bytes"], rows)]


def workarounds(s: Subject) -> list[str]:
    """The lines to write for the best remedy of each kind."""
    best: dict[str, dict] = {}
    for remedy in s.verified:
        if remedy["recipe"] and remedy["recipe"]["code"]:
            best.setdefault(remedy["action"], remedy)
    lines = []
    for remedy in list(best.values())[:MAX_WORKAROUNDS]:
        figures = "; ".join([f"{_figure(s.baseline)} to {_figure(remedy)}", *costs(remedy_row(s, remedy), s.baseline)])
        written = remedy["recipe"]["code"].strip().split("\n")
        lines += [f"{capital(change(remedy))}: {figures}.", "", *block(written, "python"), "",
                  *orders(remedy, set(s.pattern["parameters"]))]
    return lines[:-1]


def orders(remedy: dict, wanted: set[int]) -> list[str]:
    """The order of dimensions in which each of these parameters is stored, where the lines to write leave that open."""
    if remedy["action"] != "store_transposed":
        return []
    names = defaultdict(list)
    for parameter in remedy["recipe"]["parameters"]:
        if parameter["number"] in wanted:
            names[tuple(parameter["order"])].append(code(parameter["name"]))
    lines = [f"* {code(f'order = {order}')}: {', '.join(found[:MAX_NAMES])}"
             + (f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else "") for order, found in names.items()]
    return [*lines[:MAX_ROWS], ""] if lines else []


def remedy_row(s: Subject, remedy: dict) -> dict:
    """The replay that measured a remedy."""
    keys = ("action", "pass", "flag", "scope")
    return next(row for row in s.module["replays"] if all(row[key] == remedy[key] for key in keys))


def costs(row: dict, baseline: dict) -> list[str]:
    """What a change does besides memory: XLA's own estimates, where they differ, and how often a disabled pass had fired."""
    found = []
    for name, words in (("flops", "floating-point operations"), ("bytes_accessed", "bytes accessed")):
        now, then = row.get(name), baseline.get(name)
        if now is not None and then and now != then:
            found.append(f"{words} {then:,.0f} to {now:,.0f} by XLA's estimate")
    if row.get("fired"):
        found.append(f"the pass ran with effect {plural(row['fired'][0], 'time')} and wrote {plural(row['fired'][1], 'line')}")
    return found


def _figure(row: dict) -> str:
    return f"{row['temp_bytes']:,} temp bytes" if row["temp_bytes"] is not None else f"{row['copied_bytes']:,} bytes copied"


def reproducer(s: Subject) -> list[str]:
    found = s.module.get("reproducer")
    if found and found["copy"] in s.pattern["copies"]:
        return _small(Reproducer(**{**found, "commands": tuple(found["commands"])}))
    uploaded = (s.module.get("uploaded_stages") or s.module["stages"])[0]
    lines = [f"A small program that shows it: {BLANK} (none was made for this report)."]
    if uploaded["label"].startswith("before_optimization"):
        name = file_name(uploaded["file"])
        lines += ["", f"{code(name)} (attached) is the module before optimisation.{_command(s.module['platform'], name)}"]
    return lines


def _small(found: Reproducer) -> list[str]:
    lines = said(found)
    text, commands = found.text.strip("\n").split("\n"), list(found.commands)
    told = [sentence(line) for line in lines[:len(lines) - len(commands)]]
    if len(text) > MAX_INLINE:
        shown = [f"{code('repro.hlo')} ({len(text)} lines, attached)."]
    else:
        shown = [f"<details><summary>repro.hlo, {len(text)} lines</summary>", "", *block(text, "hlo"), "", "</details>"]
    return [" ".join(told), "", *shown, *(["", *block(commands, "sh")] if commands else [])]


def _command(platform: str | None, name: str) -> str:
    if platform == "gpu":
        return (" Without the GPU: " + code(f"hlo-opt --platform=CUDA --stage=buffer-assignment "
                f"--xla_gpu_target_config_filename=target.pbtxt {name}") + ", with it: "
                + code(f"run_hlo_module --platform=CUDA {name}") + " (these commands were not run for this report).")
    if platform == "cpu":
        return f" {code(f'run_hlo_module --platform=CPU {name}')} compiles and runs it (not run for this report)."
    return ""


def expected(s: Subject) -> list[str]:
    passes = [remedy for remedy in s.verified if remedy["action"] == "disable_pass"]
    layouts = [remedy for remedy in s.verified if remedy["action"] != "disable_pass"]
    best = (passes or layouts)[:1]
    if not best:
        return [f"The loop reads these parameters as they are stored, without {s.pattern['bytes']:,} bytes of copies. "
                "Whether that is possible at the same speed is not known."]
    return [f"No copy of {s.pattern['bytes']:,} bytes, as with {change(best[0])}, where this module needs {_figure(best[0])} "
            f"instead of {_figure(s.baseline)}."]
