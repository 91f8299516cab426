"""Text of a dump for a page, a terminal or an issue: without what acts instead of being shown."""
from __future__ import annotations

import re

#: Control characters but tab and line end (a terminal obeys ESC), and marks that turn the direction of the text around them.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def printable(text: str) -> str:
    """`text` with a replacement character for each of them."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """The same, with blanks for tabs and line ends."""
    return printable(text.replace("\n", " ").replace("\t", " "))
