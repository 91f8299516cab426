"""A few lines of a stage's text around one copy: the parameter, the copy, what reads it."""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from triage.engine import lines as engine
from triage.engine.analysis import StageText
from triage.engine.ir import split_top

MAX_LINE = 400          # characters of one line; the rest is cut with "..."
MAX_LINES = 12
_NAME = re.compile(r"\s*(?:ROOT\s+)?%?([^\s=]+)\s+=\s")
#: Attributes that say nothing about a copy and are long.
_NOISE = ("metadata=", "backend_config=", "frontend_attributes=", "sharding=", "origin=", "statistics=")

Texts = Callable[[list[str]], dict[str, str]]       # chunk keys -> their texts, those too large to be searched left out


@dataclass(frozen=True)
class Line:
    computation: str
    role: str           # "parameter", "copy" or "consumer"; "" for a remark
    text: str           # trimmed


def copy_lines(stage: StageText, copy_id: str, texts: Texts) -> list[Line]:
    """The instructions of this stage that take part in one copy of the report, in the order of the text."""
    roles: dict[tuple[str, str], str] = {}
    for mark in stage.marks:
        if copy_id in mark.copies:
            roles.setdefault((mark.computation, mark.instruction), mark.role)
    wanted = {computation for computation, _ in roles}
    chunks = [chunk for chunk in stage.chunks if chunk.name in wanted]
    found = texts([chunk.key for chunk in chunks])
    lines = []
    for chunk in chunks:
        if chunk.key not in found:
            lines.append(Line(chunk.name, "", "// (not shown: the text of this computation is too large to be searched)"))
            continue
        for line in found[chunk.key].split("\n"):
            match = _NAME.match(line)
            if match and (chunk.name, match[1]) in roles:
                lines.append(Line(chunk.name, roles[chunk.name, match[1]], trim(line)))
    left = len(lines) - MAX_LINES
    return lines if left <= 0 else [*lines[:MAX_LINES], Line(lines[-1].computation, "", f"// ({left:,} more lines left out)")]


def trim(line: str) -> str:
    """An instruction without metadata and configuration, cut to MAX_LINE."""
    kept = [part for part in split_top(line[:engine.MAX_LINE]) if not part.strip().startswith(_NOISE)]
    text = ",".join(kept).rstrip()
    return text if len(text) <= MAX_LINE else text[:MAX_LINE] + " ..."
