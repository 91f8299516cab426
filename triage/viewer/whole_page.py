"""A window of a stage's whole text."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from triage.engine.analysis import Chunk, StageText
from triage.viewer.lines import Beginning
from triage.viewer.options import Options
from triage.viewer.rows import Marks, plain_lines
from triage.viewer.texts import Texts


def whole_context(record: StageText, texts: Texts, options: Options, max_rows: int, max_names: int) -> dict:
    """`max_rows` lines, from the one that `options` asks for."""
    total = sum(chunk.lines for chunk in record.chunks)
    start = options.start or (options.at - 20 if options.at > max_rows - 20 else 1)
    start = max(1, min(start, total))
    window = [(line, chunk) for line, chunk in zip(first_lines(record.chunks), record.chunks)
              if line + chunk.lines > start and line < start + max_rows]
    texts.load(chunk.key for _, chunk in window)
    shown: list[Beginning] = []
    names: list[str] = []
    for line, chunk in window:
        skip = max(0, start - line)
        count = min(chunk.lines - skip, max_rows - len(shown))
        here = texts.window(chunk, skip, count)
        shown += here + [Beginning("", 0)] * (count - len(here))
        names += [chunk.name] * count
    after = start + len(shown)
    return {"whole": plain_lines(shown, start, Marks(record.marks), names, options.meta), "whole_start": start,
            "whole_end": after - 1, "whole_next": after if after <= total else 0,
            "whole_previous": max(1, start - max_rows) if start > 1 else 0,
            "computations": _places(record.chunks)[:max_names]}


def _places(chunks: Sequence[Chunk]) -> list[tuple[str, int]]:
    """(name, line) of the computations, for a list to jump to."""
    return [(chunk.name, line) for chunk, line in zip(chunks, first_lines(chunks))][1:]


def first_lines(chunks: Sequence[Chunk]) -> list[int]:
    """The line each chunk begins at, and the one after the last."""
    return list(accumulate((chunk.lines for chunk in chunks), initial=1))
