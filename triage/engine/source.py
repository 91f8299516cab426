"""Where an instruction comes from in the user's program: op_name, file and line out of its metadata."""
from __future__ import annotations

import re
from dataclasses import dataclass

from .ir import Instruction, number

_FIELD = re.compile(r'\b(\w++)=("(?:[^"\\]++|\\.)*+"|[^\s}]+)')
_ROW = re.compile(r"(\d{1,18}) (.*)$")
_FIELDS = re.compile(r"\b(\w++)=(\d{1,18})")
_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)")
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True)
class SourceLine:
    """`op_name`, `file` and `line` (1-based) as the dump says; None where it does not."""
    op_name: str | None = None
    file: str | None = None
    line: int | None = None

    def as_dict(self) -> dict:
        return {"op_name": self.op_name, "file": self.file, "line": self.line}


class SourceTables:
    """The FileNames, FileLocations and StackFrames tables of one module's header."""

    def __init__(self, header: str) -> None:
        tables: dict[str, dict[int, str]] = {}
        rows: dict[int, str] | None = None
        for line in header.split("\n"):
            if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
                rows = tables.setdefault(line, {})
            elif rows is not None and (match := _ROW.match(line)):
                rows[int(match[1])] = match[2]
        self._tables = tables

    def source(self, instruction: Instruction) -> SourceLine:
        fields = dict(_FIELD.findall(instruction.attributes.get("metadata", "")))
        op_name = unquote(fields["op_name"]) if "op_name" in fields else None
        if "source_file" in fields:
            return SourceLine(op_name, unquote(fields["source_file"]), number(fields.get("source_line", "")))
        if "stack_frame_id" not in fields:
            return SourceLine(op_name)
        frame = self._row("StackFrames", number(fields["stack_frame_id"]))
        location = self._row("FileLocations", frame.get("file_location_id"))
        names = self._tables.get("FileNames", {})
        file = names.get(location.get("file_name_id", 0))
        return SourceLine(op_name, unquote(file) if file else None, location.get("line"))

    def _row(self, table: str, row: int | None) -> dict[str, int]:
        text = self._tables.get(table, {}).get(row or 0, "")
        return {key: int(value) for key, value in _FIELDS.findall(text)}


def unquote(text: str) -> str:
    """A C-escaped, quoted string as printed by XLA -> the text itself; octal bytes are read as UTF-8."""
    if len(text) < 2 or text[0] != '"':
        return text
    if "\\" not in text:
        return text[1:-1]

    def plain(match: re.Match) -> str:
        code = match[1]
        return chr(int(code, 8) & 255) if code[0] in "01234567" else _SIMPLE.get(code, code)
    inner = _ESCAPE.sub(plain, text[1:-1]).replace("\0", "\\0")
    try:
        return inner.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return inner
