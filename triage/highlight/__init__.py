"""HLO text as coloured HTML. `line_html` is what pages use."""
from __future__ import annotations

from functools import lru_cache
from typing import Iterator

from .formatter import css_class, span
from .lexer import HloLexer

_LEXER = HloLexer()


#: Longest text whose tokens are kept: those of a long line may take a hundred times its size.
MAX_KEPT = 400


def _tokens(text: str) -> tuple[tuple[str, str], ...]:
    return _kept(text) if len(text) <= MAX_KEPT else _read(text)


def _read(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((css_class(token), part) for _, token, part in _LEXER.get_tokens_unprocessed(text))


_kept = lru_cache(maxsize=5_000)(_read)


def line_html(text: str, changed: tuple[tuple[int, int], ...] = ()) -> str:
    """`text` (part of one line) as escaped HTML; the ranges in `changed`, sorted and apart, are inside `<b>`."""
    if not changed:
        return "".join(span(name, part) for name, part in _tokens(text))
    out, inside = [], False
    for name, part, is_changed in _split(text, changed):
        if is_changed != inside:
            out.append("<b>" if is_changed else "</b>")
            inside = is_changed
        out.append(span(name, part))
    return "".join(out) + ("</b>" if inside else "")


def _split(text: str, changed: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, str, bool]]:
    """Tokens cut where a changed range begins or ends."""
    edges = [edge for pair in changed for edge in pair]
    position = passed = 0
    for name, part in _tokens(text):
        start, end = position, position + len(part)
        while start < end:
            while passed < len(edges) and edges[passed] <= start:
                passed += 1
            stop = min(end, edges[passed]) if passed < len(edges) else end
            yield name, text[start:stop], passed % 2 == 1
            start = stop
        position = end
