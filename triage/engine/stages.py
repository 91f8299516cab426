"""Reading stages: file -> chunks -> Module, each distinct text once."""
from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import NamedTuple

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


class _Piece(NamedTuple):
    """A chunk and what it holds. `whole`: a computation to its closing brace, and nothing else."""
    chunk: Chunk
    computation: Computation | None
    instructions: int
    whole: bool
    is_cut: bool


@dataclass
class StageReader:
    """Reads the stages of one module, keeping every distinct text and its parsed form."""
    parser: Parser = field(default_factory=Parser)
    texts: dict[str, str] = field(default_factory=dict)
    _last: tuple[bytes, tuple] = (b"", ())      # the file read last: often the next one is the same
    _pieces: dict[str, _Piece] = field(default_factory=dict)
    _blocks: dict[str, tuple[str, tuple[_Piece, ...]]] = field(default_factory=dict)
    _by_chunk: dict[str, _Piece] = field(default_factory=dict)

    def read(self, file: StageFile) -> Stage:
        """Raises OSError where the file cannot be read."""
        if file.path.stat().st_size > MAX_STAGE_BYTES:
            return Stage(file, (), 0, f"larger than {MAX_STAGE_BYTES // 1024 ** 2} MiB, left out")
        data = file.path.read_bytes()
        if data != self._last[0] or not self._last[1]:
            self._last = data, self._split(data.decode("utf-8", "backslashreplace").replace("\x00", "\\x00"))
        return Stage(file, *self._last[1])

    def _split(self, text: str) -> tuple[tuple[Chunk, ...], int, str, bool]:
        header, pieces = self._divide(text)
        chunks = (self._chunk(header, ""), *[piece.chunk for piece in pieces])
        has_entry = any([chunk.entry for chunk in chunks])
        damaged = [piece for piece in pieces if not piece.whole]
        cut = not has_entry or any(piece.is_cut for piece in damaged)
        return chunks, sum([piece.instructions for piece in pieces]), self._damage(text, pieces, damaged, has_entry), cut

    def _divide(self, text: str) -> tuple[str, list[_Piece]]:
        """The text before the first computation, and the computations.

        Blocks between blank lines are looked up before anything in them is: nearly all were in the stage before.
        """
        header, pieces = "", []
        *blocks, last = text.split("\n\n")
        for block in [*blocks, None]:
            found = self._blocks.get(block) if block is not None else self._read_block(last)
            if found is None:
                found = self._blocks[block] = self._read_block(block + "\n\n")
            rest, computations = found
            if rest and pieces:
                pieces[-1] = self._piece(self.texts[pieces[-1].chunk.key] + rest)
            elif rest:
                header += rest
            pieces += computations
        return header, pieces

    def _read_block(self, text: str) -> tuple[str, tuple[_Piece, ...]]:
        rest, *chunks = split_chunks(text)
        return rest, tuple(map(self._piece, chunks))

    def _piece(self, text: str) -> _Piece:
        piece = self._pieces.get(text)
        if piece is None:
            name, entry = computation_head(text.split("\n", 1)[0]) or ("", False)
            chunk, parsed = self._chunk(text, name, entry), self.parser.computation(text)
            piece = _Piece(chunk, parsed, len(parsed.instructions) if parsed is not None else 0,
                           parsed is not None and parsed.closed and not parsed.unparsed,
                           parsed is None or not parsed.closed)
            self._pieces[text] = self._by_chunk[chunk.key] = piece
        return piece

    def _chunk(self, text: str, name: str, entry: bool = False) -> Chunk:
        key = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=12).hexdigest()
        self.texts[key] = text
        return Chunk(key, name, text.count("\n") + (not text.endswith("\n")), entry)

    @staticmethod
    def _damage(text: str, pieces: list[_Piece], damaged: list[_Piece], has_entry: bool) -> str:
        """What is wrong with a stage's text, in a few words; "" where nothing is."""
        if not text.strip():
            return "the file is empty"
        if not pieces:
            return "holds no HLO computation"
        if pieces[-1].is_cut and pieces[-1].computation is not None:
            return "ends in the middle of a computation"
        if not has_entry:
            return "names no entry computation; the last one is taken for it"
        return (f"{len(damaged)} of its {len(pieces)} computations hold lines that are no HLO, or are cut"
                if damaged else "")

    def header(self, stage: Stage) -> str:
        return self.texts[stage.chunks[0].key] if stage.chunks else ""

    def module(self, stage: Stage) -> Module:
        """The stage's parsed form; computations that do not parse are missing in it."""
        header = self.header(stage)
        named = [c for chunk in stage.chunks[1:] if (c := self._by_chunk[chunk.key].computation) is not None]
        entry = next((c for c in named if c.is_entry), named[-1] if named else None)
        match = _NAME.search(header)
        return Module(match[1] if match else "", header, {c.name: c for c in named}, entry)
