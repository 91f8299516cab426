"""What is known of XLA's passes, flags and releases, from the data files beside this one.

A flag that a release does not know aborts the user's process, so nothing here guesses: what is not known is None.
"""
from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Version = tuple[int, ...]


@dataclass(frozen=True)
class Releases:
    """A range of jaxlib releases, both ends included; None is unbounded."""
    first: str | None = None
    last: str | None = None

    def __str__(self) -> str:
        if self.first and self.last:
            return f"jaxlib {self.first}" if self.first == self.last else f"jaxlib {self.first} to {self.last}"
        return f"jaxlib >= {self.first}" if self.first else f"jaxlib <= {self.last}" if self.last else "any jaxlib"

    def within(self, other: Releases) -> bool:
        """Whether every release of this range is in the other one."""
        return (other.first is None or (self.first is not None and key(self.first) >= key(other.first))) and (
            other.last is None or (self.last is not None and key(self.last) <= key(other.last)))

    def meets(self, other: Releases) -> bool:
        """Whether some release may be in both."""
        return not (_before(self.last, other.first) or _before(other.last, self.first))


def _before(last: str | None, first: str | None) -> bool:
    return last is not None and first is not None and key(last) < key(first)


def key(release: str) -> Version:
    return tuple(int(part) for part in release.split("."))


@cache
def _data(name: str) -> dict:
    return json.loads((Path(__file__).parent / f"{name}.json").read_text("utf-8"))


def release_dates() -> dict[str, str]:
    """jaxlib release -> ISO date of its first file on PyPI, in order of the releases' numbers."""
    return _data("releases")["releases"]


@cache
def _flag_table() -> dict[str, tuple[Releases, ...]]:
    return {name: tuple(Releases(*span.split("..")) for span in spans.split())
            for spans, names in _data("flags")["flags"].items() for name in names}


@cache
def _looked_at() -> list[str]:
    """The releases whose flags are known, in order."""
    return sorted({*_data("flags")["read"], *_data("flags")["asked"]}, key=key)


def flag_releases(flag: str) -> tuple[Releases, ...]:
    """The releases known to accept a flag (`xla_...`, with or without dashes and value), in order; () for none."""
    return _flag_table().get(flag.lstrip("-").split("=", 1)[0], ())


def may_have_flag(flag: str) -> tuple[Releases, ...]:
    """The releases that may accept a flag: those between two that were looked at count as well, and so do later ones
    where the latest has it. () where nothing is known of the flag."""
    return tuple(_widened(span) for span in flag_releases(flag))


def _widened(known: Releases) -> Releases:
    looked_at = _looked_at()
    start, end = looked_at.index(known.first), looked_at.index(known.last)
    later = [r for r in release_dates() if start and key(r) > key(looked_at[start - 1])]
    earlier = [r for r in release_dates() if end + 1 < len(looked_at) and key(r) < key(looked_at[end + 1])]
    return Releases(later[0] if later else None, earlier[-1] if earlier else None)


def flag_is_known_to(flag: str, releases: Releases) -> bool | None:
    """True if every release of the range accepts the flag, False if none does, None if that is not known."""
    if any(releases.within(span) for span in flag_releases(flag)):
        return True
    possible = may_have_flag(flag)
    return None if not possible or any(releases.meets(span) for span in possible) else False


@dataclass(frozen=True)
class PassFacts:
    """`role`: of C creates, M moves, H hides, R removes copies of parameters. `disable`: "yes", "no" (a pass that must run:
    then `why_not`) or "unknown"; `releases` that have the pass under this name; no platforms: not known."""
    name: str
    role: str
    does: str
    disable: str
    releases: Releases
    platforms: tuple[str, ...]
    why_not: str = ""
    blunt: str = ""                     # why disabling all of it says little
    attribute: str = ""                 # a loop attribute that does the same for one loop, in `attribute_releases`
    attribute_releases: Releases = Releases()
    flags: tuple[dict, ...] = ()        # flag, platforms, why


def pass_facts(name: str) -> PassFacts | None:
    """What is known of a pass; None for one that is not in the table."""
    passes = _data("passes")["passes"]
    found = passes.get(name) or passes.get(f"{name.rsplit('-', 1)[0]}-*")       # one per type: float-normalization-bf16
    if found is None:
        return None
    return PassFacts(name, found["role"], found["does"], found["disable"], Releases(found.get("since"), found.get("until")),
                     tuple(found["platforms"]), found.get("why_not", ""), found.get("blunt", ""), found.get("attribute", ""),
                     Releases(found.get("attribute_since")), tuple(found.get("flags", ())))


def pass_names() -> list[str]:
    """Every pass that is in the table."""
    return list(_data("passes")["passes"])
