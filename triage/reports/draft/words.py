"""The words of a draft that several sections use."""
from __future__ import annotations

from triage.engine.cost import human_bytes
from triage.engine.history import CONFIRMED
from triage.engine.printable import one_line
from triage.reports.draft.document import PROGRAM, Subject
from triage.reports.markdown import code, sentence

VERBS = {"transpose": "transposed", "copy": "copied", "convert": "converted", "gather": "all-gathered", "concat": "joined",
         "computed": "recomputed"}
WHERE = {"before_loop": "before the loop", "in_loop": "in every loop iteration", "entry": "outside any loop"}


def title(subject: Subject) -> str:
    """`[GPU] 24.0 MiB of parameters transposed before the loop by layout-assignment (trigger: ...)`, plain text."""
    module, pattern = subject.module, subject.pattern
    platform = f"[{module['platform'].upper()}] " if module["platform"] else ""
    what = f"{platform}{human_bytes(pattern['bytes'])} of parameters {VERBS[pattern['kind']]} {WHERE[pattern['where']]}"
    if subject.address == PROGRAM:
        place = _line(subject.sample["source"])
        return one_line(f"{what}, in the program itself{f' ({place})' if place else ''}")
    by = f" by {pattern['introduced_by']}" if pattern["introduced_by"] else ""
    return one_line(f"{what}{by}{_trigger(subject)}")


def _trigger(subject: Subject) -> str:
    if not subject.pattern["trigger"]:
        return ""
    return f" ({'' if is_confirmed(subject) else 'suspected '}trigger: {subject.pattern['trigger']})"


def is_confirmed(subject: Subject) -> bool:
    """Whether the trigger is a fact: with that pass disabled none of these copies is made."""
    return all(copy["trigger"] and copy["trigger"]["confidence"] == CONFIRMED for copy in subject.copies)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def file_name(path: str | None) -> str:
    """Without the directory, which is the user's own business."""
    return (path or "").rsplit("/", 1)[-1]


def _line(source: dict | None) -> str:
    if not source or not source.get("file"):
        return ""
    return file_name(source["file"]) + (f":{source['line']}" if source.get("line") else "")


def source_place(source: dict | None) -> str:
    """`models.py:45` as code; "" where the dump does not say it."""
    return code(_line(source)) if _line(source) else ""


def amount(size: int) -> str:
    """`24.0 MiB (25,165,824 bytes)`."""
    return f"{human_bytes(size)} ({size:,} bytes)" if size >= 1024 else f"{size} bytes"


def change(found: dict) -> str:
    """What was changed for a replay, or in a measured remedy, as Markdown: the exact flag where it is one."""
    return code(found["flag"]) if found["flag"] else sentence(found["says"])
