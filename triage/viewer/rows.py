"""Rows of the code tables: diff rows and lines as what a template prints."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
SPOKEN = {"add": "added", "del": "removed", "moved": "moved"}


@dataclass(frozen=True)
class Badge:
    css: str
    text: str
    title: str
    copy: str       # id of the first copy meant, "" for none: the module page explains it


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
        return [_badge(mark) for mark in self._by_place.get((computation, defined_name(line)), ())]


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


@dataclass
class Side:
    """One side of a computation: its lines, where it begins in the file, its marks."""
    name: str
    lines: Sequence[str]
    first: int      # line number of lines[0], from 1
    marks: Marks


EMPTY = Side("", (), 1, Marks(()))


def computation_lines(part: ComputationDiff, left: Side, right: Side, *, meta: bool, everything: bool) -> list[Line]:
    """The rows of one computation; `everything` folds nothing. Lines of marked instructions are never folded."""
    rows = part.rows or [Row(SAME, k, k) for k in range(len(right.lines))]
    shown = [True] * len(rows) if everything else _shown(part, rows, left, right)
    result: list[Line] = []
    hidden = 0
    for position, row in enumerate(rows):
        if not shown[position]:
            hidden += 1
            if position + 1 == len(rows) or shown[position + 1]:
                new, old = _number(right, row.right), _number(left, row.left)
                first = max(0, old - hidden + 1), max(0, new - hidden + 1)
                result.append(Line("fold", *first, SafeString(), fold=hidden))
                hidden = 0
            continue
        result.extend(_lines(row, part, left, right, meta))
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


def _lines(row: Row, part: ComputationDiff, left: Side, right: Side, meta: bool) -> Iterator[Line]:
    old = left.lines[row.left] if row.left is not None else ""
    new = right.lines[row.right] if row.right is not None else ""
    if row.kind == CHANGED:
        before, after = text.visible(old, meta), text.visible(new, meta)
        gone, came = text.changed_words(before, after, part.names)
        yield Line("del", _number(left, row.left), 0, text.html(before, gone), text.hidden_note(old, meta),
                   left.marks.of(left.name, old))
        yield Line("add", 0, _number(right, row.right), text.html(after, came), text.hidden_note(new, meta),
                   right.marks.of(right.name, new))
        return
    css = {ADDED: "add", REMOVED: "del", MOVED: "moved"}.get(row.kind, "same")
    line = old if row.right is None else new
    yield Line(css, _number(left, row.left), _number(right, row.right), text.html(text.visible(line, meta)),
               text.hidden_note(line, meta), _badges(row, left, right))


def _badges(row: Row, left: Side, right: Side) -> list[Badge]:
    if row.right is not None:
        return right.marks.of(right.name, right.lines[row.right])
    return left.marks.of(left.name, left.lines[row.left]) if row.left is not None else []


def _number(side: Side, position: int | None) -> int:
    return 0 if position is None else side.first + position


def plain_lines(lines: Sequence[str], first: int, marks: Marks, names: Sequence[str], meta: bool) -> list[Line]:
    """Lines of a whole text; `names` says which computation each belongs to."""
    return [Line("same", 0, first + k, text.html(text.visible(line, meta)), text.hidden_note(line, meta),
                 marks.of(name, line)) for k, (line, name) in enumerate(zip(lines, names))]
