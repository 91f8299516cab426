"""Tolerant HLO text parser: text -> chunks (one per computation) -> Computation.

Lines that are not understood are kept in `Computation.unparsed`; nothing here raises on any input. Every distinct
line and every distinct computation is parsed once per `Parser`: consecutive stages are nearly the same text.
"""
from __future__ import annotations

import re

from .ir import BALANCE, CLOSE, OPEN, Computation, Instruction, Shape, Tile, split_top

#: How a computation's first line begins: long `%name (p: f32[4]) -> f32[4] {` or short `name {`. It ends with '{'.
_COMPUTATION = re.compile(r"(?P<entry>ENTRY\s+)?%?(?P<name>[\w.\-$<>:'@/]+)\s*[({]")
_INSTRUCTION = re.compile(r"\s*(?P<root>ROOT\s+)?%?(?P<name>[^\s=%(){},]+)\s+=\s+")
_ARRAY_SHAPE = re.compile(r"(?P<type>[a-z]\w*)\[(?P<dims>[^\]]*)\](?:\{(?P<layout>[^{}]*)\})?")
_OPCODE = re.compile(r"\s*([\w\-]+)\(")
_COMMENT = re.compile(r"/\*.*?\*/")
_OPERAND_NAME = re.compile(r"%([^\s,(){}\[\]/*]+)")
_TILES = re.compile(r"\(([^()]*)\)")


def split_chunks(text: str) -> list[str]:
    """The text before the first computation, then one piece per computation; joined they are the text."""
    pieces, start = [], 0
    while (close := text.find("\n}", start)) >= 0:
        end = text.find("\n", close + 1)
        end = len(text) if end < 0 else end + 1
        while end < len(text) and text[end] == "\n":
            end += 1
        pieces.append(text[start:end])
        start = end
    if start < len(text):
        pieces.append(text[start:])
    return _split_header(pieces)


def _split_header(pieces: list[str]) -> list[str]:
    """Separates the header, whose tables and attributes may hold lines that begin with '}' themselves."""
    header = ""
    for position, piece in enumerate(pieces):
        start = 0
        for line in piece.splitlines(keepends=True):
            if computation_head(line) is not None:
                return [header + piece[:start], piece[start:], *pieces[position + 1:]]
            start += len(line)
        header += piece
    return [header]


def computation_head(line: str) -> tuple[str, bool] | None:
    """(name, is entry) of a computation's first line; None for any other line."""
    if not line.rstrip().endswith("{") or line[0].isspace():
        return None
    match = _COMPUTATION.match(line)
    return (match["name"], bool(match["entry"])) if match else None


class Parser:
    """Parses chunks, remembering each distinct line and shape."""

    def __init__(self) -> None:
        self._lines: dict[str, Instruction | None] = {}
        self._shapes: dict[str, Shape] = {}

    def computation(self, chunk: str) -> Computation | None:
        """The computation a chunk holds; None where the chunk does not start like one."""
        head, _, body = chunk.partition("\n")
        named = computation_head(head)
        if named is None:
            return None
        instructions, unparsed, lines = [], [], self._lines
        for line in body.split("\n"):
            if line in lines:
                instruction = lines[line]
            else:
                instruction = lines[line] = self.instruction(line)
            if instruction is not None:
                instructions.append(instruction)
            elif line and line[0] != "}" and not line.isspace():
                self._continue(instructions, unparsed, line)
        root = next((i for i in reversed(instructions) if i.is_root), instructions[-1] if instructions else None)
        return Computation(*named, tuple(instructions), {i.name: i for i in instructions},
                           root, tuple(unparsed))

    def _continue(self, instructions: list[Instruction], unparsed: list[str], line: str) -> None:
        """A line that starts no instruction continues the one before it (literals and attributes over several lines)."""
        if instructions:
            longer = self.instruction(instructions[-1].line + "\n" + line)
            if longer is not None:
                instructions[-1] = longer
                return
        unparsed.append(line)

    def instruction(self, line: str) -> Instruction | None:
        """One instruction line; None where it is none or is cut."""
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
        # Literals and parameter numbers look like operands but name nothing.
        operands = () if opcode[1] in ("constant", "parameter", "iota") else _operands(arguments)
        return Instruction(match["name"], shape, opcode[1], operands, arguments, line[close + 1:],
                           bool(match["root"]), line)

    def shape(self, text: str) -> Shape | None:
        shape, _ = self._read_shape(text, 0)
        return shape

    def _read_shape(self, line: str, start: int) -> tuple[Shape | None, int]:
        if line.startswith("(", start):
            end = _closing(line, start) + 1
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
            shape = self._shapes[text] = self._tuple_shape(text) if text[0] == "(" else _array_shape(text)
        return shape, end

    def _tuple_shape(self, text: str) -> Shape:
        parts = []
        for part in split_top(_COMMENT.sub("", text[1:-1])):
            shape, _ = self._read_shape(part.strip(), 0)
            parts.append(shape or Shape(part.strip(), "opaque"))
        return Shape(text, parts=tuple(parts))


def _array_shape(text: str) -> Shape:
    match = _ARRAY_SHAPE.match(text)
    dims = tuple(_dimension(part) for part in match["dims"].split(",") if part.strip())
    order, _, extras = (match["layout"] or "").partition(":")
    try:
        minor_to_major = tuple(int(part) for part in order.split(",") if part.strip())
    except ValueError:
        minor_to_major = ()
    if sorted(minor_to_major) != list(range(len(dims))):
        minor_to_major = tuple(range(len(dims) - 1, -1, -1))
    tiles, bits, space = _layout_extras(extras)
    return Shape(text, match["type"], dims, minor_to_major, tiles, bits, space)


def _dimension(text: str) -> int:
    """`<=10` is a bound, `?` unknown: the bound counts, unknown counts 1."""
    digits = "".join(c for c in text if c.isdigit())
    return int(digits[:18]) if digits else 1


def _layout_extras(text: str) -> tuple[tuple[Tile, ...], int, int]:
    """Tiles, element bits and memory space of `T(8,128)(2,1)E(4)S(1)`."""
    tiles: list[Tile] = []
    bits = space = 0
    for match in re.finditer(r"([A-Z]+|#|\*)((?:\([^()]*\))+)", text):
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


def _operands(arguments: str) -> tuple[str, ...]:
    """Operand names; typed (`f32[4]{0} %x`), commented (`/*index=5*/`) and plain ones alike."""
    if not arguments:
        return ()
    if "/*" in arguments:
        arguments = _COMMENT.sub("", arguments)
    if "%" in arguments:
        return tuple(_OPERAND_NAME.findall(arguments))
    parts = split_top(arguments) if "{" in arguments or "(" in arguments else arguments.split(",")
    return tuple(part.split()[-1] for part in parts if part.strip())
