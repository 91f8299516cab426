"""What the address of a stage page asks for: every state of the page is in it."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

#: Field -> name in the address.
_NAMES = {"full": "full", "meta": "meta", "base": "base", "computation": "c", "instruction": "i", "at": "at",
          "start": "from", "show": "show"}
#: Characters of a name in an address. A longer one, which no compiler writes, leads to the whole page.
MAX_NAME = 1000


@dataclass(frozen=True)
class Options:
    stage: int
    base: int | None            # the stage compared with; None for the first stage
    full: bool = False          # the whole text instead of a diff
    meta: bool = False          # metadata, backend_config and renumbering too
    computation: str = ""       # only this one, all of its lines
    instruction: str = ""       # look up its line and go there
    at: int = 0                 # a line (from 1) that must be on the page
    start: int = 0              # the first computation, or row of one, to show
    show: int = 0               # one line (from 1) on its own, nothing left out

    @classmethod
    def of(cls, query: Mapping[str, str], stage: int, stages: int) -> Options:
        """Reads a query string; what makes no sense counts as not said."""
        base = _number(query.get("base"), -1)
        if not 0 <= base < stages:
            base = stage - 1
        return cls(stage, base if base >= 0 else None, query.get("full") == "1", query.get("meta") == "1",
                   query.get("c", "")[:MAX_NAME], query.get("i", "")[:MAX_NAME], _number(query.get("at")),
                   _number(query.get("from")), _number(query.get("show")))

    def change(self, **changes) -> str:
        """The query string for the page with these changes; "?" alone where nothing is left to say."""
        other = replace(self, **changes)
        pairs = []
        for field, name in _NAMES.items():
            value = getattr(other, field)
            if field == "base":
                value = "" if value is None or value == self.stage - 1 else str(value)
            if isinstance(value, str):
                value = value[:MAX_NAME]
            if value not in (False, 0, ""):
                pairs.append((name, "1" if value is True else value))
        return "?" + urlencode(pairs)


def _number(text: str | None, default: int = 0) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else default
