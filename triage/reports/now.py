"""What to do now, for whoever runs the model: what was measured to help, as code, what it costs, how to check it."""
from __future__ import annotations

from triage.engine.sentences import plural
from triage.reports.draft.document import PROGRAM, Draft, Section, Subject
from triage.reports.draft.measured import costs, orders, remedy_row
from triage.reports.draft.program import FIXES
from triage.reports.draft.words import amount, capital, change, source_place
from triage.reports.markdown import block, code, plain, sentence

#: Remedies that leave the compiler as it is come first where they save nearly what the best one saves.
NEARLY = 0.9
MAX_OTHERS = 3
LAYOUTS = ("auto_layout", "store_transposed")


def what_to_do(module: dict) -> Draft | None:
    """None for a module whose copies nothing was found against: there is nothing to do but to report them."""
    if not module["patterns"]:
        return None
    subject = Subject(module, 0, lambda stage, copy: [], "")
    ranked = _ranked(module)
    sections = [Section("verdict", "", sentence(module["verdict"])), Section("program", "In the program", _program(module))]
    if ranked:
        best, *others = ranked
        sections += [Section("do", "Do this", "\n".join(_lines(subject, best))),
                     Section("cost", "What it costs", "\n".join(_cost(subject, best))),
                     Section("check", "Check that it worked", "\n".join(_check(module, best))),
                     Section("others", "Or else", "\n".join(_others(others)))]
    else:
        sections.append(Section("do", "What to try", "\n".join(_untried(module))))
    name = module["name"].removeprefix("jit_").lstrip("_") or module["name"]
    return Draft(f"What to do about {name}", tuple(found for found in sections if found.text), "user")


def _ranked(module: dict) -> list[dict]:
    """Measured remedies that help and have lines to write, the one to use first."""
    found = [remedy for remedy in module["remedies"]
             if remedy["verified"] and remedy.get("helps") and remedy["recipe"] and remedy["recipe"]["code"]]
    if not found:
        return []
    baseline = module["replays"][0]

    def saved(remedy: dict) -> int:
        measure = "temp_bytes" if remedy["temp_bytes"] is not None and baseline["temp_bytes"] is not None else "copied_bytes"
        return baseline[measure] - remedy[measure]
    most = max(map(saved, found))
    gentle = [remedy for remedy in found if remedy["action"] in LAYOUTS and saved(remedy) >= NEARLY * most]
    return sorted(found, key=lambda remedy: (remedy not in gentle, -saved(remedy)))


def _program(module: dict) -> str:
    """Where the program's own lines make copies: those, and the fix."""
    lines = []
    for number, pattern in enumerate(module["patterns"]):
        subject = Subject(module, number, lambda stage, copy: [], "")
        if subject.address == PROGRAM:
            where = source_place(subject.sample["source"])
            told = sentence(capital(pattern["sentence"]))
            lines.append(f"* {told}{f' ({where})' if where else ''}. {FIXES[pattern['kind']]}")
    return "\n".join(lines)


def _lines(s: Subject, remedy: dict) -> list[str]:
    written = remedy["recipe"]["code"].strip().split("\n")
    return [f"{capital(change(remedy))}: {_from_to(s.module, remedy)}, measured by compiling this module again.", "",
            *block(written, "python"), *(["", *found] if (found := orders(remedy, _parameters(s.module))) else [])]


def _parameters(module: dict) -> set[int]:
    return {number for pattern in module["patterns"] for number in pattern["parameters"]}


def _from_to(module: dict, remedy: dict) -> str:
    before, after = module["replays"][0], remedy
    if after["temp_bytes"] is None or before["temp_bytes"] is None:
        return f"copies go from {amount(before['copied_bytes'])} to {amount(after['copied_bytes'])}"
    return f"temporary memory goes from {amount(before['temp_bytes'])} to {amount(after['temp_bytes'])}"


def _cost(s: Subject, remedy: dict) -> list[str]:
    row = remedy_row(s, remedy)
    lines = [f"* {capital(plain(cost))}." for cost in costs(row, s.module["replays"][0])]
    if remedy["action"] == "auto_layout":
        lines += ["* The parameters have to be laid out once, after loading; while that runs, each is there twice.",
                  "* Whatever else reads the same arrays gets them in the new layout, too: other jitted functions copy them "
                  "unless they are compiled with the same layouts."]
    elif remedy["action"] == "store_transposed":
        lines.append("* Checkpoints, and code that reads these arrays elsewhere, see them with their axes in the new order.")
    elif "XLA_FLAGS" in remedy["recipe"]["code"]:
        lines.append("* A flag in `XLA_FLAGS` counts for everything that the process compiles.")
    if row.get("unsure"):
        lines.append("* It is not known whether programs stay sound without this pass: compare the results.")
    return [*lines, "* The time of a step was not measured: measure it before and after."]


def _check(module: dict, remedy: dict) -> list[str]:
    before, after = module["replays"][0], remedy
    if after["temp_bytes"] is None or before["temp_bytes"] is None:
        said = f"{before['copied_bytes']:,} bytes copied now, {after['copied_bytes']:,} with it"
        return block([f'XLA_FLAGS="--xla_dump_to=DIR" python ...      # {said}', "python manage.py triage DIR"], "sh")
    said = f"{before['temp_bytes']:,} now, {after['temp_bytes']:,} with it"
    return block(["compiled = jax.jit(step).lower(*args).compile()      # with the change above",
                  f"print(compiled.memory_analysis().temp_size_in_bytes)  # {said}"], "python")


def _others(others: list[dict]) -> list[str]:
    lines = []
    for remedy in others[:MAX_OTHERS]:
        after = f"{remedy['temp_bytes']:,} temp bytes" if remedy["temp_bytes"] is not None else \
            f"{remedy['copied_bytes']:,} bytes copied"
        lines.append(f"* {capital(change(remedy))}: {after}.")
    if len(others) > MAX_OTHERS:
        lines.append(f"* and {plural(len(others) - MAX_OTHERS, 'more change')} that helped, on the module's page.")
    return lines


def _untried(module: dict) -> list[str]:
    """Without a measurement: candidates, called that."""
    if module["replays"]:
        if module["replays"][0]["status"] != "ok":
            return [f"The module could not be compiled again: {code(module['replays'][0]['message'])}"]
        tried = len(module["replays"]) - 1
        return [f"None of {plural(tried, 'change')} that a recompile tried makes this module need clearly less memory."]
    lines = ["Nothing was measured yet: \"Verify\" on the module's page compiles the module again, "
             "with one thing changed at a time."]
    found = [remedy for remedy in module["remedies"] if remedy["certain"]]
    if found:
        lines += ["", "Candidates, from what is known of the passes that made these copies:", ""]
    for remedy in found[:MAX_OTHERS]:
        flag = f" ({code(remedy['flag'])})" if remedy["flag"] else ""
        lines.append(f"* {sentence(capital(remedy['sentence']))}{flag}: {sentence(remedy['reason'])}.")
    return lines
