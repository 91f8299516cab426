"""What the instructions of a computation write and read, and the summary made of it."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .values import Buffer, Read, Summary, Tree, Write

MAX_READERS = 6                 # readers remembered per buffer, inside loops and outside each


@dataclass(slots=True)
class Notes:
    """What one instruction adds to the summary of its computation."""
    reads: list[tuple[Buffer, Read]] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    state: list[tuple[Buffer, str]] = field(default_factory=list)
    prefetches: list[tuple[Buffer, int]] = field(default_factory=list)
    cut: bool = False


def summarise(root: Tree, notes: Iterable[Notes]) -> Summary:
    """The summary of a computation with this result, of the notes of its instructions in order."""
    result = Summary(root)
    for note in notes:
        for buffer, read in note.reads:
            _add_read(result.reads, buffer, read)
        result.writes.update([(write.key, write) for write in note.writes])
        for buffer, loop in note.state:
            result.state.setdefault(buffer, loop)
        result.prefetches.update(note.prefetches)
        result.cut = result.cut or note.cut
    return result


def _add_read(reads: dict[Buffer, list[Read]], buffer: Buffer, read: Read) -> None:
    """Remembers a reader; those inside loops and those outside are capped apart, so that neither hides the other."""
    readers = reads.setdefault(buffer, [])
    if len(readers) < MAX_READERS or sum([bool(known.loops) == bool(read.loops) for known in readers]) < MAX_READERS:
        readers.append(read)
