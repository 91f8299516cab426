"""What the passes make of one copy: a few lines before and after, as a diff."""
from __future__ import annotations

from triage.engine.sentences import plural
from triage.reports.draft.document import Subject
from triage.reports.draft.words import capital, file_name, is_confirmed
from triage.reports.excerpt import Line
from triage.reports.markdown import block, code, sentence


def history(s: Subject) -> list[str]:
    sample, count = s.sample, s.pattern["count"]
    which = "The copy" if count == 1 else f"One of the {plural(count, 'copy')}"
    replayed = " The dump has no per-pass files: the steps are its recompile's." if sample.get("history") == "replayed" else ""
    lines = [f"{which}: {code(sample['parameter_names'][0])}, {code(sample['from_shape'])} to {code(sample['to_shape'])}, "
             f"{sample['bytes']:,} bytes.{replayed}", "", *_trigger(s), *_appears(s), *_final(s)]
    if other := sample["other_user"]:
        lines += [f"The parameter itself is also read by {code(other['opcode'])} {code(other['instruction'])}, "
                  f"which takes it as {code(other['wants'])}.", ""]
    return lines[:-1]


def _trigger(s: Subject) -> list[str]:
    trigger = s.sample["trigger"]
    if not trigger or not s.pattern["trigger"]:
        return []
    sure = "Trigger (without this pass the copy is not made)" if is_confirmed(s) else "Suspected trigger"
    return [f"**{sure}**: {_stage_name(s, trigger['stage'])}. {sentence(capital(trigger['evidence']))}.", "",
            *_change(s, trigger["stage"])]


def _appears(s: Subject) -> list[str]:
    sample = s.sample
    if sample["introduced_by"]:
        return [f"**The copy appears**: {_stage_name(s, sample['stage'])}.", "", *_change(s, sample["stage"])]
    if sample["between"]:
        first, last = map(code, sample["between"])
        return [f"**The copy appears** between {first} and {last}; the passes in between are not in the dump.", "",
                *_change(s, sample["stage"])]
    return []


def _final(s: Subject) -> list[str]:
    last = len(s.module["stages"]) - 1
    if last == s.sample["stage"]:
        return []
    lines = _show(s, last)
    return ["<details><summary>In the final text</summary>", "", code(file_name(s.module["stages"][last]["file"])), "",
            *block(_commented(lines), "hlo"), "", "</details>", ""] if lines else []


def _stage_name(s: Subject, index: int) -> str:
    stage = s.module["stages"][index]
    step = f"step {stage['step']}, " if stage["step"] is not None else ""
    pipeline = f" of pipeline {code(stage['pipeline'])}" if stage["pipeline"] else ""
    return f"{step}{code(stage['pass'] or stage['label'])}{pipeline}"


def _show(s: Subject, stage: int | None) -> list[Line]:
    return s.excerpt(stage, s.sample.get("history_id") or s.sample["id"]) if stage is not None else []


def _change(s: Subject, stage: int | None) -> list[str]:
    """What one stage did to the instructions that take part in the copy."""
    before, after = _show(s, stage - 1) if stage else [], _show(s, stage)
    if not before and not after:
        return []
    old, new = {(line.computation, line.text) for line in before}, {(line.computation, line.text) for line in after}
    shown = [("-", line) for line in before if (line.computation, line.text) not in new]
    shown += [("+" if (line.computation, line.text) not in old else " ", line) for line in after]
    # A parameter that stays as it is says nothing here.
    computations = dict.fromkeys(line.computation for sign, line in shown if sign != " " or line.role != "parameter")
    lines = []
    for computation in computations:
        lines.append(f"  // in {computation}")
        lines += [f"{sign} {line.text.strip()}" for sign, line in shown if line.computation == computation]
    return [*block(lines, "diff"), ""]


def _commented(lines: list[Line]) -> list[str]:
    """Instructions, with the computation in which they stand as comments."""
    shown, computation = [], None
    for line in lines:
        if line.computation != computation:
            computation = line.computation
            shown.append(f"// in {computation}")
        shown.append(line.text.strip())
    return shown
