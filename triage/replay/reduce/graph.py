"""A program as values without calls and tuples: what each loop carries is a list of arrays.

So leaving an instruction out is taking its id from a set; `build` makes a program of what is left. Ids ascend from
operands to users, but for what a loop's body hands to its next iteration.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from triage.engine.ir import Computation, Shape

OP, INPUT, CARRIED, RESULT = "op", "input", "carried", "result"
ENTRY = 0       # the scope of the entry computation
#: An array constant of more elements is data, to be replaced by a parameter.
MAX_LITERAL = 16


@dataclass(frozen=True)
class Value:
    """One array, or the tuple that an instruction such as `sort` returns."""
    id: int
    kind: str                                       # OP; INPUT: of the entry; CARRIED: seen in a loop; RESULT: of a loop
    scope: int
    shape: Shape
    opcode: str = ""
    operands: tuple[int, ...] = ()
    literal: str = ""                               # of a constant
    attributes: tuple[tuple[str, str], ...] = ()
    element: int = 0                                # INPUT: number; CARRIED, RESULT: position in what the loop carries
    loop: int = -1                                  # CARRIED, RESULT: index in `Graph.loops`

    @property
    def free(self) -> bool:
        """A constant that is simply repeated where it is needed."""
        if self.opcode != "constant":
            return self.opcode == "iota"
        elements = 1
        for size in self.shape.dims:
            elements *= size
        return elements <= MAX_LITERAL and "..." not in self.literal


@dataclass(frozen=True)
class Loop:
    index: int
    parent: int                     # scope in which the while stands
    body: int                       # scopes
    condition: int
    inits: tuple[int, ...]
    carried: tuple[int, ...]        # as the body sees them
    tested: tuple[int, ...]         # as the condition sees them
    nexts: tuple[int, ...]
    test: int
    results: tuple[int, ...]


@dataclass(frozen=True)
class Scope:
    parent: int | None              # scope in which the loop stands; None for the entry
    loop: int = -1
    tests: bool = False             # a condition


@dataclass
class Graph:
    values: list[Value] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=lambda: [Scope(None)])
    outputs: tuple[int, ...] = ()
    computations: dict[str, Computation] = field(default_factory=dict)      # for reducers and the like
    layouts: dict[int, str] = field(default_factory=dict)                   # parameter number -> shape with its layout
    partitions: int = 1
    replicas: int = 1

    def sources(self, value: Value) -> Iterator[int]:
        """What the value is made of."""
        if value.kind == OP:
            yield from value.operands
        elif value.kind == CARRIED:
            yield self.loops[value.loop].inits[value.element]
        elif value.kind == RESULT:
            yield self.loops[value.loop].carried[value.element]
            yield self.loops[value.loop].nexts[value.element]

    def unchanged(self, loop: Loop, element: int) -> bool:
        """Whether the loop hands this element on as it is."""
        return loop.nexts[element] == loop.carried[element]

    def around(self, scope: int) -> Iterator[int]:
        """The scope and those that its loop stands in, from the inside out."""
        current: int | None = scope
        while current is not None:
            yield current
            current = self.scopes[current].parent
