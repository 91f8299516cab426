"""The search for a small program that shows one copy of a module: big steps first, each confirmed by a compile."""
from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from triage.replay.merge import has_history
from triage.replay.process import DEFAULT_LIMITS, Limits
from triage.replay.source import Source
from triage.replay.toolchains import Toolchain, key

from .assemble import Options
from .build import build
from .commands import commands
from .flatten import flatten
from .graph import Graph
from .oracle import ALL, SAME_ORDER, SAME_PASS, SAME_TRIGGER, Oracle, Stop, Verdict, pass_of, wanted
from .program import Program, Unusable
from .reproducer import NoReproducer, Reproducer
from .slices import Slices, inputs

SECONDS = 120
MAX_TRIES = 100
MAX_LINES = 20_000          # of a candidate
TRIPS = 2                   # iterations that are enough to be a loop
SMALLEST = 64               # of a dimension that is made smaller
SHRINK = 8                  # how much smaller
MAX_SIZES = 4               # dimensions that are tried alone
Progress = Callable[[str, int, int], None]
Keep = frozenset[int]


@dataclass(frozen=True)
class _Candidate:
    keep: Keep
    options: Options
    program: Program
    verdict: Verdict


def reproduce(module: dict, copy_id: str, source: Source, toolchain: Toolchain, *, seconds: int = SECONDS,
              max_tries: int = MAX_TRIES, limits: Limits = DEFAULT_LIMITS, progress: Progress = lambda phase, done, total: None,
              cancelled: Callable[[], bool] = lambda: False) -> Reproducer:
    """Cuts a module of a report down to a program that shows one of its copies.

    `source` is what `source_of` makes of the module's first text. It compiles at most `max_tries` times and takes `seconds`
    at most, within a second or two; `progress` is told (phase, compiles made, compiles at most). Raises NoReproducer.
    """
    started = time.monotonic()
    copy = next((copy for copy in module["copies"] if copy["id"] == copy_id), None)
    if copy is None:
        raise NoReproducer(f"The module has no copy {copy_id[:20]}.")
    search = _Search(module, copy, source, toolchain, started + seconds, max_tries, limits, progress, cancelled)
    try:
        search.run()
        stopped = ""
    except Stop as reason:
        stopped = f"{reason}: it may be possible to make it smaller"
        if search.best is None:
            raise NoReproducer(f"No smaller program that shows the copy was found: {reason}.") from None
    return search.result(time.monotonic() - started, stopped)


class _Search:
    def __init__(self, module: dict, copy: dict, source: Source, toolchain: Toolchain, deadline: float, max_tries: int,
                 limits: Limits, progress: Progress, cancelled: Callable[[], bool]) -> None:
        self.module, self.copy, self.source = module, copy, source
        self.graph: Graph = flatten(source.text)
        self.tracked = inputs(self.graph, copy["parameters"])
        if not self.tracked:
            raise NoReproducer("The parameters of the copy are not in the module's first text.")
        sizes = [self.graph.values[value].shape.bytes for value in self.tracked]
        self.oracle = Oracle(source, toolchain, wanted(copy, max(sizes)), deadline, max_tries, cancelled,
                             limits)
        self.slices = Slices(self.graph, self.tracked, copy["where"] != "entry")
        self.progress = progress
        self.phase = ""
        self.best: _Candidate | None = None

    def run(self) -> None:
        self._begin("looking for a part that shows the copy")
        self._first()
        self._begin("leaving out instructions")
        self._leave_out()
        self._begin("making loops and arrays smaller")
        self._shrink()

    def _begin(self, phase: str) -> None:
        self.phase = phase
        self.progress(phase, self.oracle.tries, self.oracle.max_tries)

    # -- a first one --------------------------------------------------------------------------------------------------

    def _first(self) -> None:
        """The smallest part that shows the copy with its trigger, or else without."""
        known = self._passes_are_known()
        if not known:
            self._rename()
        ways = list(self.slices.ways())
        if self._found(ways) or self.best is None and known and self._rename() and self._found(ways):
            return
        self._found(self.slices.rings(frozenset().union(*ways)))
        if self.best is None:
            raise NoReproducer(f"Compiled again with {self.oracle.toolchain.name} from its first text, with calls inlined, "
                               "the module does not show this copy.")

    def _passes_are_known(self) -> bool:
        """Whether the report names the passes of the release that compiles here."""
        version = self.module["version"] or {"jaxlib_first": None, "jaxlib_last": None}
        first, last = version["jaxlib_first"], version["jaxlib_last"]
        here = key(self.oracle.toolchain.version)
        same = (first is None or key(first) <= here) and (last is None or here <= key(last))
        return same and has_history(self.module)

    def _found(self, keeps: Iterable[Keep]) -> bool:
        """Whether one of these shows all that is looked for."""
        for keep in keeps:
            if self._try(keep, Options(), better=True) and self.best.verdict.level == ALL:
                return True
        return False

    def _rename(self) -> bool:
        """Whether another pass introduces the copy where the whole module is compiled again: then it is that which is
        looked for. Raises NoReproducer where the recompile does not show the copy at all."""
        found, message = self.oracle.module(self.source.text, self.source.name, self.module["totals"]["min_bytes"])
        if found is None:
            raise NoReproducer(f"The module does not compile with {self.oracle.toolchain.name}: {message}")
        told_by = ("parameters", "kind", "where", "bytes")
        twins = [copy for copy in found["copies"] if all(copy[name] == self.copy[name] for name in told_by)]
        if not twins:
            raise NoReproducer(f"Compiled again with {self.oracle.toolchain.name}, the module does not show this copy.")
        before = self.oracle.wanted
        self.oracle.wanted = replace(before, pass_=pass_of(twins[0], "introduced_by"), trigger=pass_of(twins[0], "trigger"),
                                     to_shape=twins[0]["to_shape"])
        if self.oracle.wanted != before:
            self.oracle.known.clear()
        return self.oracle.wanted != before

    # -- tries --------------------------------------------------------------------------------------------------------

    def _try(self, keep: Keep, options: Options, better: bool = False) -> bool:
        """Whether a candidate shows at least as much as the best one, or `better` than that; then it is the best one."""
        try:
            program = build(self.graph, keep, self.tracked, options)
        except Unusable:
            return False
        if program is None or program.instructions > MAX_LINES:
            return False
        verdict = self.oracle.ask(program, options.resize)
        self.progress(self.phase, self.oracle.tries, self.oracle.max_tries)
        least = SAME_PASS if self.best is None else self.best.verdict.level + better
        if verdict.level < least:
            return False
        self.best = _Candidate(keep, options, program, verdict)
        return True

    def _leave_out(self) -> None:
        """Takes out ever smaller groups of instructions, those far from the parameter's way first."""
        far = self.slices.distances(self.tracked)
        size = max(1, len(self.best.keep) // 2)
        while True:
            before = self.best.keep
            ordered = sorted(before, key=lambda value: (-far.get(value, len(self.graph.values)), -value))
            for group in _groups(ordered, size):
                rest = self.best.keep - group
                if rest and rest != self.best.keep:
                    self._try(rest, self.best.options)
            if size == 1 and self.best.keep == before:
                return
            size = max(1, size // 2)

    # -- sizes --------------------------------------------------------------------------------------------------------

    def _shrink(self) -> None:
        """Fewer instructions by using what the loop makes; then few iterations, and smaller dimensions."""
        fed = replace(self.best.options, feed=True)
        before = self.best
        if self._try(before.keep, fed) and self.best.program.instructions > before.program.instructions:
            self.best = before
        self._try(self.best.keep, replace(self.best.options, trips=TRIPS))
        for smaller in self._smaller():
            if self._try(self.best.keep, replace(self.best.options, sizes=smaller)):
                return

    def _smaller(self) -> Iterator[tuple[tuple[int, int], ...]]:
        """All large dimensions at once, or else one of them, the largest first."""
        sizes = sorted({size for value in self.graph.values if value.id in self._printed() for size in value.shape.dims},
                       reverse=True)
        smaller = [(size, size // SHRINK) for size in sizes if size % SHRINK == 0 and size // SHRINK >= SMALLEST]
        if smaller:
            yield tuple(smaller)
        if len(smaller) > 1:
            yield from [(pair,) for pair in smaller[:MAX_SIZES]]

    def _printed(self) -> set[int]:
        found = set(self.best.keep) | self.tracked
        return found | {operand for value in self.best.keep for operand in self.graph.values[value].operands}

    # -- what was found -----------------------------------------------------------------------------------------------

    def result(self, seconds: float, stopped: str) -> Reproducer:
        best, copy = self.best, self.best.verdict.copy
        shown = {name: copy[name] for name in
                 ("kind", "where", "bytes", "from_shape", "to_shape", "introduced_by", "trigger")}
        return Reproducer(
            best.program.text, best.program.instructions, self.copy["id"], shown,
            bool(best.verdict.level & SAME_TRIGGER), bool(best.verdict.level & SAME_ORDER), self.oracle.toolchain.name,
            self.source.device, round(seconds, 1), self.oracle.tries, stopped, commands(self.source))


def _groups(ordered: list[int], size: int) -> list[Keep]:
    return [frozenset(ordered[start:start + size]) for start in range(0, len(ordered), size)]
