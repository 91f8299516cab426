"""Rows of the code tables: diff rows and lines as what a template prints."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django.utils.safestring import SafeString

from triage.engine.align import ADDED, CHANGED, MOVED, REMOVED, SAME, Row
from triage.engine.analysis import Mark
from triage.engine.cost import human_bytes
from triage.engine.diff import ComputationDiff
from triage.engine.lines import defined_name
from triage.viewer import lines as text

#: Unchanged lines shown around a change.
CONTEXT = 3
#: Runs of unchanged lines up to this long are not worth folding.
MIN_FOLD = 3
#: Moved lines are shown as changes only while they are few: a new schedule moves everything.
MAX_MOVED = 20
#: Lines of a computation that is new or gone, before the rest is folded.
MAX_ONE_SIDED = 60
#: Copies named in one badge.
MAX_NAMED = 3
SIGNS = {"same": "", "moved": "↕", "add": "+", "del": "−"}
#: The kind of a diff's row -> what its rows on the page are.
CSS = {CHANGED: ("del", "add"), ADDED: ("add",), REMOVED: ("del",), MOVED: ("moved",)}
SPOKEN = {"add": "added", "del": "removed", "moved": "moved"}


@dataclass(frozen=True)
class Badge:
    css: str
    text: str
    title: str
    copy: str       # id of the first copy meant, "" for none: the module page explains it


class Entry(NamedTuple):
    """What a row of the page will be; a changed line is two of them. Making the row itself takes long."""
    row: Row
    css: str            # "del", "add", "moved", "same" or "fold"
    fold: int = 0       # lines folded, of which `row` is the last


@dataclass
class Line:
    """One row. Numbers count from 1; 0 where a side has no such line."""
    css: str
    old: int
    new: int
    html: SafeString
    more: str = ""                  # what is left out, in words
    badges: list[Badge] = field(default_factory=list)
    fold: int = 0                   # a fold of so many lines instead of a line

    @property
    def sign(self) -> str:
        return SIGNS.get(self.css, "")

    @property
    def spoken(self) -> str:
        return SPOKEN.get(self.css, "")


class Marks:
    """The marks of one stage by computation and instruction."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self._by_place: dict[tuple[str, str], list[Mark]] = {}
        for mark in marks:
            self._by_place.setdefault((mark.computation, mark.instruction), []).append(mark)
        self.computations = {mark.computation for mark in marks}
        self.writers = {mark.computation for mark in marks if mark.role == "copy"}

    def of(self, computation: str, line: str) -> list[Badge]:
        if computation not in self.computations:
            return []
        return [_badge(mark) for mark in self._by_place.get((computation, defined_name(line[:text.MAX_LINE])), ())]


def _badge(mark: Mark) -> Badge:
    names = " ".join(mark.copies[:MAX_NAMED])
    if len(mark.copies) > MAX_NAMED:
        names += f" +{len(mark.copies) - MAX_NAMED}"
    first = mark.copies[0] if mark.copies else ""
    if mark.role == "copy":
        where = {"before_loop": "before a loop", "in_loop": "in a loop"}.get(mark.where, "outside any loop")
        label = f"{mark.kind or 'copy'} {human_bytes(mark.bytes)}"
        return Badge("copy", f"{names} {label}".strip(), f"writes {mark.bytes:,} bytes {where}", first)
    if mark.role == "parameter":
        return Badge("parameter", f"parameter of {names}", "this parameter is copied", first)
    return Badge("consumer", f"reads {names}", "reads what the copy wrote", first)


@dataclass(frozen=True)
class Side:
    """One side of a computation: its lines, where it begins in the file, its marks."""
    name: str
    lines: Sequence[str]
    first: int      # line number of lines[0], from 1
    marks: Marks


EMPTY = Side("", (), 1, Marks(()))


def entries(part: ComputationDiff, left: Side, right: Side, *, everything: bool) -> list[Entry]:
    """The rows of one computation; `everything` folds nothing. Lines of marked instructions are never folded."""
    rows = part.rows or [Row(SAME, k, k) for k in range(len(right.lines))]
    shown = [True] * len(rows) if everything else _shown(part, rows, left, right)
    result: list[Entry] = []
    hidden = 0
    for position, row in enumerate(rows):
        if shown[position]:
            result += [Entry(row, css) for css in CSS.get(row.kind, ("same",))]
            continue
        hidden += 1
        if position + 1 == len(rows) or shown[position + 1]:
            result.append(Entry(row, "fold", hidden))
            hidden = 0
    return result


def _shown(part: ComputationDiff, rows: Sequence[Row], left: Side, right: Side) -> list[bool]:
    quiet = {SAME, "noise", "renamed"}
    if part.count(MOVED) > MAX_MOVED:
        quiet.add(MOVED)
    shown = [False] * len(rows)
    one_sided = 0
    for position, row in enumerate(rows):
        marked = bool(_badges(row, left, right))
        if row.kind in quiet and not marked:
            continue
        if part.left is None or part.right is None:
            one_sided += 1
            if one_sided > MAX_ONE_SIDED and not marked:
                continue
        context = CONTEXT if part.status == CHANGED else 0
        for near in range(max(0, position - context), min(len(rows), position + context + 1)):
            shown[near] = True
    _fill_short_gaps(shown)
    return shown


def _fill_short_gaps(shown: list[bool]) -> None:
    position = 0
    while position < len(shown):
        end = position
        while end < len(shown) and not shown[end]:
            end += 1
        if end - position < MIN_FOLD:
            shown[position:end] = [True] * (end - position)
        position = end + 1


class Printer:
    """Makes rows of one computation's entries. `limit`: characters that are looked at of each line."""

    def __init__(self, part: ComputationDiff, left: Side, right: Side, *, meta: bool, limit: int) -> None:
        self.part, self.left, self.right, self.meta, self.limit = part, left, right, meta, limit
        self._row: Row | None = None        # the changed line whose other half comes next
        self._words: tuple[text.Ranges, text.Ranges] = (), ()

    def lines(self, chosen: Iterable[Entry]) -> list[Line]:
        return [self._fold(entry) if entry.fold else self._line(entry) for entry in chosen]

    def _fold(self, entry: Entry) -> Line:
        first = [max(0, _number(side, position) - entry.fold + 1)
                 for side, position in ((self.left, entry.row.left), (self.right, entry.row.right))]
        return Line("fold", *first, SafeString(), fold=entry.fold)

    def _line(self, entry: Entry) -> Line:
        row = entry.row
        old, new = _number(self.left, row.left), _number(self.right, row.right)
        is_left = row.right is None or entry.css == "del"
        side = self.left if is_left else self.right
        line = side.lines[row.left if is_left else row.right]
        changed: text.Ranges = ()
        if row.kind == CHANGED:
            changed = self._changed(row)[0 if is_left else 1]
            old, new = (old, 0) if is_left else (0, new)
        return _line(line, side.name, side.marks, changed, meta=self.meta, limit=self.limit, css=entry.css, old=old, new=new)

    def _changed(self, row: Row) -> tuple[text.Ranges, text.Ranges]:
        if row is not self._row:
            before = text.visible(self.left.lines[row.left][:self.limit], self.meta)
            after = text.visible(self.right.lines[row.right][:self.limit], self.meta)
            self._row, self._words = row, text.changed_words(before, after, self.part.names)
        return self._words


def _line(line: str | text.Beginning, computation: str, marks: Marks, changed: text.Ranges = (), *, meta: bool, limit: int,
          css: str = "same", old: int = 0, new: int = 0) -> Line:
    start, before = (line.text, line.left_out) if isinstance(line, text.Beginning) else (line, 0)
    start, left_out = text.beginning(start, limit)
    left_out += before
    return Line(css, old, new, text.html(text.visible(start, meta), changed, left_out),
                text.hidden_note(start, meta, left_out), marks.of(computation, start))


def _badges(row: Row, left: Side, right: Side) -> list[Badge]:
    if row.right is not None:
        return right.marks.of(right.name, right.lines[row.right])
    return left.marks.of(left.name, left.lines[row.left]) if row.left is not None else []


def _number(side: Side, position: int | None) -> int:
    return 0 if position is None else side.first + position


def plain_lines(lines: Sequence[text.Beginning], first: int, marks: Marks, names: Sequence[str], meta: bool) -> list[Line]:
    """Lines of a whole text; `names` says which computation each belongs to."""
    limit = text.page_limit(len(line.text) for line in lines)
    return [_line(line, name, marks, meta=meta, limit=limit, new=first + k) for k, (line, name) in enumerate(zip(lines, names))]
