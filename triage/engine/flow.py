"""Which values depend on parameters alone, and which instructions write such values into new buffers.

Every computation is summarised once, in terms of its own parameters; a caller maps the summary onto its operands. So a
loop body that a pass left alone is never looked at again, and a value's history is exact through tuples, calls,
conditionals, fusions and the carries of while loops.
"""
from __future__ import annotations

from collections.abc import Iterable

from .calls import BODY, CALLED, FUSED, MODES, SAME, Caller, callers, post_order
from .evaluation import Evaluation
from .ir import Computation, Module
from .values import IMPURE, Summary, leaves

MAX_RECURSION = 40              # of calls that are followed by recursion; deeper call graphs go from the bottom up
MAX_INLINED = 100_000           # reads and writes taken over from callees, in one stage


class Flow:
    """Summaries of one dump's computations, shared by all stages.

    `min_bytes` is the size from which a buffer is noted, and from which a parameter is worth following.
    """

    def __init__(self, min_bytes: int) -> None:
        self.min_bytes = min_bytes
        self.summaries: dict[tuple[int, int], Summary] = {}
        self.closures: dict[tuple, int] = {}
        self.last: dict[tuple[str, bool, int], Evaluation] = {}     # by name, whether it is the entry, and mode
        self.forms: dict[tuple, Summary] = {}       # of fused computations that differ in nothing but names
        self._callers: dict[Computation, tuple[Caller, ...]] = {}
        self._called: dict[Computation, tuple[tuple[str, str], ...]] = {}

    def callers(self, computation: Computation) -> tuple[Caller, ...]:
        found = self._callers.get(computation)
        if found is None:
            found = self._callers[computation] = callers(computation)
        return found

    def called(self, computation: Computation) -> tuple[tuple[str, str], ...]:
        """(computation, how) called from here, in order, without repeats."""
        found = self._called.get(computation)
        if found is None:
            names = [call for _, calls in self.callers(computation) for call in calls]
            found = self._called[computation] = tuple(dict.fromkeys(names))
        return found

    def entry(self, module: Module) -> Summary:
        """The summary of the module's entry computation; its sources are the entry parameters."""
        if module.entry is None:
            return Summary()
        return ModuleFlow(self, module).entry(module.entry.name)


class ModuleFlow:
    """The computations of one stage by name, and their summaries."""

    def __init__(self, flow: Flow, module: Module) -> None:
        self.flow, self.module = flow, module
        self.room = MAX_INLINED                 # how many more reads and writes of callees may be taken over
        self._ids: dict[str, int] = {}          # a number for the text of a computation together with all it calls
        self._heights: dict[str, int] = {}      # how many calls deep it goes

    def entry(self, name: str) -> Summary:
        self._number(name)
        if self._heights[name] > MAX_RECURSION:
            for callee, mode in self._bottom_up(name):
                self.summary(callee, mode)
        return self.summary(name, CALLED)

    def number(self, name: str) -> int:
        """Equal for computations of equal text that call equal ones; -1 for one that the entry does not reach."""
        return self._ids.get(name, -1)

    def _callees(self, name: str) -> tuple[tuple[str, str], ...]:
        computation = self.module.computations.get(name)
        return self.flow.called(computation) if computation is not None else ()

    def _number(self, entry: str) -> None:
        closures, ids, heights = self.flow.closures, self._ids, self._heights
        stack, opened = [entry], set()
        while stack:
            name = stack[-1]
            called = self._callees(name)
            if called and name not in opened:
                opened.add(name)
                stack += [callee for callee, _ in called if callee not in opened and callee not in ids]
                continue
            stack.pop()
            if name not in ids:
                # A computation that calls itself is not numbered yet: -1.
                key = (self.module.computations.get(name), *[ids.get(callee, -1) for callee, _ in called])
                ids[name] = closures.setdefault(key, len(closures))
                heights[name] = 1 + max([heights.get(callee, 0) for callee, _ in called], default=0)

    def _bottom_up(self, entry: str) -> Iterable[tuple[str, int]]:
        """Every computation in every mode that the entry may ask for, callees first."""
        def asked(node: tuple[str, int]) -> list[tuple[str, int]]:
            name, mode = node
            inner = mode if mode in (FUSED, SAME) else CALLED
            found = [(name, SAME)] if mode == BODY else []
            for callee, role in self._callees(name):
                found += [(callee, mode) for mode in MODES.get(role, (inner,))]
            return found
        return post_order((entry, CALLED), asked)

    def summary(self, name: str, mode: int) -> Summary:
        """How a computation treats its parameters; see the modes in calls.py."""
        computation = self.module.computations.get(name)
        if computation is None or name not in self._ids:
            return Summary(root=IMPURE)
        key = (self._ids[name], mode)
        found = self.flow.summaries.get(key)
        if found is None:
            self.flow.summaries[key] = Summary(root=IMPURE, cut=True)   # while it is being made: recursion ends here
            found = self.flow.summaries[key] = self._evaluate(computation, mode)
        return found

    def _evaluate(self, computation: Computation, mode: int) -> Summary:
        if mode == FUSED and not self.flow.called(computation) and computation is not self.module.entry:
            return self._fused(computation)
        place = computation.name, computation is self.module.entry, mode
        evaluation = Evaluation(self, computation, mode, self.flow.last.get(place))
        found = evaluation.run()
        if not evaluation.quiet:
            self.flow.last[place] = evaluation
        return found

    def _fused(self, computation: Computation) -> Summary:
        """Of a fused computation that calls nothing. Every layer of a model has its own, and they differ in their names."""
        form = _form(computation)
        found = self.flow.forms.get(form) if form is not None else None
        if found is None:
            found = Evaluation(self, computation, FUSED).run()
            # A transpose on the way is named in the summary, so that one is of this computation alone.
            if form is not None and not any([leaf.free for leaf in leaves(found.root)]):
                self.flow.forms[form] = found
        return found


def _form(computation: Computation) -> tuple | None:
    """What a computation says, with positions instead of names; None where a name does not stand for one instruction."""
    if computation.is_ambiguous:
        return None
    position = dict(zip(computation.by_name, range(len(computation.instructions))))
    form: list = []
    try:
        for instruction in computation.instructions:
            operands = tuple([position[name] for name in instruction.operands])
            form.append((instruction.opcode, instruction.shape.text, operands, instruction.arguments if not operands else "",
                         instruction.line[instruction.tail_at:]))
    except KeyError:
        return None
    return position.get(computation.root.name) if computation.root is not None else None, *form
