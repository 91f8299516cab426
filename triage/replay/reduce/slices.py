"""Which instructions to keep: the way from a parameter to one that uses it, and rings around that way."""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from triage.engine import opcodes

from .graph import CARRIED, ENTRY, INPUT, OP, RESULT, Graph, Value

MAX_USERS = 6           # ways that are tried one by one
_MOVES_FIRST = opcodes.PASS | {"slice", "dynamic-slice", "pad", "reverse", "convert", "reduce-precision", "bitcast-convert",
                               "stochastic-convert", "all-gather", "copy", "transpose", "reshape", "broadcast"}


class Slices:
    """The ways of some of the entry's inputs through the program."""

    def __init__(self, graph: Graph, tracked: frozenset[int], in_loop: bool) -> None:
        self.graph = graph
        self.tracked = tracked
        self.moved = _moved(graph, tracked)         # holds what is in a tracked input, and constants, and nothing else
        users = [value for value in graph.values if value.kind == OP and value.id not in self.moved
                 and any(operand in self.moved for operand in value.operands)]
        ends = users or [value for value in graph.values if value.id in self.moved and value.kind == OP]
        # A copy that a loop reads has its reason in the loop, most likely.
        self.users = sorted(ends, key=lambda value: ((value.scope == ENTRY) == in_loop, value.id))

    def ways(self) -> Iterator[frozenset[int]]:
        """For each user of the parameters, the way there; then all of them together."""
        found = [self._way(user) for user in self.users[:MAX_USERS]]
        yield from dict.fromkeys(found)
        everything = frozenset().union(*[self._way(user) for user in self.users])
        if everything not in found:
            yield everything

    def rings(self, inner: frozenset[int]) -> Iterator[frozenset[int]]:
        """What some instructions lead to in 1, 2, 4, ... steps; then all that is not further from them than that; at last
        everything."""
        for distance in (self.distances(inner, onward=True), self.distances(inner)):
            furthest, step = max(distance.values(), default=0), 1
            while step < furthest:
                yield self._ops(value for value, far in distance.items() if far <= step)
                step *= 2
        yield self._ops(value.id for value in self.graph.values)

    def distances(self, inner: Iterable[int], onward: bool = False) -> dict[int, int]:
        """Steps from operand to user, and back if not `onward`, for every value that can be reached."""
        neighbours: dict[int, list[int]] = {}
        for value in self.graph.values:
            for source in self.graph.sources(value):
                if not self.graph.values[source].free:
                    neighbours.setdefault(source, []).append(value.id)
                    if not onward:
                        neighbours.setdefault(value.id, []).append(source)
        found = dict.fromkeys(inner, 0)
        waiting = deque(found)
        while waiting:
            value = waiting.popleft()
            for other in neighbours.get(value, ()):
                if other not in found:
                    found[other] = found[value] + 1
                    waiting.append(other)
        return found

    def _ops(self, values: Iterable[int]) -> frozenset[int]:
        ops = [self.graph.values[value] for value in values]
        return frozenset([op.id for op in ops if op.kind == OP and not op.free and op.opcode not in
                          ("tuple", "get-tuple-element")])

    def _way(self, user: Value) -> frozenset[int]:
        """The user and everything between it and the tracked inputs."""
        seen, stack = {user.id}, [user.id]
        while stack:
            value = self.graph.values[stack.pop()]
            sources = [s for s in self.graph.sources(value) if s in self.moved and s not in seen]
            seen.update(sources)
            stack.extend(sources)
        return self._ops(seen)


def _moved(graph: Graph, tracked: frozenset[int]) -> set[int]:
    """Values made of tracked inputs and constants alone, each with some of the former in it.

    What a loop carries counts by what it begins with: where the loop overwrites it, that is how it is used.
    """
    constant: set[int] = set()
    found = set(tracked)
    for value in graph.values:
        if value.kind == OP:
            sources = list(value.operands)
        elif value.kind == CARRIED:
            sources = [graph.loops[value.loop].inits[value.element]]
        elif value.kind == RESULT:
            sources = [graph.loops[value.loop].carried[value.element]]
            if not graph.unchanged(graph.loops[value.loop], value.element):
                continue
        else:
            continue
        if value.kind == OP and not _moves(value):
            if value.opcode in opcodes.CONSTANT:
                constant.add(value.id)
            continue
        first = sources[:1] if value.opcode in _MOVES_FIRST else sources
        if all(source in constant for source in first):
            if first:
                constant.add(value.id)
        elif all(source in constant or source in found for source in first):
            found.add(value.id)
    return found


def _moves(value: Value) -> bool:
    if value.opcode == "custom-call":
        return dict(value.attributes).get("custom_call_target", "").strip('"') in opcodes.PASS_CALLS
    return value.opcode in opcodes.FOLLOWED or value.opcode in ("tuple", "get-tuple-element", "broadcast")


def inputs(graph: Graph, numbers: Iterable[int]) -> frozenset[int]:
    """Ids of the entry's inputs with these numbers."""
    wanted = set(numbers)
    return frozenset([value.id for value in graph.values if value.kind == INPUT and value.element in wanted])
