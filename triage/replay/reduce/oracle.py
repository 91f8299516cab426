"""Whether a candidate shows the copy: a compile of it says so, and nothing else."""
from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from triage.engine.instructions import Lines
from triage.replay.measure import measure
from triage.replay.process import DEFAULT_LIMITS, Limits
from triage.replay.source import Source
from triage.replay.toolchains import Toolchain
from triage.replay.variants import BASELINE

from .program import NAME, Program

#: What a candidate shows; more is better. A copy of the same kind, in the same place and by the same pass is SAME_PASS; the
#: same order in memory and the same trigger add to that.
NO, SAME_PASS, SAME_ORDER, SAME_TRIGGER = 0, 1, 2, 4
ALL = SAME_PASS | SAME_ORDER | SAME_TRIGGER
Resize = Callable[[int], int]


class Stop(Exception):
    """The search ends with what it has; `str()` says why."""


@dataclass(frozen=True)
class Wanted:
    """What makes a copy the one that is looked for."""
    kind: str
    where: str
    pass_: str | None           # that introduces it; None: it is in the program itself
    trigger: str | None
    to_shape: str
    share: float                # of its bytes in those of the largest parameter it is made of

    def level(self, copy: dict, resize: Resize) -> int:
        """How much of it a copy of a recompile is. `resize` tells what became of a dimension's size."""
        if (copy["kind"], copy["where"], pass_of(copy, "introduced_by")) != (self.kind, self.where, self.pass_):
            return NO
        runs, others = _runs(self.to_shape, resize), _runs(copy["to_shape"], int)
        same_order = self.kind != "transpose" or runs <= others or others <= runs
        same_trigger = self.trigger is None or pass_of(copy, "trigger") == self.trigger
        return SAME_PASS + SAME_ORDER * same_order + SAME_TRIGGER * same_trigger


def wanted(copy: dict, largest_bytes: int) -> Wanted:
    """`copy`: of a report; `largest_bytes`: of the largest parameter it is made of."""
    return Wanted(copy["kind"], copy["where"], pass_of(copy, "introduced_by"), pass_of(copy, "trigger"), copy["to_shape"],
                  min(1.0, copy["bytes"] / max(1, largest_bytes)))


def _runs(text: str, resize: Resize) -> set[int]:
    """Elements in the last dimension in memory, in the last two, and so on: joining dimensions takes some of them away,
    another order makes others."""
    shape = Lines().shape(text)
    found, elements = set(), 1
    for dimension in reversed(shape.order) if shape is not None else ():
        elements *= resize(shape.dims[dimension])
        found.add(elements)
    return found


def pass_of(copy: dict, role: str) -> str | None:
    return copy[role]["pass"] if copy[role] else None


@dataclass(frozen=True)
class Verdict:
    level: int
    copy: dict | None = None        # that shows it
    message: str = ""               # why it did not compile


@dataclass
class Oracle:
    """Compiles candidates, each text once, within a time and a number of compiles. Raises Stop where those are spent."""
    source: Source
    toolchain: Toolchain
    wanted: Wanted
    deadline: float                 # of time.monotonic()
    max_tries: int
    cancelled: Callable[[], bool]
    limits: Limits = DEFAULT_LIMITS
    tries: int = 0
    known: dict[str, Verdict] = field(default_factory=dict)

    def ask(self, program: Program, resize: Resize) -> Verdict:
        found = self.known.get(program.text)
        if found is None:
            found = self.known[program.text] = self._compiled(program, resize)
        return found

    def module(self, text: str, name: str, min_bytes: int) -> tuple[dict | None, str]:
        """(report of what a text compiles to, why there is none)."""
        left = self.deadline - time.monotonic()
        if self.cancelled():
            raise Stop("it was cancelled")
        if self.tries >= self.max_tries:
            raise Stop(f"{self.max_tries} compiles were made")
        if left < 1:
            raise Stop("the time was up")
        self.tries += 1
        limits = replace(self.limits, seconds=min(self.limits.seconds, int(left) + 1))
        with tempfile.TemporaryDirectory(prefix="triage-reduce-") as scratch:
            measured = measure(replace(self.source, text=text, name=name), BASELINE, self.toolchain, Path(scratch), min_bytes,
                               limits, every_pass=True, cancelled=self.cancelled)
        return measured.module, measured.row["message"]

    def _compiled(self, program: Program, resize: Resize) -> Verdict:
        largest = max(program.parameters[number].bytes for number in program.tracked)
        smallest = max(1, int(largest * self.wanted.share / 2))
        devices = self.source.partitions
        module, message = self.module(program.text, NAME, max(1, smallest // devices))
        best = Verdict(NO, None, message)
        for copy in module["copies"] if module is not None else ():
            level = self.wanted.level(copy, resize)
            if level > best.level and copy["bytes"] * devices >= smallest and program.tracked & set(copy["parameters"]):
                best = Verdict(level, copy)
        return best
