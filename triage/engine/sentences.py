"""Findings in plain sentences. HLO names stand in backticks; every number is one of the report's."""
from __future__ import annotations

from collections import defaultdict

from .copies import BEFORE_LOOP, ENTRY, IN_LOOP, StageCopies
from .cost import human_bytes
from .history import CONFIRMED, REFUTED

_ORDER = {BEFORE_LOOP: 0, IN_LOOP: 1, ENTRY: 2}
CUT_NOTE = "The calls of this module are nested or repeated so often that not all of its copies are counted."


def plural(count: int, noun: str) -> str:
    """`1 parameter`, `12 parameters`, `2 copies`, `3 passes`."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun[:-1] + 'ies' if noun.endswith('y') else noun + 'es' if noun.endswith('s') else noun + 's'}"


def percent(share: float) -> str:
    """`92%`; `99.9%` where rounding would claim all of it."""
    return f"{share:.0%}" if share < 0.995 or share == 1 else f"{min(share, 0.999):.1%}"


def patterns(copies: list[dict]) -> list[dict]:
    """Copies grouped by what happened to them: before the loop first, then by bytes."""
    groups: dict[tuple, list[dict]] = defaultdict(list)
    for copy in copies:
        groups[_what(copy) + (copy["origin"], _trigger(copy))].append(copy)
    ordered = sorted(groups.values(), key=lambda g: (_ORDER[g[0]["where"]], -sum(c["bytes"] for c in g)))
    return [_pattern(group) for group in ordered]


def _what(copy: dict) -> tuple:
    run = copy["introduced_by"]
    return (copy["kind"], copy["where"], copy["loop"], copy["memory_space"], run["pass"] if run else None,
            tuple(copy["between"] or ()))


def _trigger(copy: dict) -> str | None:
    trigger = copy["trigger"]
    return trigger["pass"] if trigger and trigger["confidence"] != REFUTED else None


def _pattern(group: list[dict]) -> dict:
    first = max(group, key=lambda copy: copy["bytes"])
    return {"kind": first["kind"], "where": first["where"], "loop": first["loop"], "count": len(group),
            "bytes": sum(copy["bytes"] for copy in group), "copies": [copy["id"] for copy in group],
            "parameters": sorted({number for copy in group for number in copy["parameters"]}),
            "shapes": list(dict.fromkeys(copy["from_shape"] for copy in group)),
            "to_shapes": list(dict.fromkeys(copy["to_shape"] for copy in group)),
            "introduced_by": first["introduced_by"]["pass"] if first["introduced_by"] else None,
            "between": first["between"], "trigger": _trigger(first), "origin": first["origin"],
            "reason": first["reason"], "sentence": sentence(group)}


def sentence(group: list[dict]) -> str:
    """What happened to a group of alike copies: "12 parameters, 24.0 MiB, transposed before the loop `while.12`, ...\""""
    first = max(group, key=lambda copy: copy["bytes"])
    numbers = {number for copy in group for number in copy["parameters"]}
    parts = [plural(len(numbers), "parameter"), human_bytes(sum(copy["bytes"] for copy in group)),
             f"{_verb(group)}{_space(group)} {_place(first)}"]
    return ", ".join(parts + _causes(first, group))


def _verb(group: list[dict]) -> str:
    first = group[0]
    if first["kind"] == "convert":
        types = {(copy["from_shape"].split("[")[0], copy["to_shape"].split("[")[0]) for copy in group}
        return "converted from {} to {}".format(*types.pop()) if len(types) == 1 else "converted"
    return {"transpose": "transposed", "copy": "copied", "gather": "all-gathered", "concat": "joined",
            "computed": "computed on"}[first["kind"]]


def _space(group: list[dict]) -> str:
    """Copies that do not lie in the device's main memory say so: they cost none of it."""
    spaces = {copy["memory_space"] for copy in group}
    return f" into memory space S({spaces.pop()})" if len(spaces) == 1 and 0 not in spaces else ""


def _place(copy: dict) -> str:
    if copy["where"] == BEFORE_LOOP:
        return f"before the loop `{copy['loop']}`"
    return f"in every iteration of `{copy['loop']}`" if copy["where"] == IN_LOOP else "outside any loop"


def _causes(first: dict, group: list[dict]) -> list[str]:
    if first["introduced_by"]:
        causes = [f"introduced by `{first['introduced_by']['pass']}`"]
    elif first["between"]:
        causes = ["introduced between `{}` and `{}`".format(*first["between"])]
    else:       # the first text has it: the program's own only if that is what the program came as
        return ["already in the program" + _line(first)] if first["origin"] == "program" else []
    triggers = {_trigger(copy) for copy in group} - {None}
    if len(triggers) == 1:
        sure = all(copy["trigger"]["confidence"] == CONFIRMED for copy in group if _trigger(copy))
        causes.append(f"{'' if sure else 'probably '}because of `{triggers.pop()}`")
    elif first["reason"]:
        causes.append(f"because {first['reason']}")
    return causes


def _line(copy: dict) -> str:
    source = copy["source"] or {}
    if source.get("file") and source.get("line"):
        return f" ({source['file'].rsplit('/', 1)[-1]}:{source['line']})"
    return ""


def verdict(copies: list[dict], min_bytes: int, memory: dict, cut: bool = False) -> str:
    """One or two sentences on a module, numbers first. `cut`: there may be copies that were not seen."""
    groups: dict[tuple, list[dict]] = defaultdict(list)
    for copy in copies:
        groups[_what(copy)].append(copy)
    ordered = sorted(groups.values(), key=lambda g: (_ORDER[g[0]["where"]], -sum(c["bytes"] for c in g)))
    told = [sentence(group)[:1].upper() + sentence(group)[1:] + "." for group in ordered[:2]]
    if len(ordered) > 2:
        rest = [copy for group in ordered[2:] for copy in group]
        told.append(f"{plural(len(rest), 'smaller copy')}, {human_bytes(sum(c['bytes'] for c in rest))}, "
                    f"in {plural(len(ordered) - 2, 'other pattern')}.")
    if not any(copy["where"] == BEFORE_LOOP for copy in copies):
        told.insert(0, "As far as the calls of this module were followed, no parameter is copied before a loop." if cut else
                    "No parameter is copied before a loop.")
        if not copies and not cut:
            told.append(f"Nothing of {human_bytes(min_bytes)} or more is copied elsewhere either.")
    elif memory.get("share_of_temp"):
        told.insert(1, f"That is {percent(memory['share_of_temp'])} of the temporary memory "
                       f"({human_bytes(memory['temp_bytes'])}).")
    return " ".join(told)


def side_notes(last: StageCopies) -> list[str]:
    """What was told apart from parameter copies, so that nobody misses it in the sums."""
    notes = []
    if last.cut:
        notes.append(CUT_NOTE)
    if last.state_count == 1:
        notes.append(f"1 copy of an input ({human_bytes(last.state_bytes)}) only starts state that the loop overwrites; it is "
                     f"not counted. Donating that argument (donate_argnums) saves it.")
    elif last.state_count:
        notes.append(f"{last.state_count} copies of inputs ({human_bytes(last.state_bytes)}) only start state that the loop "
                     f"overwrites; they are not counted. Donating those arguments (donate_argnums) saves them.")
    if last.prefetched_count:
        notes.append(f"copy-start moves {plural(last.prefetched_count, 'parameter')} ({human_bytes(last.prefetched_bytes)}) "
                     f"whole into another memory space; that takes no further main memory and is not counted.")
    return notes
