"""Markdown out of text that comes from a dump: nothing in it becomes markup."""
from __future__ import annotations

import re
from collections.abc import Iterable

from triage.engine.printable import one_line, printable

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~@$!&])")


def plain(text: str) -> str:
    """Text that Markdown and GitHub show as it is: no emphasis, links, mentions or HTML."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def code(text: str, limit: int = 300) -> str:
    """A code span; longer runs of backticks around it than in it."""
    text = one_line(text)
    text = text if len(text) <= limit else text[:limit] + "..."
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def sentence(text: str) -> str:
    """A sentence of the engine: its `backquoted` names become code spans, the rest plain text."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return plain(text)
    return "".join(plain(part) if i % 2 == 0 else code(part) for i, part in enumerate(parts))


def block(lines: Iterable[str], language: str = "") -> list[str]:
    """A fenced block, its fence longer than any run of backticks inside."""
    body = [printable(line) for line in lines]
    longest = max((len(run) for line in body for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *body, fence]


def table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    """A table; cells are Markdown already, only their pipes are escaped."""
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in cells) + " |"
    return [line(head), "|" + " --- |" * len(head), *(line(row) for row in rows)]
