"""Parameter copies of one stage: the instructions that write a new buffer out of entry parameters alone."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from . import opcodes
from .flow import Flow
from .ir import Instruction, Module, Shape, number
from .values import Read, Source, Write, shape_at

MIB = 1024 * 1024
BEFORE_LOOP, IN_LOOP, ENTRY = "before_loop", "in_loop", "entry"


@dataclass(frozen=True)
class Parameter:
    number: int
    instruction: Instruction

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def shape(self) -> Shape:
        return self.instruction.shape


class ParameterCopy(NamedTuple):
    """One buffer written. `sources` are the entry parameters (number, index path) that decide its content."""
    key: tuple[str, ...]
    kind: str
    where: str
    loop: str | None
    sources: tuple[Source, ...]
    largest: Source                 # the largest of them: the parameter that a lineage follows
    bytes: int
    from_shape: Shape               # of the largest parameter
    to_shape: Shape
    instruction: Instruction
    computation: str
    readers: tuple[Read, ...]       # those inside a loop first

    @property
    def parameters(self) -> tuple[int, ...]:
        return tuple(sorted({number for number, _ in self.sources}))


@dataclass(frozen=True)
class StageCopies:
    copies: tuple[ParameterCopy, ...] = ()
    state_bytes: int = 0            # copies that only start a loop's own, overwritten state
    state_count: int = 0
    prefetched_bytes: int = 0       # parameters moved whole into another memory space
    prefetched_count: int = 0
    readers: dict[Source, tuple[Read, ...]] = field(default_factory=dict)   # who reads the large parameters
    cut: bool = False               # calls are nested or repeated beyond the engine's limits: there may be more

    def sum(self, where: str | None = None) -> int:
        return sum(copy.bytes for copy in self.copies if where is None or copy.where == where)


def entry_parameters(module: Module) -> list[Parameter]:
    """The entry computation's parameters in order of their numbers."""
    if module.entry is None:
        return []
    found = [Parameter(position, i) for i in module.entry.parameters if (position := number(i.arguments)) is not None]
    return sorted(found, key=lambda p: p.number)


def default_min_bytes(parameters: list[Parameter]) -> int:
    """1 MiB or 1% of the largest parameter, whichever is smaller; at least one byte."""
    largest = max((p.shape.bytes for p in parameters), default=0)
    return max(1, min(MIB, largest // 100))


def parameter_copies(module: Module, flow: Flow) -> StageCopies:
    """The stage's parameter copies in text order of their computations, and what was told apart from them."""
    summary = flow.entry(module)
    shapes = {p.number: p.shape for p in entry_parameters(module)}
    copies, state = [], []
    for write in summary.writes.values():
        if not _is_copy(write, shapes, flow.min_bytes):
            continue
        readers = summary.reads.get(write.key, [])
        if not readers and write.key in summary.state:
            state.append(write)         # the loop overwrites it: working memory, not a copy of the parameter
            continue
        copies.append(_copy(write, shapes, readers))
    prefetched = [size for buffer, size in summary.prefetches.items() if not isinstance(buffer[0], str)]
    sources = {buffer: _loops_first(readers) for buffer, readers in summary.reads.items()
               if isinstance(buffer[0], int) and _source_shape(buffer, shapes).bytes >= flow.min_bytes}
    return StageCopies(tuple(copies), sum(w.shape.bytes for w in state), len(state), sum(prefetched), len(prefetched),
                       sources, summary.cut)


def _loops_first(readers: list[Read]) -> tuple[Read, ...]:
    return tuple(sorted(readers, key=lambda reader: not reader.loops))


def _is_copy(write: Write, shapes: dict[int, Shape], min_bytes: int) -> bool:
    if write.fixed or (write.own == opcodes.SLICE and write.loops):
        return False
    return any(_source_shape(source, shapes).bytes >= min_bytes for source in write.deps)


def _source_shape(source: Source, shapes: dict[int, Shape]) -> Shape:
    shape = shapes.get(source[0])
    return shape_at(shape, source[1]) if shape is not None else Shape("opaque[]", "opaque")


def _copy(write: Write, shapes: dict[int, Shape], readers: list[Read]) -> ParameterCopy:
    sources = tuple(sorted(write.deps))
    readers = list(_loops_first(readers))
    if write.loops:
        where, loop = IN_LOOP, write.loops[0]
    elif readers and readers[0].loops:
        where, loop = BEFORE_LOOP, readers[0].loops[-1]
    else:
        where, loop = ENTRY, None
    largest = max(sources, key=lambda source: _source_shape(source, shapes).bytes)
    return ParameterCopy(write.key, opcodes.KIND_NAMES[write.kind], where, loop, sources, largest, write.shape.bytes,
                         _source_shape(largest, shapes), write.shape, write.instruction, write.computation, tuple(readers))
