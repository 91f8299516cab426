"""The address that opens GitHub's new-issue form with a draft in it."""
from __future__ import annotations

from urllib.parse import quote, urlencode

NEW_ISSUE = "https://github.com/openxla/xla/issues/new"
MAX_URL = 7500          # characters; GitHub answers longer addresses with an error
CUT = "\n\n*(The draft was cut here to fit into a link: paste the full text instead.)*\n"


def prefilled(title: str, body: str) -> tuple[str, bool]:
    """(address, whether the body was cut). Cut between lines where that is possible, and said in the body."""
    address = _address(title, body)
    if len(address) <= MAX_URL:
        return address, False
    low, high = 0, len(body)
    while low < high:       # the longest beginning that fits
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(_address(title, body[:middle] + CUT)) <= MAX_URL else (low, middle - 1)
    kept = body[:low]
    line_end = kept.rfind("\n")
    return _address(title, _close_fence(kept[:line_end] if line_end > low // 2 else kept) + CUT), True


def _close_fence(text: str) -> str:
    """A code block that the cut left open would swallow the notice."""
    open_fence = ""
    for line in text.split("\n"):
        ticks = line[:len(line) - len(line.lstrip("`"))]
        if len(ticks) >= 3:
            open_fence = "" if open_fence and len(ticks) >= len(open_fence) else open_fence or ticks
    return f"{text}\n{open_fence}" if open_fence else text


def _address(title: str, body: str) -> str:
    return f"{NEW_ISSUE}?{urlencode({'title': title, 'body': body}, quote_via=quote)}"
