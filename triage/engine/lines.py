"""One HLO line as keys for comparing: without noise, without numbers in names, without names.

Passes renumber instructions and rewrite metadata all the time; a diff that shows this shows nothing else.

Every pattern here takes time that grows with the line only, whatever the line holds: it runs in the web process. So no
pattern that is searched for begins with a run (blanks, letters, digits), and runs that may fail give nothing back (`++`).
"""
from __future__ import annotations

import re
from sys import intern
from typing import NamedTuple

#: Attributes that say where an instruction comes from or how it is run, not what it computes.
NOISE = ("metadata", "backend_config", "frontend_attributes", "origin", "statistics", "stack_frame")
#: Longest line that is read. Of longer ones only the beginning is shown, and a diff compares them as they are: the longest
#: of the 160-layer benchmark has 55,000 characters.
MAX_LINE = 200_000
_NOISE = re.compile(rf"\b(?:{'|'.join(NOISE)})=(?=[{{\"])")
_FLAT = re.compile(r'\{(?:[^{}"]|"(?:[^"\\]|\\.)*+")*+\}')
#: A string that never closes is one token: scanning on from each escaped quote in it would take quadratic time.
_BRACES = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[{}]')
_HEAD = re.compile(r"(?:ENTRY\s++)?%?[\w.\-$<>@:/']++(?=\s*+\()")
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"')
_NAME = re.compile(r"%([\w.\-$<>@:/']++)")
_DEFINED = re.compile(r"\s*+(?:ROOT\s++)?%?([^\s=%(){},]++)\s++=\s")
_OPENING = re.compile(r"\s*+(?:ENTRY\s++)?%?([\w.\-$<>@:/']++)\s*+[({]")
_SHORT_OPERANDS = re.compile(r"\s(?!constant\(|parameter\(|iota\()[a-z][\w\-]*+\(([^()]*+)\)")
_SHORT_CALLED = re.compile(r"\b(?:calls|to_apply|condition|body|select|scatter|true_computation|false_computation)=")
_BARE = re.compile(r"(?<![\w.\-])([A-Za-z_][\w.\-]*+)(?![\[(=])")
_NUMBER = re.compile(r"\d+|clone|remat\d*")


class Keys(NamedTuple):
    plain: str              # without noise
    stems: str              # and every name without its trailing numbers
    structure: str          # and without any name
    names: tuple[str, ...]  # the names, in order, without '%'


def noise_ranges(line: str) -> list[tuple[int, int]]:
    """Where the noise attributes of a line are, each with the comma before it.

    The signature of a computation counts too: its parameters and its root say the same.
    """
    if signature := _signature(line):
        return [signature]
    ranges, position = [], 0
    while match := _NOISE.search(line, position):
        start = match.start()
        while start > position and line[start - 1].isspace():
            start -= 1
        if start > position and line[start - 1] == ",":
            start -= 1
        position = _value_end(line, match.end())
        ranges.append((start, position))
    return ranges


def _signature(line: str) -> tuple[int, int] | None:
    """Where the parameters and the result are in the first line of a computation, `%name (p: f32[]) -> f32[] {`."""
    end = len(line.rstrip()) - 1
    if end < 1 or line[end] != "{" or not line[end - 1].isspace():
        return None
    match = _HEAD.match(line)
    return (match.end(), end - 1) if match else None


def _value_end(line: str, start: int) -> int:
    """End of the `{...}` or `"..."` at `start`; the end of the line where it does not close."""
    if line[start] == '"':
        match = _STRING.match(line, start)
        return match.end() if match else len(line)
    if match := _FLAT.match(line, start):       # the usual case, in one step
        return match.end()
    depth = 0
    for match in _BRACES.finditer(line, start):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return match.end()
    return len(line)


def without_noise(line: str) -> str:
    ranges = noise_ranges(line)
    if not ranges:
        return line.rstrip()
    parts, position = [], 0
    for start, end in ranges:
        parts.append(line[position:start])
        position = end
    return ("".join(parts) + line[position:]).rstrip()


def defined_name(line: str) -> str:
    """The instruction a line defines, without '%'; "" where it defines none."""
    match = _DEFINED.match(line)
    return match[1] if match else ""


def name_ranges(text: str) -> list[tuple[int, int]]:
    """Where the names of instructions and computations are, without '%'."""
    if "%" in text:
        return [match.span(1) for match in _NAME.finditer(text)]
    first = _DEFINED.match(text) or _OPENING.match(text)
    ranges = [first.span(1)] if first else []
    if first and (operands := _SHORT_OPERANDS.search(text, first.end() - 1)):
        ranges += [match.span(1) for match in _BARE.finditer(text, operands.start(1), operands.end(1))]
        for attribute in _SHORT_CALLED.finditer(text, operands.end()):
            if called := _BARE.match(text, attribute.end()):
                ranges.append(called.span(1))
    return ranges


def stem(name: str) -> str:
    """A name without what makes it unique: `fusion.3.clone.1` is `fusion`."""
    end = len(name)
    while (dot := name.rfind(".", 0, end)) >= 0 and _NUMBER.fullmatch(name, dot + 1, end):
        end = dot
    return name[:end]


def keys(line: str) -> Keys:
    if len(line) > MAX_LINE:
        return exact_keys(line)
    plain = without_noise(line)
    names, stems, structure, position = [], [], [], 0
    for start, end in name_ranges(plain):
        name, between = plain[start:end], plain[position:start]
        names.append(intern(name))       # most names stand in several lines
        stems += (between, stem(name))
        structure.append(between)
        position = end
    rest = plain[position:]
    return Keys(plain, "".join(stems) + rest, "\0".join(structure) + rest, tuple(names))


def exact_keys(line: str) -> Keys:
    """Keys that compare the whole line: for a diff that shows everything, and for lines over MAX_LINE."""
    return Keys(line, line, line, ())
