"""What a module page shows: the verdict, the memory, the copies by pattern, the stages."""
from __future__ import annotations

import re

from django.urls import reverse

from triage.dumps.models import Dump
from triage.engine.cost import human_bytes
from triage.engine.sentences import percent
from triage.replays.page import replay_context
from triage.replays.runs import with_replays
from triage.viewer.options import Options
from triage.viewer.stages import groups, title

#: Patterns that are shown, copies of one pattern and of all that are listed; all of them are in report.json.
MAX_PATTERNS, MAX_COPIES, MAX_ROWS = 50, 200, 1000
#: Parameters of one copy that are named, damaged files that are listed, flags.
MAX_NAMES, MAX_FILES, MAX_FLAGS = 8, 50, 500
#: Different source lines of one pattern that are named.
MAX_SOURCES = 4
_MEMORY_FILE = re.compile(r"-((?:buffer|memory|live)[\w-]*)\.txt$")
KINDS = {"transpose": "transposed", "copy": "copied", "convert": "converted", "gather": "all-gathered",
         "concat": "joined", "computed": "computed on"}
WHERE = {"before_loop": "before the loop", "in_loop": "in every iteration of", "entry": "outside any loop"}
ORIGINS = {"compiler": "the compiler's own", "program": "in the program as it was written",
           "unknown": "unknown: the program's own text is not in this dump"}


def module_context(dump: Dump, report: dict) -> dict:
    report = with_replays(dump, report)
    # A dump without passes shows those of its recompile; what it holds itself stays what it is.
    own = report.get("uploaded_stages") or report["stages"]
    copies = {copy["id"]: copy for copy in report["copies"]}
    stages = report["stages"]
    patterns, room = [], MAX_ROWS
    for pattern in report["patterns"][:MAX_PATTERNS]:
        patterns.append(_pattern(dump, report, pattern, copies, min(MAX_COPIES, room)))
        room -= len(patterns[-1]["listed"])
    unparsed, flags = report["files"]["unparsed"], list(report["flags"].items())
    return {
        "dump": dump, "module": report, "patterns": patterns,
        "more_patterns": max(0, len(report["patterns"]) - MAX_PATTERNS),
        "unparsed": unparsed[:MAX_FILES], "more_unparsed": max(0, len(unparsed) - MAX_FILES),
        "flags": flags[:MAX_FLAGS], "more_flags": max(0, len(flags) - MAX_FLAGS), "figures": _figures(report),
        "groups": groups(stages), "chart": _chart(report), "layouts_from": _layouts_from(stages),
        "largest_step": max((row["size"] for group in groups(stages) for row in group.get("rows", ())), default=0),
        "unchanged": sum(1 for stage in stages if not stage["changed"]),
        "first": stages[0], "last": own[-1], "several_stages": len(own) > 1,
        "compare": reverse("stage", args=[dump.id, report["index"], len(own) - 1]) + Options(len(own) - 1, 0).change(),
        **replay_context(dump, report)}


def _pattern(dump: Dump, report: dict, pattern: dict, copies: dict[str, dict], room: int) -> dict:
    mine = [copies[identity] for identity in pattern["copies"]]
    first = max(mine, key=lambda copy: copy["bytes"])
    shapes = list(dict.fromkeys((copy["from_shape"], copy["to_shape"]) for copy in mine))
    sources = _sources(mine)
    total = report["totals"]["copied_bytes"]
    return {
        **pattern, "first": first, "kind_words": KINDS.get(pattern["kind"], pattern["kind"]),
        "where_words": WHERE[pattern["where"]], "origin_words": ORIGINS.get(pattern["origin"], pattern["origin"]),
        "shape_pairs": shapes[:MAX_SOURCES], "more_shapes": max(0, len(shapes) - MAX_SOURCES),
        "sources": sources[:MAX_SOURCES],
        "more_sources": max(0, len(sources) - MAX_SOURCES), "several_shapes": len(shapes) > 1,
        "listed": [_copy(dump, report, copy) for copy in mine[:room]],
        "more_copies": max(0, len(mine) - room),
        "other_address": _copy(dump, report, first)["other_address"],
        "peak": _peak([copy["live_at_peak"] for copy in mine]),
        "share": percent(pattern["bytes"] / total) if total else ""}


def _copy(dump: Dump, report: dict, copy: dict) -> dict:
    last = len(report.get("uploaded_stages") or report["stages"]) - 1
    address = reverse("stage", args=[dump.id, report["index"], last])

    def at(place: dict | None) -> str:
        """Address of an instruction's line in the last stage."""
        if not place or not place.get("computation"):
            return ""
        options = Options(last, last - 1, computation=place["computation"], instruction=place["instruction"])
        return address + options.change()

    names = copy["parameter_names"]
    return {**copy, "named": names[:MAX_NAMES], "more_names": max(0, len(names) - MAX_NAMES),
            "address": at(copy), "consumer_address": at(copy["consumer"]),
            "other_address": at(copy["other_user"])}


def _sources(copies: list[dict]) -> list[dict]:
    """Where the program asked for this: op_name, file and the lines of it, each pair once."""
    lines: dict[tuple, set[int]] = {}
    for source in (copy["source"] for copy in copies if copy["source"]):
        lines.setdefault((source["op_name"], source["file"]), set()).update([source["line"]] if source["line"] else [])
    return [{"op_name": op_name, "file": file, "lines": ", ".join(map(str, sorted(numbers)))}
            for (op_name, file), numbers in lines.items()]


def _peak(live: list[bool | None]) -> str:
    known = [value for value in live if value is not None]
    if not known:
        return ""
    return "all of them" if all(known) else "none of them" if not any(known) else f"{sum(known)} of {len(known)}"


def _figures(report: dict) -> list[dict]:
    """The numbers under the verdict: label, bytes, a remark, the file they come from."""
    memory, totals = report["memory"], report["totals"]
    result = [{"label": "copied before a loop", "bytes": totals["hoisted_bytes"],
               "strong": bool(totals["hoisted_bytes"])}]
    elsewhere = totals["copied_bytes"] - totals["hoisted_bytes"]
    if elsewhere:
        result.append({"label": "copied in all", "bytes": totals["copied_bytes"],
                       "remark": f"{human_bytes(elsewhere)} in loops or outside any"})
    result.append({"label": "parameters", "bytes": totals["parameter_bytes"],
                   "remark": f"{len(report['parameters']):,}"})
    share = memory.get("share_of_temp")
    result += [
        {"label": "temporary memory", "bytes": memory.get("temp_bytes"), "source": memory.get("source"),
         "remark": f"{percent(share)} of it copies" if share else ""},
        {"label": "arguments", "bytes": memory.get("argument_bytes"), "source": memory.get("source")},
        {"label": "peak", "bytes": memory.get("peak_bytes"),
         "remark": f"{percent(memory['share_of_peak'])} of it copies" if memory.get("share_of_peak") else "",
         "source": memory.get("peak_source") or memory.get("source")}]
    for figure in result:
        if source := figure.get("source"):
            kind = _MEMORY_FILE.search(source)
            figure["source_kind"] = kind[1] if kind else source
    return [figure for figure in result if figure["bytes"] is not None]


def _layouts_from(stages: list[dict]) -> dict | None:
    """The stage whose pass gave every value its layout."""
    return next((stage for stage in stages if stage["layouts_assigned"]), None)


def _chart(report: dict) -> list[dict]:
    """One row per stage: bytes by where they are written, and how many copies it introduced. Empty without copies."""
    if len(report["stages"]) < 2 or not any(stage["copied_bytes"] for stage in report["stages"]):
        return []
    introduced: dict[int, list[str]] = {}
    for copy in report["copies"]:
        if copy["stage"] is not None and copy["introduced_by"]:
            introduced.setdefault(copy["stage"], []).append(copy["introduced_by"]["pass"])
    return [{"stage": stage, "title": title(stage), "before": stage["hoisted_bytes"], "in": stage["in_loop_bytes"],
             "entry": max(0, stage["copied_bytes"] - stage["hoisted_bytes"] - stage["in_loop_bytes"]),
             "introduced": len(introduced.get(stage["index"], ())),
             "by": ", ".join(dict.fromkeys(introduced.get(stage["index"], ())))} for stage in report["stages"]]
