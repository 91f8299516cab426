"""Tolerant HLO text parser: text -> chunks (one per computation) -> Computation.

Lines that are not understood are kept in `Computation.unparsed`; nothing here raises on any input. Every distinct
line and every distinct computation is parsed once per `Parser`: consecutive stages are nearly the same text.
"""
from __future__ import annotations

import re

from .instructions import Lines
from .ir import CLOSE, OPEN, Computation, Instruction

#: How a computation's first line begins: long `%name (p: f32[4]) -> f32[4] {` or short `name {`. It ends with '{'.
_COMPUTATION = re.compile(r"(?P<entry>ENTRY\s+)?%?(?P<name>[\w.\-$<>:'@/]++)\s*[({]")
_COMMENTED_HEAD = re.compile(r"\{[ \t]*//")
_CLOSING_LINE = re.compile(r"\}\s*(?:$|//|/\*|,\s*execution_thread=)")
_AT_MARGIN = re.compile(r"\n(?=[^\s}])")
#: What may stand between computations: comments, and the tables of stack frames where they are printed at the end.
_BETWEEN = re.compile(r"\s*(?://|/\*|#|(?:FileNames|FunctionNames|FileLocations|StackFrames)\s*$|\d+ [\"{])")
_BEGINS = re.compile(r"\s*(?:ROOT\s+)?%?[^\s=%(){},]+\s+=(?:\s|$)")



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
        self.lines = Lines()

    def computation(self, chunk: str) -> Computation | None:
        """The computation a chunk holds; None where the chunk does not start like one."""
        head, _, body = chunk.partition("\n")
        named = computation_head(head)
        if named is None:
            return None
        lines = body.split("\n")
        found = list(map(self.lines.__getitem__, lines))
        end = found.index(None) if None in found else len(found)
        if lines[end:end + 1] == ["}"] and not any(lines[end + 1:]):
            instructions, unparsed, closed = found[:end], [], True
        else:
            instructions, unparsed, closed = self._assemble(lines, found)
        root = next((i for i in reversed(instructions) if i.is_root), instructions[-1] if instructions else None)
        return Computation(*named, tuple(instructions), root, tuple(unparsed), closed)

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
        longer = self.lines.parse("\n".join([instructions[-1].line, *continued])) if continued else None
        if longer is not None:
            instructions[-1] = longer
        unparsed += rest[len(continued):] if longer is not None else rest
        for group in groups[1:]:
            instruction = self.lines.parse("\n".join(group))
            if instruction is None:
                unparsed += group
            else:
                instructions.append(instruction)


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
