"""A program as text: computations of lines, with names that say nothing."""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from triage.engine.ir import Computation, Instruction, Shape

from .attributes import COMPUTATIONS, kept_attributes
from .graph import Graph

NAME = "reproducer"
MAX_APPLIED = 10_000            # instructions of reducers and the like
OWN = "="                       # before the name of a block, where a line calls it: no name of a module's has it
_CALLED = re.compile(r"%?([=\w.\-$<>:'@/]+)")
_SIZES = frozenset({"dynamic_slice_sizes", "slice_sizes", "slice"})     # attributes that repeat sizes of dimensions
_INTEGER = re.compile(r"(?<![\w.])\d+(?![\w.])")
Resize = Callable[[int], int]


class Unusable(Exception):
    """A candidate that is not worth compiling: too large, or made of damaged text."""


@dataclass(frozen=True)
class Line:
    """One instruction. `key` is any hashable that names it among its computation's lines."""
    key: object
    shape: Shape
    opcode: str
    operands: tuple = ()                            # keys
    literal: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    name: str = ""                                  # "" for one made of the opcode
    layout: str = ""                                # the shape's text where its layout counts


@dataclass
class Block:
    """One computation, its lines with operands before users."""
    name: str
    lines: list[Line] = field(default_factory=list)
    root: object = None


@dataclass(frozen=True)
class Program:
    """`parameters`: shapes of the entry, in order; `tracked`: the numbers of those whose copy is looked for."""
    text: str
    instructions: int
    parameters: tuple[Shape, ...]
    tracked: frozenset[int]


class Printer:
    """Writes blocks and the computations that they apply. Raises Unusable."""

    def __init__(self, graph: Graph, resize: Resize) -> None:
        self.graph = graph
        self.resize = resize
        self.used: Counter[str] = Counter()
        self.applied: dict[str, str] = {}           # a computation of the module -> its name here
        self.waiting: list[Computation] = []
        self.count = 0
        self.blocks: set[str] = set()

    def text(self, blocks: list[Block]) -> str:
        """Of all blocks, the entry last."""
        self.blocks = {f"{OWN}{block.name}" for block in blocks}
        bodies = [self._block(block, entry=block is blocks[-1]) for block in blocks]
        applied = []
        while self.waiting:
            applied.append(self._applied(self.waiting.pop()))
        return "\n".join([self._header(blocks[-1]), *reversed(applied), *bodies])

    def _header(self, entry: Block) -> str:
        shapes = {line.key: self.shape(line.shape, line.layout, laid_out=True) for line in entry.lines}
        parameters = [shapes[line.key] for line in entry.lines if line.opcode == "parameter"]
        many = [f"{name}={count}" for name, count in (("replica_count", self.graph.replicas),
                                                      ("num_partitions", self.graph.partitions)) if count > 1]
        layout = f"entry_computation_layout={{({', '.join(parameters)})->{shapes[entry.root]}}}"
        return f"HloModule {', '.join([NAME, layout, *many])}\n"

    def _block(self, block: Block, entry: bool) -> str:
        names: dict[object, str] = {}
        lines = []
        for line in block.lines:
            names[line.key] = line.name or self._fresh(line.opcode)
            inside = line.literal or ", ".join([names[key] for key in line.operands])
            root = "ROOT " if line.key == block.root else ""
            lines.append(f"  {root}{names[line.key]} = {self.shape(line.shape, line.layout)} {line.opcode}({inside})"
                         f"{self._attributes(line.attributes)}\n")
        self.count += len(lines)
        return f"{'ENTRY ' if entry else ''}{block.name} {{\n{''.join(lines)}}}\n"

    def shape(self, shape: Shape, layout: str = "", laid_out: bool = False) -> str:
        """As text, nested tuples and all. Without layouts, which mean nothing before they are assigned, but for the
        one given, or the default one where `laid_out`."""
        if shape.parts is None:
            if not shape.dims or not shape.dtype:
                return f"{shape.dtype}[]" if shape.dtype and shape.dtype not in ("token", "opaque") else shape.text
            sizes = ",".join([str(self.resize(size)) for size in shape.dims])
            default = ",".join(map(str, reversed(range(len(shape.dims))))) if laid_out else ""
            order = layout.partition("{")[2].rstrip("}") or default
            return f"{shape.dtype}[{sizes}]" + (f"{{{order}}}" if order else "")
        parts: list[str] = []
        stack: list = [shape]
        while stack:
            node = stack.pop()
            if isinstance(node, str):
                parts.append(node)
            elif node.parts is None:
                parts.append(self.shape(node, "", laid_out))
            else:
                inner: list = ["("]
                for position, part in enumerate(node.parts):
                    inner += [", ", part] if position else [part]
                stack.extend(reversed([*inner, ")"]))
        return "".join(parts)

    def _fresh(self, stem: str) -> str:
        self.used[stem] += 1
        return f"{stem}.{self.used[stem]}"

    def _attributes(self, attributes: tuple[tuple[str, str], ...]) -> str:
        return "".join([f", {key}={self._value(key, value)}" for key, value in attributes])

    def _value(self, key: str, value: str) -> str:
        if key in COMPUTATIONS:
            return _CALLED.sub(lambda match: self._named(match[1]), value)
        if key in _SIZES:
            return _INTEGER.sub(lambda match: str(self.resize(int(match[0][:18]))), value)
        return value

    def _named(self, computation: str) -> str:
        if computation in self.blocks:
            return computation[1:]
        found = self.graph.computations.get(computation)
        if found is None:
            raise Unusable
        if computation not in self.applied:
            self.applied[computation] = self._fresh("applied")
            self.waiting.append(found)
        return self.applied[computation]

    def _applied(self, computation: Computation) -> str:
        """A reducer, a comparator, a branch: as it is, but for names and metadata."""
        if self.count + len(computation.instructions) > MAX_APPLIED:
            raise Unusable
        names = {i.name: self._fresh(i.opcode) for i in computation.ordered}
        lines = [self._applied_line(i, names, i is computation.root) for i in computation.ordered]
        self.count += len(lines)
        return f"{self.applied[computation.name]} {{\n{''.join(lines)}}}\n"

    def _applied_line(self, instruction: Instruction, names: dict[str, str], root: bool) -> str:
        inside = ", ".join([names.get(name, "unknown") for name in instruction.definitions]) or instruction.arguments
        attributes = kept_attributes(instruction, self.graph.partitions > 1)
        return (f"  {'ROOT ' if root else ''}{names[instruction.name]} = {self.shape(instruction.shape)} "
                f"{instruction.opcode}({inside}){self._attributes(attributes)}\n")

