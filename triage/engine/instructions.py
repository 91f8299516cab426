"""What each line of HLO says: line -> Instruction, with its shapes and operands."""
from __future__ import annotations

import re
from dataclasses import replace

from .ir import BALANCE, CLOSE, MAX_DIGITS, OPEN, Instruction, Shape, Tile, number, split_top

#: No name holds a `#`: as an operand `t#0` is an element of `t`.
_INSTRUCTION = re.compile(r"\s*(?P<root>ROOT\s+)?%?(?P<name>[^\s=%(){},#]+)\s+=\s+")
_ARRAY_SHAPE = re.compile(r"(?P<type>[a-z]\w*)\[(?P<dims>[^\]]*)\](?:\{(?P<layout>[^{}]*)\})?")
_SHAPE_TOKEN = re.compile(r"\s*(b?\(|[),]|[a-z]\w*\[[^\]]*\](?:\{[^{}]*\})?|[^\s(),]+)")
_OPCODE = re.compile(r"\s*([\w\-]+)\(")
#: Nearly every line: an array, and neither brackets nor quotes among the operands. The others are read piece by piece.
_PLAIN = re.compile(r' *(ROOT )?%?([^\s=%(){},#]+) = ([a-z]\w*\[[^\]]*\](?:\{[^{}]*\})?) ([\w\-]+)\(([^()"]*)\)')
_LITERALS = frozenset({"constant", "parameter", "iota"})    # their arguments look like operands but name nothing
_OPERAND_NAME = re.compile(r"%([^\s,(){}\[\]/*]+)")
_TILES = re.compile(r"\(([^()]*)\)")
_LAYOUT_EXTRA = re.compile(r"(?<![A-Z])([A-Z]++|#|\*)((?:\([^()]*\))+)")
MAX_NESTING = 64        # of tuple shapes; what lies deeper is opaque
MAX_RANK = 64           # of an array; a shape of more dimensions is opaque


class Lines(dict[str, "Instruction | None"]):
    """The instruction on each line, None for a line that is none or is cut.

    A line that is not known yet is parsed where it is asked for: consecutive stages are nearly the same text.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shapes: dict[str, Shape] = {}
        # One object for equal names: the flow compares and hashes them millions of times.
        self._names: dict[str, str] = {}
        self._opcodes: dict[str, str] = {}

    def __missing__(self, line: str) -> Instruction | None:
        found = self[line] = self.parse(line)
        return found

    def parse(self, line: str) -> Instruction | None:
        """One instruction line; None where it is none or is cut."""
        match = _PLAIN.match(line)
        if match is None:
            return self._instruction_in_pieces(line)
        root, name, text, opcode, arguments = match.groups()
        shape = self._shapes.get(text) or self._shapes.setdefault(text, _array_shape(text))
        names = self._names
        name = names.setdefault(name, name)
        operands: tuple[str, ...] = ()
        if arguments and opcode not in _LITERALS:
            try:    # nearly always names of lines above and nothing else
                operands = tuple([names[operand] for operand in arguments.replace("%", "").split(", ")])
            except KeyError:
                operands = self._operands(arguments)
        opcode = self._opcodes.setdefault(opcode, opcode)
        return Instruction(name, shape, opcode, operands, arguments, match.end(), root is not None, line)

    def _instruction_in_pieces(self, line: str) -> Instruction | None:
        match = _INSTRUCTION.match(line)
        if match is None:
            return None
        shape, position = self._read_shape(line, match.end())
        opcode = _OPCODE.match(line, position)
        if shape is None or opcode is None:
            return None
        close = _closing(line, opcode.end() - 1)
        if close < 0:
            return None
        arguments = line[opcode.end():close]
        return Instruction(self._one_object(match["name"]), shape, self._opcodes.setdefault(opcode[1], opcode[1]),
                           () if opcode[1] in _LITERALS else self._operands(arguments), arguments, close + 1,
                           bool(match["root"]), line)

    def _operands(self, arguments: str) -> tuple[str, ...]:
        """Operand names; typed (`f32[4]{0} %x`), commented (`/*index=5*/`) and plain ones alike."""
        if not arguments:
            return ()
        arguments = _without_comments(arguments)
        if "%" in arguments:
            return tuple(map(self._one_object, _OPERAND_NAME.findall(arguments)))
        parts = split_top(arguments) if "{" in arguments or "(" in arguments or "[" in arguments else arguments.split(",")
        return tuple([self._one_object(part.split()[-1]) for part in parts if part.strip()])

    def _one_object(self, name: str) -> str:
        return self._names.setdefault(name, name)

    def shape(self, text: str) -> Shape | None:
        shape, _ = self._read_shape(text, 0)
        return shape

    def _read_shape(self, line: str, start: int) -> tuple[Shape | None, int]:
        grouped = line.startswith(("(", "b("), start)
        if grouped:
            end = _closing(line, line.index("(", start)) + 1
            if end <= 0:
                return None, start
        else:
            match = _ARRAY_SHAPE.match(line, start)
            if match is None:
                return None, start
            end = match.end()
        text = line[start:end]
        shape = self._shapes.get(text)
        if shape is None:
            shape = self._shapes[text] = self._grouped_shape(text) if grouped else _array_shape(text)
        return shape, end

    def _grouped_shape(self, text: str) -> Shape:
        """A tuple `(f32[4], s32[])` or a buffer `b(f32[4])`, which is the array in it."""
        stack: list[tuple[int, bool, list[Shape]]] = [(0, True, [])]
        for match in _SHAPE_TOKEN.finditer(_without_comments(text)):
            token = match[1]
            if token in ("(", "b("):
                stack.append((match.start(1), token == "b(", []))
            elif token == ")" and len(stack) > 1:
                start, buffer, parts = stack.pop()
                stack[-1][2].append(self._group(match.string, start, match.end(), buffer, parts, len(stack)))
            elif token not in (",", ")"):
                stack[-1][2].append(self._read_shape(token, 0)[0] or Shape(token, "opaque"))
        inner = stack[0][2][0] if stack[0][2] else Shape(text, "opaque")
        return replace(inner, text=text) if inner.is_tuple else inner

    def _group(self, text: str, start: int, end: int, buffer: bool, parts: list[Shape], depth: int) -> Shape:
        if depth > MAX_NESTING:
            return Shape("(...)", "opaque")
        if buffer:
            return parts[0] if parts else Shape("b()", "opaque")
        return Shape(text[start:end], parts=tuple(parts))


def _array_shape(text: str) -> Shape:
    match = _ARRAY_SHAPE.match(text)
    dims = tuple(_dimension(part) for part in match["dims"].split(",") if part.strip())
    if len(dims) > MAX_RANK:
        return Shape(text, "opaque")
    order, _, extras = (match["layout"] or "").partition(":")
    minor_to_major: tuple = tuple(number(part) for part in order.split(",") if part.strip())
    if set(minor_to_major) != set(range(len(dims))) or len(minor_to_major) != len(dims):
        minor_to_major = tuple(range(len(dims) - 1, -1, -1))
    tiles, bits, space = _layout_extras(extras)
    return Shape(text, match["type"], dims, minor_to_major, tiles, bits, space)


def _dimension(text: str) -> int:
    """`<=10` is a bound, `?` unknown: the bound counts, unknown counts 1."""
    digits = "".join(c for c in text if c.isdecimal())
    return int(digits[:MAX_DIGITS]) if digits else 1


def _layout_extras(text: str) -> tuple[tuple[Tile, ...], int, int]:
    """Tiles, element bits and memory space of `T(8,128)(2,1)E(4)S(1)`."""
    tiles: list[Tile] = []
    bits = space = 0
    for match in _LAYOUT_EXTRA.finditer(text):
        values = _TILES.findall(match[2])
        if match[1] == "T":
            tiles = [tuple(-1 if p.strip() == "*" else _dimension(p) for p in group.split(",")) for group in values]
        elif match[1] == "E":
            bits = _dimension(values[0])
        elif match[1] == "S":
            space = _dimension(values[0])
    return tuple(tiles), bits, space


def _closing(text: str, start: int) -> int:
    """Position of the bracket that closes the one at `start`; -1 where there is none. Quoted brackets do not count."""
    plain = text.find(")", start)
    if plain >= 0 and text.find("(", start + 1, plain) < 0 and text.find('"', start, plain) < 0:
        return plain
    depth = 0
    for match in BALANCE.finditer(text, start):
        token = match[0]
        if token in OPEN:
            depth += 1
        elif token in CLOSE:
            depth -= 1
            if depth == 0:
                return match.start()
    return -1


def _without_comments(text: str) -> str:
    """The text without `/* ... */`."""
    if "/*" not in text:
        return text
    parts, position = [], 0
    while (start := text.find("/*", position)) >= 0 and (end := text.find("*/", start + 2)) >= 0:
        parts.append(text[position:start])
        position = end + 2
    return "".join(parts) + text[position:]
