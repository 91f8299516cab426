"""Tolerant HLO text parser: text -> chunks (one per computation) -> Computation.

Lines that are not understood are kept in `Computation.unparsed`; nothing here raises on any input. Every distinct
line and every distinct computation is parsed once per `Parser`: consecutive stages are nearly the same text.
"""
from __future__ import annotations

import re
from dataclasses import replace
from sys import intern

from .ir import BALANCE, CLOSE, MAX_DIGITS, OPEN, Computation, Instruction, Shape, Tile, number, split_top

#: How a computation's first line begins: long `%name (p: f32[4]) -> f32[4] {` or short `name {`. It ends with '{'.
_COMPUTATION = re.compile(r"(?P<entry>ENTRY\s+)?%?(?P<name>[\w.\-$<>:'@/]++)\s*[({]")
_COMMENTED_HEAD = re.compile(r"\{[ \t]*//")
_CLOSING_LINE = re.compile(r"\}\s*(?:$|//|/\*|,\s*execution_thread=)")
_AT_MARGIN = re.compile(r"\n(?=[^\s}])")
#: What may stand between computations: comments, and the tables of stack frames where they are printed at the end.
_BETWEEN = re.compile(r"\s*(?://|/\*|#|(?:FileNames|FunctionNames|FileLocations|StackFrames)\s*$|\d+ [\"{])")
_INSTRUCTION = re.compile(r"\s*(?P<root>ROOT\s+)?%?(?P<name>[^\s=%(){},]+)\s+=\s+")
_BEGINS = re.compile(r"\s*(?:ROOT\s+)?%?[^\s=%(){},]+\s+=(?:\s|$)")
_ARRAY_SHAPE = re.compile(r"(?P<type>[a-z]\w*)\[(?P<dims>[^\]]*)\](?:\{(?P<layout>[^{}]*)\})?")
_SHAPE_TOKEN = re.compile(r"\s*(b?\(|[),]|[a-z]\w*\[[^\]]*\](?:\{[^{}]*\})?|[^\s(),]+)")
_OPCODE = re.compile(r"\s*([\w\-]+)\(")
#: Nearly every line: an array, and neither brackets nor quotes among the operands. The others are read piece by piece.
_PLAIN = re.compile(r' *(ROOT )?%?([^\s=%(){},]+) = ([a-z]\w*\[[^\]]*\](?:\{[^{}]*\})?) ([\w\-]+)\(([^()"]*)\)')
_LITERALS = frozenset({"constant", "parameter", "iota"})    # their arguments look like operands but name nothing
_OPERAND_NAME = re.compile(r"%([^\s,(){}\[\]/*]+)")
_TILES = re.compile(r"\(([^()]*)\)")
_LAYOUT_EXTRA = re.compile(r"(?<![A-Z])([A-Z]++|#|\*)((?:\([^()]*\))+)")
MAX_NESTING = 64        # of tuple shapes; what lies deeper is opaque
MAX_RANK = 64           # of an array; a shape of more dimensions is opaque


def split_chunks(text: str) -> list[str]:
    """The text before the first computation, then one piece per computation; joined they are the text.

    A piece begins with a computation's first line and ends before the next one's: what stands between two of them
    (blank lines, comments) belongs to the former.
    """
    starts = [0] if computation_head(text.partition("\n")[0]) is None else [0, 0]
    for match in _AT_MARGIN.finditer(text):
        start = match.end()
        end = text.find("\n", start)
        if computation_head(text[start:end if end >= 0 else len(text)]) is not None:
            starts.append(start)
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)])]


def computation_head(line: str) -> tuple[str, bool] | None:
    """(name, is entry) of a computation's first line; None for any other line."""
    match = _COMPUTATION.match(line)
    if match is None or not line.rstrip().endswith("{") and not _COMMENTED_HEAD.search(line):
        return None
    return match["name"], bool(match["entry"])


class Parser:
    """Parses chunks, remembering each distinct line and shape."""

    def __init__(self) -> None:
        self._lines: dict[str, Instruction | None] = {}
        self._shapes: dict[str, Shape] = {}
        self._names: dict[str, str] = {}        # of instructions

    def computation(self, chunk: str) -> Computation | None:
        """The computation a chunk holds; None where the chunk does not start like one."""
        head, _, body = chunk.partition("\n")
        named = computation_head(head)
        if named is None:
            return None
        lines = body.split("\n")
        found = list(map(self._lines.get, lines))
        for position in [position for position, known in enumerate(found) if known is None]:
            found[position] = self._line(lines[position])
        end = found.index(None) if None in found else len(found)
        if lines[end:end + 1] == ["}"] and not any(lines[end + 1:]):
            instructions, unparsed, closed = found[:end], [], True
        else:
            instructions, unparsed, closed = self._assemble(lines, found)
        root = next((i for i in reversed(instructions) if i.is_root), instructions[-1] if instructions else None)
        return Computation(*named, tuple(instructions), root, tuple(unparsed), closed)

    def _line(self, line: str) -> Instruction | None:
        if line in self._lines:
            return self._lines[line]
        instruction = self._lines[line] = self.instruction(line)
        return instruction

    def _assemble(self, lines: list[str], found: list[Instruction | None]) -> tuple[list[Instruction], list[str], bool]:
        """(instructions, lines that are none, whether the computation is closed) of text that is not one per line."""
        instructions: list[Instruction] = []
        unparsed: list[str] = []
        loose: list[str] = []           # lines since the last instruction that is complete in one line
        closed = False
        for line, instruction in zip(lines, found):
            if instruction is not None and not closed:
                if loose:
                    self._settle(loose, instructions, unparsed)
                    loose = []
                instructions.append(instruction)
            elif closed:
                if line and not line.isspace() and not _BETWEEN.match(line):
                    unparsed.append(line)
            elif line and line[0] == "}" and _CLOSING_LINE.match(line):
                closed = True
            elif line and not line.isspace():
                loose.append(line)
        self._settle(loose, instructions, unparsed)
        return instructions, unparsed, closed

    def _settle(self, loose: list[str], instructions: list[Instruction], unparsed: list[str]) -> None:
        """Lines that are no instruction alone: the rest of the one before, or one written over several lines."""
        groups: list[list[str]] = [[]]
        for line in loose:
            if _BEGINS.match(line):
                groups.append([line])
            else:
                groups[-1].append(line)
        rest = [line for line in groups[0] if not _BETWEEN.match(line)]
        continued = _continuation(instructions[-1].tail, rest) if rest and instructions else []
        longer = self.instruction("\n".join([instructions[-1].line, *continued])) if continued else None
        if longer is not None:
            instructions[-1] = longer
        unparsed += rest[len(continued):] if longer is not None else rest
        for group in groups[1:]:
            instruction = self.instruction("\n".join(group))
            if instruction is None:
                unparsed += group
            else:
                instructions.append(instruction)

    def instruction(self, line: str) -> Instruction | None:
        """One instruction line; None where it is none or is cut."""
        match = _PLAIN.match(line)
        if match is None:
            return self._instruction_in_pieces(line)
        root, name, text, opcode, arguments = match.groups()
        shape = self._shapes.get(text) or self._shapes.setdefault(text, _array_shape(text))
        name, names = intern(name), self._names
        names[name] = name
        operands: tuple[str, ...] = ()
        if arguments and opcode not in _LITERALS:
            try:    # nearly always names of lines above and nothing else
                operands = tuple([names[operand] for operand in arguments.replace("%", "").split(", ")])
            except KeyError:
                operands = _operands(arguments)
        return Instruction(name, shape, intern(opcode), operands, arguments, line[match.end():], root is not None, line)

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
        return Instruction(intern(match["name"]), shape, intern(opcode[1]),
                           () if opcode[1] in _LITERALS else _operands(arguments), arguments, line[close + 1:],
                           bool(match["root"]), line)

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


def _continuation(tail: str, lines: list[str]) -> list[str]:
    """The lines that go on with the attributes `tail`: after a comma or inside brackets."""
    depth = sum(map(tail.count, OPEN)) - sum(map(tail.count, CLOSE))
    comma = tail.rstrip().endswith(",")
    for position, line in enumerate(lines):
        if not (comma or depth > 0 or line.lstrip().startswith(",")):
            return lines[:position]
        depth += sum(map(line.count, OPEN)) - sum(map(line.count, CLOSE))
        comma = line.rstrip().endswith(",")
    return lines


def _operands(arguments: str) -> tuple[str, ...]:
    """Operand names; typed (`f32[4]{0} %x`), commented (`/*index=5*/`) and plain ones alike."""
    if not arguments:
        return ()
    arguments = _without_comments(arguments)
    if "%" in arguments:
        return tuple(map(intern, _OPERAND_NAME.findall(arguments)))
    parts = split_top(arguments) if "{" in arguments or "(" in arguments or "[" in arguments else arguments.split(",")
    return tuple(intern(part.split()[-1]) for part in parts if part.strip())
