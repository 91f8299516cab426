"""What a draft is made from, and what it is made of."""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from triage.reports.excerpt import Line

#: To whom a draft goes: the compiler's maintainers, or whoever wrote the program.
XLA, PROGRAM = "xla", "program"
#: Stands where a person must fill something in.
BLANK = "____"
_BLANK = re.compile(rf"(?<!\w){BLANK}(?!\w)")       # names of a dump may have four of them inside
#: The lines of the stage with this index around the copy with this id.
Excerpt = Callable[[int, str], list[Line]]


@dataclass(frozen=True)
class Subject:
    """One pattern of a module of the report. `link` is the address of the dump's page, "" where it is to be left out."""
    module: dict
    number: int             # of the pattern, from 0
    excerpt: Excerpt
    generator: str
    link: str = ""

    @property
    def pattern(self) -> dict:
        return self.module["patterns"][self.number]

    @cached_property
    def copies(self) -> list[dict]:
        wanted = set(self.pattern["copies"])
        return [copy for copy in self.module["copies"] if copy["id"] in wanted]

    @cached_property
    def sample(self) -> dict:
        """The largest copy, which stands for all of them."""
        return max(self.copies, key=lambda copy: copy["bytes"])

    @property
    def address(self) -> str:
        return PROGRAM if self.pattern["origin"] == "program" else XLA

    @property
    def baseline(self) -> dict | None:
        """The recompile of the module as it is, if there was one that compiled."""
        replays = self.module["replays"]
        return replays[0] if replays and replays[0]["status"] == "ok" else None

    @cached_property
    def verified(self) -> list[dict]:
        """Measured remedies that need clearly less memory and make copies of this pattern go; best first."""
        wanted = set(self.pattern["copies"])
        return [remedy for remedy in self.module["remedies"]
                if remedy["verified"] and remedy.get("helps") and wanted & set(remedy["gone"])]


@dataclass(frozen=True)
class Section:
    key: str            # what a person writes instead is kept under it
    heading: str        # "" for a remark at the beginning or the end
    text: str           # Markdown

    @property
    def markdown(self) -> str:
        return f"## {self.heading}\n{self.text}" if self.heading else self.text


@dataclass(frozen=True)
class Draft:
    title: str
    sections: tuple[Section, ...]
    address: str        # XLA or PROGRAM

    @property
    def body(self) -> str:
        return "\n\n".join(section.markdown for section in self.sections) + "\n"

    @property
    def text(self) -> str:
        return f"# {self.title}\n\n{self.body}"

    @property
    def blanks(self) -> list[str]:
        """The lines in which something is left to fill in."""
        return [line.lstrip("*> ") for line in (self.title + "\n" + self.body).split("\n") if _BLANK.search(line)]
