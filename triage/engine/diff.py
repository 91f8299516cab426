"""Structural diff of two stages: computations paired first, then the lines of each pair.

The lists of chunks are compared before any text is read: equal keys are equal texts. What is left is paired by
content, by name, then by likeness, so that renumbered clones meet their originals.
"""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from .align import ADDED, CHANGED, MOVED, NOISE, REMOVED, RENAMED, SAME, Row, align
from .analysis import Chunk
from .lines import Keys, exact_keys, keys

EQUAL, REORDERED = "equal", "reordered"
#: Share of lines two computations have in common to count as one that changed.
MIN_LIKENESS = 0.5
#: A line that more computations than this contain says nothing about which belongs to which.
MAX_SHARERS = 50
#: Lines and bytes of a stage pair that are aligned; the largest computations beyond are reported without their lines.
#: The largest pair of the 160-layer benchmark has 130,000 lines in 14 MB.
MAX_LINES, MAX_BYTES = 150_000, 16 * 1024 * 1024


@dataclass(frozen=True)
class ComputationDiff:
    """One computation left and right.

    `status`: equal (the same text), renamed (only names, numbers or noise differ), reordered (the same lines in
    another order), changed, added, removed. `rows` is empty for equal ones; its positions count a chunk's lines from 0.
    """
    status: str
    left: Chunk | None
    right: Chunk | None
    left_at: int = -1           # positions in the lists of chunks; -1 where a side has none
    right_at: int = -1
    rows: tuple[Row, ...] = ()
    names: dict[str, str] = field(default_factory=dict)     # instruction left -> right
    capped: bool = False        # too large to be read: `rows` is empty though it changed

    @property
    def name(self) -> str:
        return (self.right or self.left).name

    def count(self, kind: str) -> int:
        return sum(row.kind == kind for row in self.rows)


@dataclass(frozen=True)
class StageDiff:
    computations: tuple[ComputationDiff, ...]   # in the order of the right stage; removed ones where they were

    def of_status(self, *statuses: str) -> list[ComputationDiff]:
        return [part for part in self.computations if part.status in statuses]

    @property
    def capped(self) -> bool:
        return any(part.capped for part in self.computations)

    def count(self, kind: str) -> int:
        """Lines of this kind (see align.Row) in all computations."""
        return sum(part.count(kind) for part in self.computations)


def changed_keys(left: Sequence[Chunk], right: Sequence[Chunk]) -> set[str]:
    """Keys of the texts a diff reads: those that are on one side only."""
    return {chunk.key for chunk in left} ^ {chunk.key for chunk in right}


def too_large(left: Sequence[Chunk], right: Sequence[Chunk], size: Callable[[str], int]) -> frozenset[str]:
    """Keys of the texts that a diff leaves out: the largest ones, until the others keep to MAX_LINES and MAX_BYTES.

    `size` tells the bytes of a text.
    """
    lines = {chunk.key: chunk.lines for chunk in (*left, *right)}
    lines_left, bytes_left = MAX_LINES, MAX_BYTES
    left_out = set()
    for count, key in sorted((size(key), key) for key in changed_keys(left, right)):
        if count > bytes_left or lines[key] > lines_left:
            left_out.add(key)
        else:
            lines_left, bytes_left = lines_left - lines[key], bytes_left - count
    return frozenset(left_out)


def lines_of(text: str) -> list[str]:
    """The lines of a chunk without the blank ones at its end."""
    return text.rstrip("\r\n").split("\n") if text.strip("\r\n") else []


def diff_stages(left: Sequence[Chunk], right: Sequence[Chunk], text: Callable[[str], str], *,
                exact: bool = False, left_out: frozenset[str] = frozenset()) -> StageDiff:
    """Diff of two stages. `text` looks up the texts of `changed_keys(left, right)` that are not `left_out`.

    By default names that differ consistently and noise attributes (metadata, backend_config, frontend_attributes) are
    no change; `exact` compares whole lines.
    """
    cached = lru_cache(maxsize=None)(keys)      # most lines are on both sides
    make = exact_keys if exact else cached
    pairs = _Pairing(left, right, text, cached, left_out).pairs()
    called = {left[i].name: right[j].name for i, j in pairs}
    callers = {new: old for old, new in called.items()}
    partner = {j: i for i, j in pairs}
    removed = set(range(len(left))) - {i for i, _ in pairs}
    parts: list[ComputationDiff] = []
    for j, chunk in enumerate(right):
        i = partner.get(j)
        if i is None:
            parts.append(_one_sided(ADDED, chunk, j, text, left_out))
            continue
        capped = left[i].key in left_out or chunk.key in left_out
        part = _pair(left[i], chunk, text, (called, callers), make, capped)
        parts.append(replace(part, left_at=i, right_at=j))
        while i + 1 in removed:
            i += 1
            removed.discard(i)
            parts.append(_one_sided(REMOVED, left[i], i, text, left_out))
    first = [_one_sided(REMOVED, left[i], i, text, left_out) for i in sorted(removed)]
    return StageDiff((*first, *parts))


def _one_sided(status: str, chunk: Chunk, at: int, text: Callable[[str], str],
               left_out: frozenset[str]) -> ComputationDiff:
    capped = chunk.key in left_out
    count = range(0 if capped else len(lines_of(text(chunk.key))))
    if status == ADDED:
        rows = tuple(Row(ADDED, None, k) for k in count)
        return ComputationDiff(status, None, chunk, right_at=at, rows=rows, capped=capped)
    rows = tuple(Row(REMOVED, k, None) for k in count)
    return ComputationDiff(status, chunk, None, left_at=at, rows=rows, capped=capped)


def _pair(left: Chunk, right: Chunk, text: Callable[[str], str], partners: tuple[dict[str, str], dict[str, str]],
          make: Callable[[str], Keys], capped: bool) -> ComputationDiff:
    if left.key == right.key:
        return ComputationDiff(EQUAL, left, right)
    if capped:
        return ComputationDiff(CHANGED, left, right, capped=True)
    old, new = lines_of(text(left.key)), lines_of(text(right.key))
    if not left.name and not right.name and make is not exact_keys:
        old, new = _head(old), _head(new)
    alignment = align(old, new, [make(line) for line in old], [make(line) for line in new], *partners)
    return ComputationDiff(_status(alignment.rows), left, right, rows=alignment.rows, names=alignment.names)


def _head(lines: list[str]) -> list[str]:
    """The module's own lines, without the tables of files, functions and stack frames: they are metadata."""
    return lines[:lines.index("")] if "" in lines else lines


def _status(rows: Iterable[Row]) -> str:
    kinds = {row.kind for row in rows}
    if kinds <= {SAME, NOISE, RENAMED}:
        return RENAMED
    return REORDERED if kinds <= {SAME, NOISE, RENAMED, MOVED} else CHANGED


class _Pairing:
    """Which computation left is which right."""

    def __init__(self, left: Sequence[Chunk], right: Sequence[Chunk], text: Callable[[str], str],
                 make: Callable[[str], Keys], left_out: frozenset[str]) -> None:
        self.left, self.right, self.text, self.make, self.left_out = left, right, text, make, left_out
        self.found: dict[int, int] = {}
        self.free_left, self.free_right = set(range(len(left))), set(range(len(right)))

    def pairs(self) -> list[tuple[int, int]]:
        self._match(lambda chunk: (chunk.key, chunk.name))
        self._match(lambda chunk: chunk.key)
        self._match(lambda chunk: ("header",) if not chunk.name else ("entry",) if chunk.entry else None)
        old = {i: Counter(self._structure(self.left[i])) for i in self.free_left}
        new = {j: Counter(self._structure(self.right[j])) for j in self.free_right}
        self._match_content(old, new)
        self._match_likeness(old, new)
        self._match(lambda chunk: chunk.name)
        return sorted(self.found.items())

    def _take(self, i: int, j: int) -> None:
        self.found[i] = j
        self.free_left.discard(i)
        self.free_right.discard(j)

    def _match(self, key: Callable[[Chunk], object]) -> None:
        """Pairs free chunks with the same key in order; None keys stay free."""
        places = defaultdict(list)
        for j in sorted(self.free_right, reverse=True):
            places[key(self.right[j])].append(j)
        for i in sorted(self.free_left):
            wanted = key(self.left[i])
            if wanted is not None and places.get(wanted):
                self._take(i, places[wanted].pop())

    def _structure(self, chunk: Chunk) -> list[str]:
        if chunk.key in self.left_out:
            return [f"\0{chunk.key}"]       # like no other
        return [self.make(line).structure for line in lines_of(self.text(chunk.key))[1:-1]]

    def _match_content(self, old: dict[int, Counter], new: dict[int, Counter]) -> None:
        """The same instructions under other names; the same name wins among several."""
        left_content = {i: frozenset(lines.items()) for i, lines in old.items()}
        right_content = {j: frozenset(lines.items()) for j, lines in new.items()}
        for by_name in (True, False):
            places = defaultdict(list)
            for j in sorted(self.free_right, reverse=True):
                places[right_content[j], by_name and self.right[j].name].append(j)
            for i in sorted(self.free_left):
                if options := places.get((left_content[i], by_name and self.left[i].name)):
                    self._take(i, options.pop())

    def _match_likeness(self, old: dict[int, Counter], new: dict[int, Counter]) -> None:
        where = defaultdict(list)
        for j in sorted(self.free_right):
            for line in new[j]:
                where[line].append(j)
        scored = []
        for i in sorted(self.free_left):
            shared: Counter = Counter()
            for line, count in old[i].items():
                for j in where.get(line, ())[:MAX_SHARERS]:
                    shared[j] += min(count, new[j][line])
            for j, common in shared.items():
                likeness = 2 * common / (old[i].total() + new[j].total())
                if likeness >= MIN_LIKENESS:
                    scored.append((-likeness, self.left[i].name != self.right[j].name, i, j))
        for _, _, i, j in sorted(scored):
            if i in self.free_left and j in self.free_right:
                self._take(i, j)
