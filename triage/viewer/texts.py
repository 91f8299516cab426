"""The texts of one module's chunks, loaded once per page, only when asked for, and only as much as one page may read."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.engine.analysis import Chunk
from triage.engine.diff import MAX_BYTES, lines_of
from triage.engine.lines import defined_name
from triage.viewer.lines import MAX_LINE, PAGE_CHARACTERS, Beginning, beginning

#: Bytes of texts fetched at a time when a whole stage is streamed.
BATCH_BYTES = 4 * 1024 * 1024
#: Characters of a line in which the name it defines is looked for, where the line is longer than a piece.
DEFINITION = 10_000


class Texts:
    """A page reads MAX_BYTES of text at most. What does not fit is not `readable`: it is streamed, or not shown."""

    def __init__(self, dump: Dump, module: int) -> None:
        self.dump, self.module = dump, module
        self._room = MAX_BYTES
        self._known: dict[str, str] = {}
        self._lines: dict[str, list[str]] = {}

    def size(self, key: str) -> int:
        """Bytes of a text."""
        return storage.text_bytes(self.dump, self.module, key)

    def load(self, keys: Iterable[str]) -> dict[str, str]:
        """Fetches several texts at once, which is much faster than one by one; those that are readable."""
        wanted, missing = list(dict.fromkeys(keys)), []
        for key in wanted:
            if key not in self._known and self.size(key) <= self._room:
                self._room -= self.size(key)
                missing.append(key)
        if missing:
            self._known.update(storage.load_texts(self.dump, self.module, missing))
        return {key: self._known[key] for key in wanted if key in self._known}

    def readable(self, chunk: Chunk) -> bool:
        return chunk.key in self.load([chunk.key])

    def __call__(self, key: str) -> str:
        """Raises KeyError for a text that is not readable."""
        return self.load([key])[key]

    def lines(self, chunk: Chunk) -> list[str]:
        """The lines of a readable computation without the blank ones after it."""
        if chunk.key not in self._lines:
            self._lines[chunk.key] = lines_of(self(chunk.key))
        return self._lines[chunk.key]

    def window(self, chunk: Chunk, skip: int, count: int) -> list[Beginning]:
        """`count` lines after the first `skip`, of any chunk; fewer where it ends."""
        if self.readable(chunk):
            return [beginning(line) for line in self.lines(chunk)[skip:skip + count]]
        limit = min(MAX_LINE, PAGE_CHARACTERS // max(1, count))
        return list(islice(cut_lines(self._pieces(chunk), skip, limit), count))

    def stream(self, chunks: Sequence[Chunk]) -> Iterator[str]:
        """The text of a stage piece by piece, keeping none of it."""
        batch: list[str] = []
        room = BATCH_BYTES
        for chunk in chunks:
            size = self.size(chunk.key)
            if size > room:
                yield from self._batch(batch)
                batch, room = [], BATCH_BYTES
            if size > BATCH_BYTES:
                yield from self._pieces(chunk)
            else:
                batch.append(chunk.key)
                room -= size
        yield from self._batch(batch)

    def _batch(self, keys: Sequence[str]) -> Iterator[str]:
        found = storage.load_texts(self.dump, self.module, set(keys))
        return (found[key] for key in keys)

    def find(self, chunks: Sequence[Chunk], computation: str, instruction: str) -> int | None:
        """Line (from 1) at which a stage defines an instruction; None where it does not."""
        first = 1
        for chunk in chunks:
            if chunk.name == computation:
                pieces = [self(chunk.key)] if self.readable(chunk) else self._pieces(chunk)
                position = find_line(pieces, instruction)
                if position is not None:
                    return first + position
            first += chunk.lines
        return None

    def _pieces(self, chunk: Chunk) -> Iterator[str]:
        return storage.stream_text(self.dump, self.module, chunk.key)


def find_line(pieces: Iterable[str], instruction: str) -> int | None:
    """Line (from 0) that defines an instruction, in a text that comes in pieces. Lines are only split where it is named."""
    line, rest = 0, ""
    for piece in pieces:
        block, end, rest = (rest + piece).rpartition("\n")
        if instruction in block:
            for position, text in enumerate(block.split("\n")):
                if instruction in text and defined_name(text) == instruction:
                    return line + position
        line += block.count("\n") + len(end)
        rest = rest[:DEFINITION]
    return line if defined_name(rest) == instruction else None


def cut_lines(pieces: Iterable[str], skip: int, limit: int) -> Iterator[Beginning]:
    """The lines of a text that comes in pieces, after the first `skip`, cut after `limit` characters."""
    line, text, left_out = 0, "", 0
    for piece in pieces:
        if line < skip and line + (ends := piece.count("\n")) < skip:
            line += ends
            continue
        for number, part in enumerate(piece.split("\n")):
            if number:
                if line >= skip:
                    yield Beginning(text, left_out)
                line, text, left_out = line + 1, "", 0
            if line >= skip:
                kept = part[:max(0, limit - len(text))]
                text, left_out = text + kept, left_out + len(part) - len(kept)
    if text or left_out:
        yield Beginning(text, left_out)
