"""The texts of one module's chunks, loaded once per page and only when asked for."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.engine.analysis import Chunk
from triage.engine.diff import lines_of
from triage.engine.lines import defined_name

#: Chunks fetched at a time when a whole stage is streamed.
BATCH = 200


class Texts:
    def __init__(self, dump: Dump, module: int) -> None:
        self.dump, self.module = dump, module
        self._known: dict[str, str] = {}
        self._lines: dict[str, list[str]] = {}

    def load(self, keys: Iterable[str]) -> None:
        """Fetches several texts at once, which is much faster than one by one."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._known]
        if missing:
            self._known.update(storage.load_texts(self.dump, self.module, missing))

    def __call__(self, key: str) -> str:
        self.load([key])
        return self._known[key]

    def lines(self, chunk: Chunk) -> list[str]:
        """The lines of a computation without the blank ones after it."""
        if chunk.key not in self._lines:
            self._lines[chunk.key] = lines_of(self(chunk.key))
        return self._lines[chunk.key]

    def stream(self, chunks: Sequence[Chunk]) -> Iterator[str]:
        """The text of a stage piece by piece, keeping none of it."""
        for start in range(0, len(chunks), BATCH):
            batch = chunks[start:start + BATCH]
            found = storage.load_texts(self.dump, self.module, {chunk.key for chunk in batch})
            for chunk in batch:
                yield found[chunk.key]

    def find(self, chunks: Sequence[Chunk], computation: str, instruction: str) -> int | None:
        """Line (from 1) at which a stage defines an instruction; None where it does not."""
        line = 1
        for chunk in chunks:
            if chunk.name == computation:
                for position, text in enumerate(self.lines(chunk)):
                    if defined_name(text) == instruction:
                        return line + position
            line += chunk.lines
        return None
