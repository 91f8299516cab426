"""HLO as values: Shape, Instruction, Computation, Module. Nothing here changes after parsing."""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Iterable

#: Bits of one element. Types under 8 bits take a whole byte unless their layout says `E(bits)`.
DTYPE_BITS = {
    "pred": 8, "s1": 1, "u1": 1, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16,
    "s32": 32, "u32": 32, "s64": 64, "u64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128,
    "f8e5m2": 8, "f8e4m3": 8, "f8e4m3fn": 8, "f8e4m3b11fnuz": 8, "f8e3m4": 8, "f8e5m2fnuz": 8, "f8e4m3fnuz": 8,
    "f8e8m0fnu": 8, "f4e2m1fn": 4, "f6e3m2fn": 6, "f6e2m3fn": 6, "token": 0, "opaque": 0,
}
#: What decides where an attribute ends. A string that never closes (a cut file) is one token, or scanning on from each
#: escaped quote in it would take quadratic time.
BALANCE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[()\[\]{}]|,', re.S)
OPEN, CLOSE = frozenset("([{"), frozenset(")]}")
MAX_DIGITS = 18                 # of a number that is read as one
MAX_BYTES = 2 ** 50             # of one array; the sizes of damaged text must not grow out of all bounds
_FIRST_CALLS = re.compile(r"(?:, kind=k\w+)?, (calls|to_apply|condition)=%?([\w.\-$<>:'@/]+)(?:,|$)")
_FIRST_LIST = re.compile(r", (\w+)=\{([\d,]*)\}(?:,|$)")
_ATTRIBUTE = re.compile(r"([\w.\-]+)=")
Tile = tuple[int, ...]          # one T(..) group; -1 stands for '*': the dimension joins the next more minor one


def number(text: str) -> int | None:
    """A decimal number; None for anything else, and for more than MAX_DIGITS digits."""
    text = text.strip()
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None


def split_top(text: str) -> list[str]:
    """Splits at the commas outside brackets and quotes; no empty parts."""
    parts, depth, start = [], 0, 0
    for match in BALANCE.finditer(text):
        token = match[0]
        if token in OPEN:
            depth += 1
        elif token in CLOSE:
            depth -= 1
        elif token == "," and depth <= 0:
            parts.append(text[start:match.start()])
            start = match.end()
    parts.append(text[start:])
    return [part for part in parts if part.strip()]


def read_attributes(text: str) -> dict[str, str]:
    """Top-level `key=value` pairs after the operands, raw. The first of equal keys counts."""
    result: dict[str, str] = {}
    if not text:
        return result
    if '"' not in text and "{" not in text and "[" not in text:
        parts = text.split(",")
    else:
        parts = split_top(text)
    key = None
    for part in map(str.strip, parts):
        match = _ATTRIBUTE.match(part)
        if match:
            key = match[1]
            result.setdefault(key, part[match.end():].lstrip())
        elif key and part.startswith("%"):
            result[key] += "," + part               # `calls=%a, %b`
    return result


@dataclass(frozen=True)
class Shape:
    """An array shape, or a tuple of shapes (`parts` is not None). `text` is what the dump says."""
    text: str
    dtype: str = ""
    dims: tuple[int, ...] = ()
    minor_to_major: tuple[int, ...] = ()    # empty for scalars; default descending order where no layout is printed
    tiles: tuple[Tile, ...] = ()
    element_bits: int = 0                   # from E(bits); 0 where the layout does not say
    memory_space: int = 0                   # from S(n); 0 is the device's main memory
    parts: tuple[Shape, ...] | None = None

    @property
    def is_tuple(self) -> bool:
        return self.parts is not None

    @cached_property
    def bytes(self) -> int:
        """Bytes of the buffer with tile padding, MAX_BYTES at most; the sum over the leaves for a tuple (without its
        index table)."""
        if self.parts is not None:
            return min(MAX_BYTES, sum(part.bytes for part in self.parts))
        elements = _padded_elements(self)
        bits = DTYPE_BITS.get(self.dtype, 8)
        if 0 < bits < 8 and not self.element_bits:
            bits = 8
        return min(MAX_BYTES, (elements * (self.element_bits or bits) + 7) // 8)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Dimensions from the slowest to the fastest varying in memory, those of size 1 left out."""
        return tuple(d for d in reversed(self.minor_to_major) if d < len(self.dims) and self.dims[d] != 1)

    @property
    def plain(self) -> str:
        """Type and dimensions without layout: `bf16[1024,16,64]`."""
        return self.text.split("{", 1)[0] if self.parts is None else self.text


def _padded_elements(shape: Shape) -> int:
    if not shape.tiles:
        return _product(shape.dims)
    sizes = [shape.dims[d] for d in reversed(shape.minor_to_major)] or [1]
    for tile in shape.tiles:
        sizes = _apply_tile(sizes, tile)
    return _product(sizes)


def _product(sizes: Iterable[int]) -> int:
    """The product, but MAX_BYTES at most: the dimensions of damaged text may multiply to anything."""
    result = 1
    for size in sizes:
        result = min(MAX_BYTES, result * size)
    return result


def _apply_tile(sizes: list[int], tile: Tile) -> list[int]:
    """Physical sizes after tiling the most minor dimensions: each becomes (number of tiles, tile size)."""
    sizes = [1] * (len(tile) - len(sizes)) + sizes
    keep, minor = sizes[:len(sizes) - len(tile)], sizes[len(sizes) - len(tile):]
    outer, inner, carried = [], [], 1
    for size, step in zip(minor, tile):
        if step < 0:
            carried *= size
            continue
        size, carried = size * carried, 1
        outer.append(-(-size // step) if step else size)
        inner.append(step or 1)
    return keep + outer + inner


class Instruction:
    """One line `[ROOT ]%name = shape opcode(operands)[, attributes]`; `operands` are names, `#k` suffixes kept.

    A plain class: a large dump has hundreds of thousands of them, and most are asked for nothing but their operands.
    """
    __slots__ = ("name", "shape", "opcode", "operands", "arguments", "tail_at", "is_root", "line", "definitions",
                 "mentioned", "_attributes")

    def __init__(self, name: str, shape: Shape, opcode: str, operands: tuple[str, ...], arguments: str, tail_at: int,
                 is_root: bool, line: str) -> None:
        self.name = name
        self.shape = shape
        self.opcode = opcode
        self.operands = operands
        self.arguments = arguments      # the text between the opcode's parentheses
        self.tail_at = tail_at          # where the text behind them begins in the line
        self.is_root = is_root
        self.line = line
        #: The operands' names without their `#k`.
        self.definitions = tuple([o.split("#", 1)[0] for o in operands]) if "#" in arguments else operands
        #: Every name of the line, its own one last; "" too where an instruction reads itself, which is never in order.
        self.mentioned = (*self.definitions, name) if name not in self.definitions else (*self.definitions, "", name)
        self._attributes: dict[str, str] | None = None

    @property
    def tail(self) -> str:
        """The text behind the operands."""
        return self.line[self.tail_at:]

    @property
    def attributes(self) -> dict[str, str]:
        """Raw attribute values by key, in printed order; the first of equal keys counts."""
        if self._attributes is None:
            self._attributes = read_attributes(self.tail)
        return self._attributes

    def called(self, key: str) -> str | None:
        """The computation named by attribute `key`, without '%'."""
        match = _FIRST_CALLS.match(self.line, self.tail_at)
        if match is not None and match[1] == key:       # most of the time: no need to read the rest
            return match[2]
        value = self.attributes.get(key)
        return value.strip().lstrip("%") if value else None

    def integers(self, key: str) -> tuple[int, ...]:
        """An attribute such as `dimensions={1,0}` as integers; () where it is missing or not a list of integers."""
        match = _FIRST_LIST.match(self.line, self.tail_at)
        text = match[2] if match is not None and match[1] == key else self.attributes.get(key, "").strip("{}")
        values = [number(part) for part in text.split(",") if part.strip()]
        return () if None in values else tuple(values)


@dataclass(frozen=True, eq=False)
class Computation:
    name: str
    is_entry: bool
    instructions: tuple[Instruction, ...]
    root: Instruction | None
    unparsed: tuple[str, ...] = ()      # lines that are no instruction; kept, never dropped
    closed: bool = True                 # whether the closing brace is there

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        return dict(zip(map(attrgetter("name"), self.instructions), self.instructions))

    @property
    def is_ambiguous(self) -> bool:
        """Whether two instructions have one name (damaged text); the last one counts."""
        return len(self.by_name) != len(self.instructions)

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        return tuple([instruction for instruction in self.instructions if instruction.opcode == "parameter"])

    @cached_property
    def ordered(self) -> tuple[Instruction, ...]:
        """Instructions with operands before their users: as printed, except in hand-written text."""
        # In order, every name is first mentioned where it is defined.
        mentioned = dict.fromkeys(chain.from_iterable(map(attrgetter("mentioned"), self.instructions)))
        return self.instructions if list(mentioned) == list(self.by_name) else self._sorted()

    def _sorted(self) -> tuple[Instruction, ...]:
        done: dict[str, Instruction] = {}
        waiting: set[str] = set()
        for first in self.instructions:
            stack = [first]
            while stack:
                instruction = stack[-1]
                missing = [self.by_name[name] for name in instruction.definitions
                           if name in self.by_name and name not in done and name not in waiting]
                if missing and instruction.name not in waiting:
                    waiting.add(instruction.name)
                    stack.extend(missing)
                    continue
                done.setdefault(instruction.name, instruction)
                stack.pop()
        return tuple(done.values())


@dataclass(frozen=True, eq=False)
class Module:
    """One stage: its header text and its computations in printed order."""
    name: str
    header: str
    computations: dict[str, Computation] = field(repr=False)
    entry: Computation | None = field(repr=False)
