"""HLO text -> Graph: calls inlined, tuples taken apart, names and metadata forgotten."""
from __future__ import annotations

import re
from collections.abc import Generator
from typing import Union

from triage.engine import opcodes
from triage.engine.ir import Computation, Instruction, Shape, number, split_top
from triage.engine.text import Parser, split_chunks

from .attributes import kept_attributes
from .graph import CARRIED, ENTRY, INPUT, OP, RESULT, Graph, Loop, Scope, Value
from .reproducer import NoReproducer

MAX_TEXT = 64 * 1024**2     # characters of a module
MAX_VALUES = 200_000        # with all calls inlined
MAX_STEPS = 1_000_000       # instructions looked at, of which those in calls count at every call
MAX_DEPTH = 200             # of calls and loops in one another
MAX_LOOPS = 1000
TOO_LARGE = f"The module has more than {MAX_VALUES:,} instructions with its calls inlined: it is not cut down."
DAMAGED = "The first text of the module is damaged: it cannot be cut down."
_HEADER_COUNT = re.compile(r"\b(num_partitions|replica_count)=(\d{1,6})\b")
_ENTRY_LAYOUT = "entry_computation_layout={("
Tree = Union[int, tuple]    # a value's id, or the trees of a tuple's parts
Request = tuple[Computation, list, int]


def flatten(text: str) -> Graph:
    """The graph of a module's text. Raises NoReproducer for text that is damaged or too large."""
    if len(text) > MAX_TEXT:
        raise NoReproducer(f"The module's first text is larger than {MAX_TEXT // 1024**2} MiB: it is not cut down.")
    header, *chunks = split_chunks(text)
    parser = Parser()
    computations = [found for chunk in chunks if (found := parser.computation(chunk)) is not None]
    entry = next((c for c in computations if c.is_entry or len(computations) == 1), None)
    if entry is None or entry.root is None:
        raise NoReproducer(DAMAGED)
    flat = _Flattener({c.name: c for c in computations})
    flat.read_header(header)
    flat.run(entry)
    return flat.graph


class _Flattener:
    """Evaluates the entry computation with values for arrays."""

    def __init__(self, computations: dict[str, Computation]) -> None:
        self.graph = Graph(computations=computations)
        self.steps = 0

    def read_header(self, header: str) -> None:
        first = header.partition("\n\n")[0]
        counts = {name: number(value) or 1 for name, value in _HEADER_COUNT.findall(first)}
        self.graph.partitions, self.graph.replicas = counts.get("num_partitions", 1), counts.get("replica_count", 1)
        start = first.find(_ENTRY_LAYOUT)
        if start >= 0:
            inside = first[start + len(_ENTRY_LAYOUT):].partition(")->")[0]
            self.graph.layouts = dict(enumerate(part.rpartition("*/")[2].strip() for part in split_top(inside)))

    def run(self, entry: Computation) -> None:
        """A computation that asks for another one waits on the stack until that has its value."""
        arguments = self._inputs(entry)
        stack = [self._evaluate(entry, arguments, ENTRY)]
        answer: Tree | None = None
        while stack:
            try:
                request = stack[-1].send(answer)
            except StopIteration as done:
                answer = done.value
                stack.pop()
                continue
            if len(stack) > MAX_DEPTH:
                raise NoReproducer(f"Calls are nested more than {MAX_DEPTH} deep in this module: it is not cut down.")
            stack.append(self._evaluate(*request))
            answer = None
        self.graph.outputs = tuple(_leaves(answer))

    def _inputs(self, entry: Computation) -> list[Tree]:
        parameters = {number(i.arguments): i for i in entry.parameters}
        if sorted(parameters, key=lambda n: -1 if n is None else n) != list(range(len(parameters))):
            raise NoReproducer(DAMAGED)
        single = len(parameters) == 1 and parameters[0].shape.is_tuple
        if single:      # all arguments in one tuple: each a parameter of its own
            self.graph.layouts = {}
            parts = parameters[0].shape.parts or ()
            return [tuple(self._new(INPUT, ENTRY, part, element=n) for n, part in enumerate(parts))]
        return [self._new(INPUT, ENTRY, parameters[n].shape, element=n, attributes=self._attributes(parameters[n]))
                for n in range(len(parameters))]

    def _new(self, kind: str, scope: int, shape: Shape, **fields: object) -> int:
        values = self.graph.values
        if len(values) >= MAX_VALUES:
            raise NoReproducer(TOO_LARGE)
        values.append(Value(len(values), kind, scope, shape, **fields))
        return len(values) - 1

    def _evaluate(self, computation: Computation, arguments: list[Tree], scope: int) -> Generator[Request, Tree, Tree]:
        known: dict[str, Tree] = {}
        self.steps += len(computation.instructions)
        if self.steps > MAX_STEPS:
            raise NoReproducer(TOO_LARGE)
        for instruction in computation.ordered:
            try:
                operands = [known[name] for name in instruction.definitions]
                if instruction.opcode == "parameter":
                    found = arguments[int(instruction.arguments)]
                elif instruction.opcode == "call":
                    found = yield self._computation(instruction, "to_apply"), operands, scope
                elif instruction.opcode == "while":
                    found = yield from self._loop(instruction, operands[0], scope)
                else:
                    found = self._plain(instruction, operands, scope)
            except (KeyError, IndexError, ValueError):
                raise NoReproducer(DAMAGED) from None
            known[instruction.name] = found
        if computation.root is None:
            raise NoReproducer(DAMAGED)
        return known[computation.root.name]

    def _computation(self, instruction: Instruction, key: str) -> Computation:
        return self.graph.computations[instruction.called(key) or ""]

    def _loop(self, instruction: Instruction, init: Tree, scope: int) -> Generator[Request, Tree, Tree]:
        graph = self.graph
        body, condition = self._computation(instruction, "body"), self._computation(instruction, "condition")
        inits = _leaves(init)
        index = len(graph.loops)
        if index >= MAX_LOOPS:
            raise NoReproducer(f"The module has more than {MAX_LOOPS:,} loops: it is not cut down.")
        graph.loops.append(Loop(index, scope, 0, 0, (), (), (), (), -1, ()))     # inner loops come after it
        scopes = len(graph.scopes), len(graph.scopes) + 1
        graph.scopes += [Scope(scope, index), Scope(scope, index, tests=True)]
        seen = [self._elements(CARRIED, inner, inits, index) for inner in scopes]
        after = yield body, [_like(init, seen[0])], scopes[0]
        test = yield condition, [_like(init, seen[1])], scopes[1]
        nexts, results = _leaves(after), self._elements(RESULT, scope, inits, index)
        if len(nexts) != len(inits) or not isinstance(test, int):
            raise NoReproducer(DAMAGED)
        graph.loops[index] = Loop(index, scope, *scopes, inits, *seen, nexts, test, results)
        return _like(init, results)

    def _elements(self, kind: str, scope: int, inits: tuple[int, ...], loop: int) -> tuple[int, ...]:
        return tuple([self._new(kind, scope, self.graph.values[init].shape, element=position, loop=loop)
                      for position, init in enumerate(inits)])

    def _plain(self, instruction: Instruction, operands: list[Tree], scope: int) -> Tree:
        """An instruction that calls nothing, or only what belongs to it, such as a reducer."""
        opcode = instruction.opcode
        if opcode == "tuple":
            return tuple(operands)
        if opcode == "get-tuple-element":
            position = int(instruction.attributes["index"])
            if isinstance(operands[0], tuple):
                return operands[0][position]
            return self._new(OP, scope, instruction.shape, opcode=opcode, operands=(operands[0],),
                             attributes=(("index", str(position)),))
        if len(operands) == 1 and self._says_nothing(instruction, operands[0]):
            return operands[0]
        if opcode in ("opt-barrier", "optimization-barrier"):
            return _like(operands[0], tuple([
                self._new(OP, scope, self.graph.values[leaf].shape, opcode=opcode, operands=(leaf,))
                for leaf in _leaves(operands[0])]))
        return self._new(OP, scope, instruction.shape, opcode=opcode,
                         operands=tuple([self._as_value(tree, scope) for tree in operands]),
                         literal=instruction.arguments if opcode == "constant" else "",
                         attributes=self._attributes(instruction))

    def _says_nothing(self, instruction: Instruction, operand: Tree) -> bool:
        """Annotations of shardings where there is one device, and reshapes to the same shape."""
        if not isinstance(operand, int) or self.graph.values[operand].shape.dims != instruction.shape.dims:
            return False
        target = opcodes.target(instruction) if instruction.opcode == "custom-call" else ""
        alone = self.graph.partitions * self.graph.replicas == 1
        return instruction.opcode == "reshape" or target.startswith("xla.sdy.") or alone and target == "Sharding"

    def _as_value(self, tree: Tree, scope: int) -> int:
        """A tree as one operand: tuples are put together again."""
        if isinstance(tree, int):
            return tree
        waiting: list[tuple[tuple, list[int]]] = [(tree, [])]
        while True:
            parts, done = waiting[-1]
            if len(done) < len(parts):
                part = parts[len(done)]
                if isinstance(part, int):
                    done.append(part)
                else:
                    waiting.append((part, []))
                continue
            shapes = tuple(self.graph.values[value].shape for value in done)
            made = self._new(OP, scope, Shape("", parts=shapes), opcode="tuple", operands=tuple(done))
            waiting.pop()
            if not waiting:
                return made
            waiting[-1][1].append(made)

    def _attributes(self, instruction: Instruction) -> tuple[tuple[str, str], ...]:
        return kept_attributes(instruction, self.graph.partitions > 1)


def _leaves(tree: Tree) -> tuple[int, ...]:
    found, stack = [], [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, int):
            found.append(node)
            if len(found) > MAX_VALUES:         # a tuple of the same tuples, again and again
                raise NoReproducer(TOO_LARGE)
        else:
            stack.extend(reversed(node))
    return tuple(found)


def _like(tree: Tree, leaves: tuple[int, ...]) -> Tree:
    """A tree of the same form with these leaves."""
    if isinstance(tree, int):
        return leaves[0]
    rest = iter(leaves)
    root: list = []
    stack = [(tree, iter(tree), root)]
    while True:
        node, parts, made = stack[-1]
        part = next(parts, None)
        if part is None:
            stack.pop()
            if not stack:
                return tuple(made)
            stack[-1][2].append(tuple(made))
        elif isinstance(part, int):
            made.append(next(rest))
        else:
            stack.append((part, iter(part), []))

