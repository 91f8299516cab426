"""A module as XLA's own parser reads it: `jaxlib._hlo` parses the text, the serialized HloModuleProto is decoded here.

Nothing of triage.engine is used, so that tests can hold the engine against it. Field numbers: xla/service/hlo.proto,
xla/xla_data.proto.
"""
from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Callable

from jaxlib import _hlo

TYPES = {1: ("pred", 8), 2: ("s8", 8), 3: ("s16", 16), 4: ("s32", 32), 5: ("s64", 64), 6: ("u8", 8), 7: ("u16", 16),
         8: ("u32", 32), 9: ("u64", 64), 10: ("f16", 16), 11: ("f32", 32), 12: ("f64", 64), 15: ("c64", 64),
         16: ("bf16", 16), 18: ("c128", 128), 19: ("f8e5m2", 8), 20: ("f8e4m3fn", 8), 21: ("s4", 8), 22: ("u4", 8),
         23: ("f8e4m3b11fnuz", 8), 24: ("f8e5m2fnuz", 8), 25: ("f8e4m3fnuz", 8), 26: ("s2", 8), 27: ("u2", 8),
         28: ("f8e4m3", 8), 29: ("f8e3m4", 8), 30: ("s1", 8), 31: ("u1", 8), 32: ("f4e2m1fn", 8), 33: ("f8e8m0fnu", 8)}
TUPLE, OPAQUE, TOKEN = 13, 14, 17
COMBINE = -2 ** 63      # a tile dimension '*'


@dataclass(frozen=True)
class XShape:
    type: int
    dims: tuple[int, ...] = ()
    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    element_bits: int = 0
    space: int = 0
    parts: tuple[XShape, ...] | None = None

    def physical(self, sizes: list, one: object, combine: Callable, split: Callable) -> list:
        """`sizes` (most major first) after the tiles; `combine(a, b)` joins two dimensions, `split(a, n)` cuts one."""
        for tile in self.tiles:
            sizes = [one] * (len(tile) - len(sizes)) + sizes
            keep, minor = sizes[:len(sizes) - len(tile)], sizes[len(sizes) - len(tile):]
            outer, inner, carried = [], [], None
            for value, step in zip(minor, tile):
                value = value if carried is None else combine(carried, value)
                carried = value if step == COMBINE else None
                if step != COMBINE:
                    out, rest = split(value, step)
                    outer.append(out)
                    inner.append(rest)
            sizes = keep + outer + inner
        return sizes

    def padded(self) -> list[int]:
        """Sizes in memory, tiles and their padding included, most major first."""
        return self.physical([self.dims[d] for d in reversed(self.minor_to_major)], 1, lambda a, b: a * b,
                             lambda size, step: (-(-size // step), step))

    @property
    def bytes(self) -> int:
        if self.parts is not None:
            return sum(part.bytes for part in self.parts)
        bits = self.element_bits or TYPES.get(self.type, ("", 0))[1]
        return (math.prod(self.padded()) * bits + 7) // 8


@dataclass
class XInstruction:
    id: int
    name: str
    opcode: str
    shape: XShape
    operand_ids: list[int]
    called_ids: list[int]
    dimensions: tuple[int, ...]
    parameter_number: int
    tuple_index: int
    target: str


@dataclass
class XComputation:
    id: int
    name: str
    root_id: int
    instructions: dict[int, XInstruction] = field(default_factory=dict)     # operands before their users


@dataclass
class XModule:
    computations: dict[int, XComputation]
    entry_id: int

    @property
    def entry(self) -> XComputation:
        return self.computations[self.entry_id]


def read_module(text: str) -> XModule:
    """Raises whatever XLA's parser raises."""
    module = XModule({}, 0)
    for number, value in _fields(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()):
        if number == 3:
            computation = _computation(value)
            module.computations[computation.id] = computation
        elif number == 6:
            module.entry_id = value
    return module


def _computation(data: memoryview) -> XComputation:
    result = XComputation(0, "", 0)
    for number, value in _fields(data):
        if number == 1:
            result.name = bytes(value).decode()
        elif number == 2:
            instruction = _instruction(value)
            result.instructions[instruction.id] = instruction
        elif number == 5:
            result.id = value
        elif number == 6:
            result.root_id = value
    return result


def _instruction(data: memoryview) -> XInstruction:
    result = XInstruction(0, "", "", XShape(0), [], [], (), 0, 0, "")
    for number, value in _fields(data):
        if number == 1:
            result.name = bytes(value).decode()
        elif number == 2:
            result.opcode = bytes(value).decode()
        elif number == 3:
            result.shape = _shape(value)
        elif number == 9:
            result.parameter_number = value
        elif number == 13:
            result.tuple_index = value
        elif number == 14:
            result.dimensions += tuple(_integers(value))
        elif number == 28:
            result.target = bytes(value).decode()
        elif number == 35:
            result.id = value
        elif number == 36:
            result.operand_ids += _integers(value)
        elif number == 38:
            result.called_ids += _integers(value)
    return result


_shapes: dict[bytes, XShape] = {}


def _shape(data: memoryview) -> XShape:
    known = _shapes.get(key := bytes(data))
    if known is None:
        known = _shapes[key] = _read_shape(data)
    return known


def _read_shape(data: memoryview) -> XShape:
    kind, dims, parts, layout = 0, [], [], None
    for number, value in _fields(data):
        if number == 2:
            kind = value
        elif number == 3:
            dims += _integers(value)
        elif number == 4:
            parts.append(_shape(value))
        elif number == 5:
            layout = value
    if kind == TUPLE:
        return XShape(kind, parts=tuple(parts))
    order, tiles, bits, space = list(range(len(dims)))[::-1], [], 0, 0
    for number, value in _fields(layout or memoryview(b"")):
        if number == 1:
            order = _integers(value)
        elif number == 6:
            tiles.append(tuple(i for n, v in _fields(value) if n == 1 for i in _integers(v)))
        elif number == 7:
            bits = value
        elif number == 8:
            space = value
    return XShape(kind, tuple(dims), tuple(order), tuple(tiles), bits, space)


def _fields(data) -> list[tuple[int, object]]:
    """(field number, value) of a protobuf message: integers, or the bytes of what has a length."""
    view, position, result = memoryview(data), 0, []
    while position < len(view):
        tag, position = _varint(view, position)
        if tag & 7 == 0:
            value, position = _varint(view, position)
            value = value - 2 ** 64 if value >= 2 ** 63 else value
        elif tag & 7 == 2:
            size, position = _varint(view, position)
            value, position = view[position:position + size], position + size
        else:
            size = 8 if tag & 7 == 1 else 4
            value, position = struct.unpack_from("<q" if size == 8 else "<i", view, position)[0], position + size
        result.append((tag >> 3, value))
    return result


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    byte = view[position]
    if byte < 128:
        return byte, position + 1
    value, shift = 0, 0
    while True:
        byte = view[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position


def _integers(value) -> list[int]:
    """A repeated integer, packed or not."""
    if isinstance(value, int):
        return [value]
    result, position = [], 0
    while position < len(value):
        number, position = _varint(value, position)
        result.append(number - 2 ** 64 if number >= 2 ** 63 else number)
    return result
