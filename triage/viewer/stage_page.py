"""What a stage page shows: the diff against another stage, computation by computation, or the whole text."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.engine.align import ADDED, CHANGED, MOVED, NOISE, REMOVED, RENAMED
from triage.engine.analysis import Chunk, StageText
from triage.engine.diff import EQUAL, REORDERED, ComputationDiff, StageDiff, changed_keys, diff_stages, too_large
from triage.viewer.instruction import instruction_context
from triage.viewer.lines import page_limit
from triage.viewer.options import Options
from triage.viewer.rows import EMPTY, Entry, Line, Marks, Printer, Side, entries
from triage.viewer.stages import groups, neighbours
from triage.viewer.texts import Texts
from triage.viewer.whole_page import first_lines, whole_context

__all__ = ["Texts", "stage_context"]

#: Rows of one page; what is beyond is behind a link.
MAX_ROWS = 1000
#: Names of unchanged computations listed on one page.
MAX_NAMES = 400
#: Computations whose texts are fetched at a time.
BATCH = 100
#: Diffs a process keeps: the pages of a large one ask for the same again.
MAX_DIFFS = 4
QUIET = (EQUAL, RENAMED, REORDERED)
QUIET_WORDS = {EQUAL: "unchanged", RENAMED: "only names, numbers or metadata differ",
               REORDERED: "the same lines in another order"}


@dataclass
class Section:
    """One computation on the page."""
    part: ComputationDiff
    first: int                          # line its text begins at, of the side that is shown
    left: Side = EMPTY
    right: Side = EMPTY
    entries: list[Entry] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)     # the entries, once it is known which of them the page holds
    unread: bool = False                # too large for a page: no entries
    cut: int = 0                        # rows left out because the page is full
    next: int = 0                       # the row to go on with, for a page of this computation alone
    marked: bool = False

    @property
    def summary(self) -> str:
        if self.part.status == EQUAL:
            return "unchanged"
        if self.part.status in QUIET:
            return QUIET_WORDS[self.part.status]
        if self.part.left is None or self.part.right is None:
            lines = (self.part.left or self.part.right).lines if self.part.capped else len(self.part.rows)
            return f"{'new' if self.part.left is None else 'gone'}, {lines:,} lines"
        if self.part.capped:
            return "changed"
        counts = [(self.part.count(kind), word) for kind, word in
                  ((CHANGED, "changed"), (ADDED, "added"), (REMOVED, "removed"), (MOVED, "moved"))]
        return ", ".join(f"{count:,} {word}" for count, word in counts if count)

    def lengths(self) -> list[int]:
        """Characters of the lines."""
        return [max(len(side.lines[at]) for side, at in ((self.left, entry.row.left), (self.right, entry.row.right))
                    if at is not None) for entry in self.entries if not entry.fold]

    @property
    def formerly(self) -> str:
        both = self.part.left and self.part.right
        return self.part.left.name if both and self.part.left.name != self.part.right.name else ""


def stage_context(dump: Dump, report: dict, stage: int, options: Options) -> dict:
    record = storage.load_stage(dump, report["index"], stage).record
    texts = Texts(dump, report["index"])
    context = {
        "dump": dump, "module": report, "stage": report["stages"][stage], "options": options,
        "file_lines": sum(chunk.lines for chunk in record.chunks), "marks": len(record.marks),
        "introduced": [c for c in report["copies"] if c["stage"] == stage and c["introduced_by"]],
        "groups": groups(report["stages"], stage), "max_rows": MAX_ROWS,
        **neighbours(report["stages"], stage)}
    if options.show:
        return {**context, **instruction_context(record, texts, options)}
    if options.base is None or options.full:
        return {**context, **whole_context(record, texts, options, MAX_ROWS, MAX_NAMES)}
    return {**context, "base": report["stages"][options.base], **_Comparison(texts, options).context()}


@lru_cache(maxsize=MAX_DIFFS)
def _compare(dump: str, generation: str, module: int, base: int, stage: int,
             exact: bool) -> tuple[StageText, StageText, StageDiff]:
    """The two stages and their diff. A stored result never changes: `generation` is another one then."""
    found = Dump(id=dump, generation=generation)
    texts = Texts(found, module)
    left, right = (storage.load_stage(found, module, number).record for number in (base, stage))
    left_out = too_large(left.chunks, right.chunks, texts.size)
    texts.load(changed_keys(left.chunks, right.chunks) - left_out)
    return left, right, diff_stages(left.chunks, right.chunks, texts, exact=exact, left_out=left_out)


class _Comparison:
    """The diff of two stages as sections of a page."""

    def __init__(self, texts: Texts, options: Options) -> None:
        self.texts, self.options = texts, options
        base, self.record, self.diff = _compare(
            texts.dump.id, texts.dump.generation, texts.module, options.base, options.stage, options.meta)
        self.left_marks, self.right_marks = Marks(base.marks), Marks(self.record.marks)
        self.left_first, self.right_first = first_lines(base.chunks), first_lines(self.record.chunks)

    def context(self) -> dict:
        parts = self.diff.computations
        alone = self.options.computation or self._holding(self.options.at)
        if alone is not None and alone != "":
            chosen = [part for part in parts if alone in (part.name, part.left and part.left.name)]
            if chosen:
                return {**self._totals(), "alone": alone, "sections": self._printed([self._alone(chosen[0])])}
        order = sorted((part for part in parts if part.status not in QUIET or self._marked(part)), key=self._rank)
        sections, following = self._page(order, self.options.start)
        return {**self._totals(), "sections": self._printed(sections), "section_count": len(order), "following": following,
                "left_out": len(order) - following if following else 0, "quiet": self._quiet(parts)}

    def _totals(self) -> dict:
        count = self.diff.count
        counts = [(count(kind), word) for kind, word in
                  ((CHANGED, "changed"), (ADDED, "added"), (REMOVED, "removed"), (MOVED, "moved")) if count(kind)]
        only_moved = bool(counts) and counts[0][1] == "moved"
        return {"counts": [] if only_moved else counts, "moved": count(MOVED), "hidden_noise": count(NOISE),
                "hidden_names": count(RENAMED), "capped": self.diff.capped,
                "same": all(part.status == EQUAL for part in self.diff.computations)}

    def _holding(self, line: int) -> str:
        """The computation a line of the stage is in; "" for none."""
        if line:
            for chunk, first in zip(reversed(self.record.chunks), self.right_first[-2::-1]):
                if first <= line:
                    return chunk.name
        return ""

    def _marked(self, part: ComputationDiff) -> bool:
        if part.right is not None:
            return part.right.name in self.right_marks.computations
        return part.left.name in self.left_marks.computations

    def _rank(self, part: ComputationDiff) -> int:
        """Changes where copies are written come first, then the entry's, then by what happened; else as in the file."""
        if part.status in QUIET:
            return 4        # here because of its marks
        if part.right is not None and part.right.name in self.right_marks.writers:
            return 0
        if part.right is not None and (part.right.entry or not part.right.name):
            return 1
        return 2 if self._marked(part) else {CHANGED: 3, ADDED: 5}.get(part.status, 6)

    def _side(self, chunk: Chunk | None, first: int, marks: Marks) -> Side:
        return Side(chunk.name, self.texts.lines(chunk), first, marks) if chunk else EMPTY

    def _section(self, part: ComputationDiff, everything: bool) -> Section:
        first = self.right_first[part.right_at] if part.right else self.left_first[part.left_at]
        section = Section(part, first, marked=self._marked(part))
        if part.capped or not all([self.texts.readable(chunk) for chunk in (part.left, part.right) if chunk]):
            section.unread = True
            return section
        section.left = self._side(part.left, self.left_first[part.left_at], self.left_marks)
        section.right = self._side(part.right, self.right_first[part.right_at], self.right_marks)
        section.entries = entries(part, section.left, section.right, everything=everything)
        return section

    def _printed(self, sections: list[Section]) -> list[Section]:
        """The sections with their lines: how much of each is looked at depends on what else is on the page."""
        limit = page_limit(length for section in sections for length in section.lengths())
        for section in sections:
            printer = Printer(section.part, section.left, section.right, meta=self.options.meta, limit=limit)
            section.lines = printer.lines(section.entries)
        return sections

    def _page(self, order: list[ComputationDiff], start: int) -> tuple[list[Section], int]:
        """Sections from `start` on until the page is full, and the number of the first one left out (0: none)."""
        self.texts.load(chunk.key for part in order[start:start + BATCH] for chunk in (part.left, part.right) if chunk)
        sections, room = [], MAX_ROWS
        for number in range(min(start, len(order)), len(order)):
            section = self._section(order[number], everything=False)
            if sections and len(section.entries) > room:
                return sections, number
            section.cut = max(0, len(section.entries) - room)
            section.next = room if section.cut else 0
            del section.entries[room:]
            sections.append(section)
            room -= len(section.entries) + 2      # a heading takes room, too
            if room <= 0 and number + 1 < len(order):
                return sections, number + 1
        return sections, 0

    def _alone(self, part: ComputationDiff) -> Section:
        """One computation, nothing folded, from the row asked for."""
        section = self._section(part, everything=True)
        start = min(self.options.start, max(0, len(section.entries) - 1))
        if self.options.at and not self.options.start:
            position = self.options.at - section.first
            at = next((k for k, entry in enumerate(section.entries) if entry.row.right == position and entry.css != "del"), 0)
            start = 0 if at < MAX_ROWS - 20 else at - 20
        section.cut = max(0, len(section.entries) - start - MAX_ROWS)
        section.next = start + MAX_ROWS if section.cut else 0
        section.entries = section.entries[start:start + MAX_ROWS]
        return section

    def _quiet(self, parts: Sequence[ComputationDiff]) -> list[dict]:
        """What is not shown, by reason: (words, count, names)."""
        result = []
        for status in (REORDERED, RENAMED, EQUAL):
            names = [part.name for part in parts if part.status == status and part.name and not self._marked(part)]
            if names:
                result.append({"words": QUIET_WORDS[status], "count": len(names), "names": names[:MAX_NAMES],
                               "more": max(0, len(names) - MAX_NAMES)})
        return result
