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
_END = b"\n}\n\n"       # of a computation
_NAME = re.compile(r"HloModule\s+([^\s,]+)")


@dataclass
class Stage:
    """One stage as read. `chunks` name texts in `StageReader.texts`."""
    file: StageFile
    chunks: tuple[Chunk, ...] = ()
    computations: tuple[Computation, ...] = ()      # those of the chunks that parse
    instructions: int = 0
    broken: str = ""            # one sentence where the text is damaged; what could be read is used
    cut: bool = False           # whole instructions are missing: what is not in the text may have been there


class _Piece(NamedTuple):
    """A chunk and what it holds. `whole`: a computation to its closing brace, and nothing else."""
    chunk: Chunk
    computation: Computation | None
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

    def read(self, file: StageFile) -> Stage:
        """Raises OSError where the file cannot be read."""
        if file.path.stat().st_size > MAX_STAGE_BYTES:
            return Stage(file, broken=f"larger than {MAX_STAGE_BYTES // 1024 ** 2} MiB, left out")
        data = file.path.read_bytes()
        if data != self._last[0] or not self._last[1]:
            self._last = data, self._split(data)
        return Stage(file, *self._last[1])

    def _split(self, data: bytes) -> tuple[tuple[Chunk, ...], tuple[Computation, ...], int, str, bool]:
        header, pieces = self._divide(data)
        chunks = (self._chunk(header, _key_of(header), ""), *[piece.chunk for piece in pieces])
        has_entry = any([chunk.entry for chunk in chunks])
        damaged = [piece for piece in pieces if not piece.whole]
        cut = not has_entry or any(piece.is_cut for piece in damaged)
        computations = tuple([piece.computation for piece in pieces if piece.computation is not None])
        return (chunks, computations, sum([len(computation.instructions) for computation in computations]),
                self._damage(data, pieces, damaged, has_entry), cut)

    def _divide(self, data: bytes) -> tuple[str, list[_Piece]]:
        """The text before the first computation, and the computations.

        Blocks that end with a computation are looked up before anything in them is: nearly all were in the stage before.
        """
        pieces: list[_Piece] = []
        loose: dict[int, list[str]] = {}        # what stands behind so many pieces and begins none
        view, start = memoryview(data), 0
        while start < len(data):
            end = data.find(_END, start)
            end = end + len(_END) if end >= 0 else len(data)
            key = _key(view[start:end])
            found = self._blocks.get(key)
            if found is None:
                found = self._blocks[key] = self._read_block(key, data[start:end])
            rest, computations = found
            if rest:
                loose.setdefault(len(pieces), []).append(rest)
            pieces += computations
            start = end
        header = "".join(loose.pop(0, ()))
        for count, rests in loose.items():      # all at once: there may be very many behind one piece
            longer = self.texts[pieces[count - 1].chunk.key] + "".join(rests)
            pieces[count - 1] = self._piece(longer, _key_of(longer))
        return header, pieces

    def _read_block(self, key: str, data: bytes) -> tuple[str, tuple[_Piece, ...]]:
        text = data.decode("utf-8", "backslashreplace").replace("\x00", "\\x00")
        rest, *chunks = split_chunks(text)
        # Nearly always: a computation, and its bytes are its letters. The length alone does not tell: NUL makes a text
        # longer than its bytes, other letters make it shorter.
        if chunks == [text] and len(text) == len(data) and text.isascii():
            return "", (self._piece(text, key),)
        return rest, tuple([self._piece(chunk, _key_of(chunk)) for chunk in chunks])

    def _piece(self, text: str, key: str) -> _Piece:
        piece = self._pieces.get(key)
        if piece is None:
            name, entry = computation_head(text.split("\n", 1)[0]) or ("", False)
            chunk, parsed = self._chunk(text, key, name, entry), self.parser.computation(text)
            closed = parsed is not None and parsed.closed
            piece = self._pieces[key] = _Piece(chunk, parsed, closed and not parsed.unparsed, not closed)
        return piece

    def _chunk(self, text: str, key: str, name: str, entry: bool = False) -> Chunk:
        self.texts[key] = text
        return Chunk(key, name, text.count("\n") + (not text.endswith("\n")), entry)

    @staticmethod
    def _damage(data: bytes, pieces: list[_Piece], damaged: list[_Piece], has_entry: bool) -> str:
        """What is wrong with a stage's text, in a few words; "" where nothing is."""
        if not data or data.isspace():
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
        named = stage.computations
        entry = next((c for c in named if c.is_entry), named[-1] if named else None)
        match = _NAME.search(header)
        return Module(match[1] if match else "", header, {c.name: c for c in named}, entry)


def _key(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def _key_of(text: str) -> str:
    return _key(text.encode("utf-8", "backslashreplace"))
