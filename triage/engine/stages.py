"""Reading stages: file -> chunks -> Module, each distinct text once."""
from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from .analysis import Chunk
from .files import StageFile
from .ir import Computation, Module
from .text import Parser, computation_head, split_chunks

MAX_STAGE_BYTES = 512 * 1024 * 1024     # a larger file is left out, and named
_NAME = re.compile(r"HloModule\s+([^\s,]+)")


@dataclass
class Stage:
    """One stage as read. `chunks` name texts in `StageReader.texts`."""
    file: StageFile
    chunks: tuple[Chunk, ...]
    instructions: int
    broken: str = ""            # one sentence where the text is damaged; what could be read is used
    cut: bool = False           # whole instructions are missing: what is not in the text may have been there


@dataclass
class StageReader:
    """Reads the stages of one module, keeping every distinct text and its parsed form."""
    parser: Parser = field(default_factory=Parser)
    texts: dict[str, str] = field(default_factory=dict)
    _files: dict[bytes, tuple[tuple[Chunk, ...], int, str, bool]] = field(default_factory=dict)
    _chunks: dict[str, Chunk] = field(default_factory=dict)
    _parsed: dict[str, Computation | None] = field(default_factory=dict)

    def read(self, file: StageFile) -> Stage:
        """Raises OSError where the file cannot be read."""
        if file.path.stat().st_size > MAX_STAGE_BYTES:
            return Stage(file, (), 0, f"larger than {MAX_STAGE_BYTES // 1024 ** 2} MiB, left out")
        data = file.path.read_bytes()
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if digest not in self._files:
            text = data.decode("utf-8", "backslashreplace").replace("\x00", "\\x00")
            self._files[digest] = self._split(text)
        return Stage(file, *self._files[digest])

    def _split(self, text: str) -> tuple[tuple[Chunk, ...], int, str, bool]:
        chunks = tuple(self._chunk(piece, position) for position, piece in enumerate(split_chunks(text)))
        named = chunks[1:]
        parsed = [self.computation(chunk) for chunk in named]
        cut = not all(c is not None and c.closed for c in parsed) or not any(c is not None and c.is_entry for c in parsed)
        return chunks, sum(len(c.instructions) for c in parsed if c is not None), self._damage(text, parsed), cut

    def _chunk(self, text: str, position: int) -> Chunk:
        chunk = self._chunks.get(text)
        if chunk is None:
            key = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=12).hexdigest()
            self.texts[key] = text
            name, entry = computation_head(text.split("\n", 1)[0]) or ("", False) if position else ("", False)
            lines = text.count("\n") + (not text.endswith("\n"))
            chunk = self._chunks[text] = Chunk(key, name, lines, entry)
        return chunk

    @staticmethod
    def _damage(text: str, parsed: list[Computation | None]) -> str:
        """What is wrong with a stage's text, in a few words; "" where nothing is."""
        if not text.strip():
            return "the file is empty"
        if not parsed:
            return "holds no HLO computation"
        if parsed[-1] is not None and not parsed[-1].closed:
            return "ends in the middle of a computation"
        if not any(c is not None and c.is_entry for c in parsed):
            return "names no entry computation; the last one is taken for it"
        lost = sum(c is None or not c.closed or bool(c.unparsed) for c in parsed)
        return f"{lost} of its {len(parsed)} computations hold lines that are no HLO, or are cut" if lost else ""

    def computation(self, chunk: Chunk) -> Computation | None:
        if chunk.key not in self._parsed:
            self._parsed[chunk.key] = self.parser.computation(self.texts[chunk.key])
        return self._parsed[chunk.key]

    def header(self, stage: Stage) -> str:
        return self.texts[stage.chunks[0].key] if stage.chunks else ""

    def module(self, stage: Stage) -> Module:
        """The stage's parsed form; computations that do not parse are missing in it."""
        header = self.header(stage)
        named = [c for chunk in stage.chunks[1:] if (c := self.computation(chunk)) is not None]
        entry = next((c for c in named if c.is_entry), named[-1] if named else None)
        match = _NAME.search(header)
        return Module(match[1] if match else "", header, {c.name: c for c in named}, entry)

