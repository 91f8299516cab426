"""One line of a stage on its own: every attribute, what it reads, what reads it."""
from __future__ import annotations

import json
from dataclasses import dataclass

from django.utils.safestring import SafeString, mark_safe

from triage.engine.analysis import Chunk, StageText
from triage.engine.ir import split_top
from triage.engine.lines import defined_name, keys
from triage.highlight import line_html
from triage.viewer.lines import Beginning
from triage.viewer.options import Options
from triage.viewer.rows import Badge, Marks
from triage.viewer.texts import Texts

#: Characters of one attribute that are shown; the whole text can be downloaded.
MAX_PART = 20_000
#: Parts of a line, and neighbours of an instruction, that are listed.
MAX_PARTS = 200


@dataclass(frozen=True)
class Neighbour:
    name: str
    line: int       # 0 where this computation does not define it
    html: SafeString | str = ""


def instruction_context(record: StageText, texts: Texts, options: Options) -> dict:
    """Context for the line `options.show`; {"shown": None} where the stage has no such line."""
    first = 1
    for chunk in record.chunks:
        position = options.show - first
        if 0 <= position < chunk.lines:
            if here := texts.window(chunk, position, 1):
                return {"shown": _shown(record, texts, chunk, here[0], first, position)}
        first += chunk.lines
    return {"shown": None}


def _shown(record: StageText, texts: Texts, chunk: Chunk, line: Beginning, first: int, position: int) -> dict:
    name = defined_name(line.text)
    names = [other for other in dict.fromkeys(keys(line.text).names) if other != name]
    # The neighbours are looked up in the whole computation; in one too large for a page they are not.
    readable = texts.readable(chunk)
    lines = texts.lines(chunk) if readable else []
    places = {other: first + k for k, text in enumerate(lines) if (other := defined_name(text))}
    users = [defined_name(text) for text in lines if name and name in text and name in keys(text).names[1:]]
    badges: list[Badge] = Marks(record.marks).of(chunk.name, line.text)
    parts = split_top(line.text)
    return {
        "name": name, "line": first + position, "computation": chunk.name, "characters": len(line.text) + line.left_out,
        "badges": badges, "left_out": line.left_out, "alone": not readable,
        "parts": [_part(text) for text in parts[:MAX_PARTS]], "more_parts": len(parts) > MAX_PARTS,
        "operands": [Neighbour(other, places.get(other, 0)) for other in names[:MAX_PARTS]],
        "users": [Neighbour(other, places[other]) for other in dict.fromkeys(users) if other in places][:MAX_PARTS]}


def _part(text: str) -> SafeString:
    # The blank keeps a line from being read as the first one of a computation.
    text = _pretty(text.strip())
    cut = len(text) - MAX_PART
    html = "\n".join(line_html(" " + line)[1:] for line in text[:MAX_PART].split("\n"))
    if cut > 0:
        html += f'<span class="gap">⋯ {cut:,} characters</span>'
    return mark_safe(html)  # noqa: S308 - line_html escapes every token's text


def _pretty(text: str) -> str:
    """A backend_config that is JSON, indented; anything else as it is."""
    key, equals, value = text.partition("=")
    # Indenting multiplies what is nested deeply: only as much as is shown anyway.
    if equals and len(value) <= MAX_PART and value.startswith("{") and key.strip() in ("backend_config", "frontend_attributes"):
        try:
            return f"{key}={json.dumps(json.loads(value), indent=1, ensure_ascii=False)}"
        except (ValueError, RecursionError):
            return text
    return text
