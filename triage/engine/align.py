"""Two lists of HLO lines aligned: which line became which.

Anchors first (lines that are equal and unique on both sides), then what lies between them, with ever weaker keys. No
step costs more than n log n except inside gaps of at most MAX_GAP_CELLS, so 30,000 lines take a second.
"""
from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from .lines import Keys, defined_name, stem

#: Lines left times lines right of a gap that difflib may look at; larger ones are aligned by occurrence.
MAX_GAP_CELLS = 10_000

SAME, NOISE, RENAMED, CHANGED, MOVED, REMOVED, ADDED = (
    "same", "noise", "renamed", "changed", "moved", "removed", "added")
Pairs = list[tuple[int, int]]
Range = tuple[int, int, int, int]       # left start, left end, right start, right end


class Row(NamedTuple):
    """One line of a diff: positions in the two lists, None where a side has no such line.

    `noise` rows differ only in noise (lines.NOISE), `renamed` ones in names that are other names throughout.
    """
    kind: str
    left: int | None
    right: int | None


class Alignment(NamedTuple):
    rows: tuple[Row, ...]
    names: dict[str, str]       # instruction left -> the same instruction right


def align(left: Sequence[str], right: Sequence[str], left_keys: Sequence[Keys], right_keys: Sequence[Keys],
          called: Mapping[str, str], callers: Mapping[str, str]) -> Alignment:
    """Aligns two computations. `called` maps computations left to their partners right, `callers` the other way."""
    equal = _equal_lines(left_keys, right_keys)
    # Lines that only moved are no candidates for having changed into another line.
    moved = _moved(equal, [key.plain for key in left_keys], [key.plain for key in right_keys])
    gone, came = {i for i, _ in moved}, {j for _, j in moved}
    old = ["" if i in gone else defined_name(line) for i, line in enumerate(left)]
    new = ["" if j in came else defined_name(line) for j, line in enumerate(right)]
    pairs = _gaps_filled(equal, len(left), len(right), lambda gap: _similar(gap, old, new))
    moved += _moved(pairs + moved, [key.stems for key in left_keys], [key.stems for key in right_keys])
    moved += _moved(pairs + moved, old, new)
    moved.sort()
    names = {}
    for i, j in (*pairs, *moved):
        if name := defined_name(left[i]):
            names[name] = defined_name(right[j])
    judge = _Judge(left, right, left_keys, right_keys, names, called, callers)
    return Alignment(tuple(_rows(pairs, moved, len(left), len(right), judge)), names)


class _Judge:
    """Tells whether two lines say the same, names translated."""

    def __init__(self, left_lines: Sequence[str], right_lines: Sequence[str], left: Sequence[Keys],
                 right: Sequence[Keys], names: Mapping[str, str], called: Mapping[str, str],
                 callers: Mapping[str, str]) -> None:
        self.left_lines, self.right_lines, self.left, self.right = left_lines, right_lines, left, right
        # An instruction's name comes before a computation's. The maps of computations are large: they are not merged.
        self.forward = (names, called)
        self.backward = ({new: old for old, new in names.items()}, callers)

    def kind(self, i: int, j: int) -> str:
        left, right = self.left[i], self.right[j]
        if left.plain == right.plain and left.names == right.names and self._same_names(left, right):
            return SAME if self.left_lines[i] == self.right_lines[j] else NOISE
        if left.structure == right.structure and len(left.names) == len(right.names) and self._same_names(left, right):
            return RENAMED
        return CHANGED

    def _same_names(self, left: Keys, right: Keys) -> bool:
        for old, new in zip(left.names, right.names):
            known = _first(self.forward, old)
            if known is None:
                known = new if _first(self.backward, new) in (None, old) else None
            if known != new:
                return False
        return True


def _first(maps: tuple[Mapping[str, str], ...], name: str) -> str | None:
    for known in maps:
        if name in known:
            return known[name]
    return None


def _rows(pairs: Pairs, moved: Pairs, n: int, m: int, judge: _Judge) -> list[Row]:
    gone, came = {i for i, _ in moved}, {j: i for i, j in moved}
    rows: list[Row] = []
    i = j = 0
    for x, y in (*pairs, (n, m)):
        rows += (Row(REMOVED, k, None) for k in range(i, x) if k not in gone)
        for k in range(j, y):
            if k not in came:
                rows.append(Row(ADDED, None, k))
            else:
                kind = judge.kind(came[k], k)
                rows.append(Row(CHANGED if kind == CHANGED else MOVED, came[k], k))
        if x < n:
            rows.append(Row(judge.kind(x, y), x, y))
        i, j = x + 1, y + 1
    return rows


def _equal_lines(left: Sequence[Keys], right: Sequence[Keys]) -> Pairs:
    """Pairs of lines with equal keys, in order on both sides: whole text, then without numbers, then structure."""
    pairs = _unique([key.plain for key in left], [key.plain for key in right])
    for get in (lambda key: key.plain, lambda key: key.stems, lambda key: key.structure):
        pairs = _gaps_filled(pairs, len(left), len(right), lambda gap: _between(gap, left, right, get))  # noqa: B023
    return pairs


def _gaps_filled(pairs: Pairs, n: int, m: int, fill) -> Pairs:
    result: Pairs = []
    i = j = 0
    for x, y in (*pairs, (n, m)):
        if i < x and j < y:
            result += fill((i, x, j, y))
        if x < n:
            result.append((x, y))
        i, j = x + 1, y + 1
    return result


def _between(gap: Range, left: Sequence[Keys], right: Sequence[Keys], get) -> Pairs:
    i, x, j, y = gap
    old, new = [get(key) for key in left[i:x]], [get(key) for key in right[j:y]]
    if (x - i) * (y - j) <= MAX_GAP_CELLS:
        blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        return [(i + a + k, j + b + k) for a, b, size in blocks for k in range(size)]
    return [(i + a, j + b) for a, b in _unique(_numbered(old), _numbered(new))]


def _numbered(items: Sequence[Hashable]) -> list[Hashable]:
    """Each item with how often it came before, which makes all of them unique."""
    seen: Counter = Counter()
    result = []
    for item in items:
        result.append((item, seen[item]))
        seen[item] += 1
    return result


def _unique(left: Sequence[Hashable], right: Sequence[Hashable]) -> Pairs:
    """The longest run of pairs, in order on both sides, of items that are once on each side."""
    count_left, count_right = Counter(left), Counter(right)
    place = {item: j for j, item in enumerate(right) if count_right[item] == 1}
    return _increasing([(i, place[item]) for i, item in enumerate(left) if item in place and count_left[item] == 1])


def _increasing(pairs: Pairs) -> Pairs:
    """Longest subsequence whose right positions rise; the left ones must rise already."""
    tails: list[int] = []
    tail_of: list[int] = []
    before: list[int] = []
    for position, (_, j) in enumerate(pairs):
        at = bisect_left(tails, j)
        before.append(tail_of[at - 1] if at else -1)
        tails[at:at + 1] = [j]
        tail_of[at:at + 1] = [position]
    result = []
    position = tail_of[-1] if tail_of else -1
    while position >= 0:
        result.append(pairs[position])
        position = before[position]
    return result[::-1]


def _similar(gap: Range, old: Sequence[str], new: Sequence[str]) -> Pairs:
    """Lines that differ but are about one instruction: same name, else same name without numbers.

    `old` and `new` are the names the lines define, "" for lines that cannot be meant.
    """
    i, x, j, y = gap
    left = [k for k in range(i, x) if old[k]]
    right = [k for k in range(j, y) if new[k]]
    if not left and not right and i == j == 0:      # the text before the first computation: line by line
        return [(k, k) for k in range(min(x, y))]
    named = _unique([old[k] for k in left], [new[k] for k in right])

    def fill(inner: Range) -> Pairs:
        a, b, c, d = inner
        pairs = _unique(_numbered([stem(old[k]) for k in left[a:b]]), _numbered([stem(new[k]) for k in right[c:d]]))
        return [(a + p, c + q) for p, q in pairs]

    return [(left[a], right[b]) for a, b in _gaps_filled(named, len(left), len(right), fill)]


def _moved(pairs: Pairs, left: Sequence[str], right: Sequence[str]) -> Pairs:
    """Pairs of lines with equal keys among those not paired yet, wherever they are: a schedule, not a change."""
    paired_left, paired_right = {i for i, _ in pairs}, {j for _, j in pairs}
    places = defaultdict(list)
    for j in range(len(right) - 1, -1, -1):
        if j not in paired_right:
            places[right[j]].append(j)
    return [(i, options.pop()) for i, key in enumerate(left)
            if i not in paired_left and key.strip() and (options := places.get(key))]
