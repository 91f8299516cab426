"""Copies followed across stages: the pass that introduced each one, what triggered it, and where it comes from.

A lineage is kept by (parameter, place): between two stages a copy is the same one if it is made of the same parameter
and stands in the same place (before the loop, in it, or elsewhere). Instruction names change with every pass.
"""
from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, replace
from typing import Union

from .copies import ParameterCopy, StageCopies
from .files import StageFile
from .ir import Instruction, Shape
from .values import Read, Source, WriteKey

LAYOUT_ASSIGNMENT = "layout-assignment"
PIPELINE_START = "pipeline-start"
CONTRACTIONS = frozenset({"dot", "convolution", "ragged-dot", "scaled-dot"})
WRAPPERS = frozenset({"fusion", "call", "custom-call", "async-start"})      # a dot may go on inside them


@dataclass(frozen=True)
class Pass:
    """A pass run: `index` is the stage (in the module's list) whose text first shows its effect."""
    index: int
    step: int | None
    pipeline: str
    name: str

    def as_dict(self) -> dict:
        return {"step": self.step, "pipeline": self.pipeline, "pass": self.name}


#: How sure it is that a pass is the trigger: seen in the texts of the stages, or measured with that pass disabled.
LIKELY, CONFIRMED, REFUTED = "likely", "confirmed", "refuted"
#: The pass, or the labels of the stages around it where the dump does not show it.
Origin = tuple[Union[Pass, None], Union[tuple[str, str], None]]


@dataclass(frozen=True)
class Trigger:
    run: Pass
    confidence: str             # LIKELY: the dump shows it changing this parameter's use; a replay confirms or refutes it
    evidence: str


@dataclass(frozen=True)
class Lineage:
    """The life of one copy of the last stage. `matches[i]` is the same copy at stage i, None where it is not there."""
    copy: ParameterCopy
    matches: tuple[ParameterCopy | None, ...]
    first: int                          # first stage of the unbroken run up to the last
    introduced_by: Pass | None          # None: already in the first text, or the passes are not in the dump
    between: tuple[str, str] | None     # labels of the stages around it where the pass is not in the dump
    trigger: Trigger | None
    origin: str                         # "program", "compiler"; "unknown": in the first text, which is not the program's
    origin_instruction: tuple[int, Instruction] | None      # (stage index, instruction) that stands for the source line
    free_until: str | None
    reason: str                         # what the consumer wanted, in words; "" where the text does not tell


def follow(files: list[StageFile], stages: list[StageCopies], cut: list[bool] | None = None) -> list[Lineage]:
    """One lineage per copy of the last stage, in its order. A stage whose text is cut short says nothing: it is skipped."""
    places = [index for index in range(len(files)) if not cut or not cut[index] or index == len(files) - 1]
    found = _follow([files[i] for i in places], [stages[i] for i in places], [
        _introduced(files, now) if before == now - 1 else (None, (files[before].label, files[now].label))
        for before, now in zip([places[0] - 1, *places], places)] if places else [])
    return [_placed(lineage, places, len(files)) for lineage in found]


def _placed(lineage: Lineage, places: list[int], count: int) -> Lineage:
    """The lineage with positions among all stages."""
    matches: list[ParameterCopy | None] = [None] * count
    for place, match in zip(places, lineage.matches):
        matches[place] = match
    origin = lineage.origin_instruction
    return replace(lineage, matches=tuple(matches), first=places[lineage.first],
                   origin_instruction=(places[origin[0]], origin[1]) if origin else None)


def _follow(files: list[StageFile], stages: list[StageCopies], passes: list[Origin]) -> list[Lineage]:
    if not stages:
        return []
    indexes = [_Index(stage) for stage in stages]
    matches = [dict(zip((copy.key for copy in stages[-1].copies), stages[-1].copies))]
    for later, earlier in zip(indexes[:0:-1], indexes[-2::-1]):
        partners = _partners(later, earlier)
        matches.append({key: partners.get(match.key) if match is not None else None
                        for key, match in matches[-1].items()})
    history = _History(files, stages, indexes, passes)
    return [_lineage(copy, tuple(stage[copy.key] for stage in reversed(matches)), history) for copy in stages[-1].copies]


class _Index:
    """A stage's copies by the parameter they follow."""

    def __init__(self, stage: StageCopies) -> None:
        self.copies = stage.copies
        self.places: dict[tuple[Source, str], list[ParameterCopy]] = defaultdict(list)
        self.first: dict[Source, ParameterCopy] = {}
        for copy in stage.copies:
            self.places[copy.largest, copy.where].append(copy)
            self.first.setdefault(copy.largest, copy)


@dataclass(frozen=True)
class _History:
    """The stages of one module. `passes[i]` tells which pass made stage i of the one before, as `_introduced` has it."""
    files: list[StageFile]
    stages: list[StageCopies]
    indexes: list[_Index]
    passes: list[Origin]

    def readers(self, index: int, source: Source) -> tuple[Read, ...]:
        return self.stages[index].readers.get(source, ())


def _partners(later: _Index, earlier: _Index) -> dict[WriteKey, ParameterCopy]:
    """For the copies of one stage, by key, the same ones of the stage before.

    Of several copies of one parameter in one place, those of the same kind and size belong together, in order; then
    the others, in order.
    """
    if later.copies is earlier.copies:
        return {copy.key: copy for copy in later.copies}
    found: dict[WriteKey, ParameterCopy] = {}
    for place, copies in later.places.items():
        peers = earlier.places.get(place, [])
        options: dict[tuple[str, int], deque[ParameterCopy]] = defaultdict(deque)
        for peer in peers:
            options[peer.kind, peer.bytes].append(peer)
        alike = {copy.key: options[copy.kind, copy.bytes].popleft() for copy in copies
                 if options[copy.kind, copy.bytes]}
        taken = {peer.key for peer in alike.values()}
        rest = zip((copy for copy in copies if copy.key not in alike), (p for p in peers if p.key not in taken))
        found |= alike | {copy.key: peer for copy, peer in rest}
    return found


def _lineage(copy: ParameterCopy, matches: tuple[ParameterCopy | None, ...], history: _History) -> Lineage:
    first = next(i for i, match in enumerate(matches) if match is not None)
    there = matches[first] or copy
    run, between = history.passes[first]
    earlier, free = _earlier_run(copy, history.indexes, first), _free_run(copy, history.stages, first)
    start = min(earlier, free)
    origin = "compiler" if start > 0 else "program" if history.files[0].named_rank == 0 else "unknown"
    return Lineage(copy, matches, first, run, between, _trigger(copy, history, first, earlier, free),
                   origin, _origin_instruction(copy, history, first, earlier, free),
                   LAYOUT_ASSIGNMENT if free < first or _undecided(there, history.files, first) else None,
                   consumer_reason(there))


def _introduced(files: list[StageFile], first: int) -> Origin:
    """The pass that made this stage of the one before; (None, None) for the first."""
    if first == 0:
        return None, None
    file, before = files[first], files[first - 1]
    if file.pass_ and file.pass_ != PIPELINE_START and pass_is_known(files, first):
        return Pass(first, file.step, file.pipeline or "", file.pass_), None
    if file.pass_ == PIPELINE_START and before.next and before.next != "pipeline-end" and before.pipeline:
        # A pass that runs a pipeline of its own (spmd-partitioning): the inner start shows its unfinished work.
        for later in files[first + 1:]:
            if later.pass_ == before.next and later.pipeline == before.pipeline:
                return Pass(first, later.step, before.pipeline, before.next), None
    return None, (before.label, file.label)


def pass_is_known(files: list[StageFile], index: int) -> bool:
    """Whether a per-pass stage shows the work of its pass alone: the stage before is what the pass was given.

    Dumps made with a narrow --xla_dump_hlo_pass_re hold only some passes, and no start of most pipelines.
    """
    file = files[index]
    return (file.step is None or file.next is None or file.pass_ == PIPELINE_START or files[index - 1].next == file.pass_
            or any(f.pipeline == file.pipeline and f.pass_ == PIPELINE_START for f in files[:index]))


def _earlier_run(copy: ParameterCopy, indexes: list[_Index], first: int) -> int:
    """First stage of the unbroken run before `first` in which the parameter is copied anywhere; `first` if none."""
    start = first
    while start > 0 and copy.largest in indexes[start - 1].first:
        start -= 1
    return start


def _free_transpose(stage: StageCopies, source: Source) -> Instruction | None:
    return next((r.free for r in stage.readers.get(source, ()) if r.free is not None), None)


def _free_run(copy: ParameterCopy, stages: list[StageCopies], first: int) -> int:
    """First stage of the unbroken run before `first` in which a transpose of the parameter moves nothing yet."""
    start = first
    while start > 0 and copy.kind == "transpose" and _free_transpose(stages[start - 1], copy.largest) is not None:
        start -= 1
    return start


def _undecided(copy: ParameterCopy, files: list[StageFile], first: int) -> bool:
    """Before layouts are assigned a transpose may still become free."""
    assigned = layouts_assigned_at(files)
    return copy.kind in ("transpose", "copy") and assigned is not None and first < assigned


def layouts_assigned_at(files: list[StageFile]) -> int | None:
    """Index of the first stage whose layouts are final; None where the dump does not show it."""
    for index, file in enumerate(files):
        if file.pass_ == LAYOUT_ASSIGNMENT or (file.named_rank or 0) >= 3:
            return index
    return None


def _trigger(copy: ParameterCopy, history: _History, first: int, earlier: int, free: int) -> Trigger | None:
    """The earlier pass without which there would probably be no copy."""
    run, _ = history.passes[first]
    if run is None or copy.kind == "gather":        # shards are gathered because the program sharded them
        return None
    found = _contraction_lost(copy.largest, history, first)
    if found is not None:
        return found
    start = min(earlier, free)
    begin, _ = history.passes[start] if start < first else (None, None)
    if begin is None or begin.name == run.name:
        return None
    if free <= earlier:
        made = _free_transpose(history.stages[free], copy.largest)
        return Trigger(begin, LIKELY, f"step {begin.step} put `transpose` `{made.name}` between the parameter and its "
                       f"user, free until {run.name}" if made else "")
    sample = history.indexes[earlier].first[copy.largest]
    return Trigger(begin, LIKELY, f"after step {begin.step} the parameter is first read through "
                   f"`{sample.instruction.opcode}` `{sample.instruction.name}`, which {run.name} then moved")


def _contraction_lost(source: Source, history: _History, first: int) -> Trigger | None:
    """The last pass before `first` that took apart the dot that read the parameter."""
    def contraction(index: int) -> Read | None:
        return next((r for r in history.readers(index, source) if r.instruction.opcode in CONTRACTIONS), None)

    for index in range(first - 1, 0, -1):
        readers, dot = history.readers(index, source), contraction(index - 1)
        if readers and dot is not None and contraction(index) is None:
            run, _ = history.passes[index]
            now = readers[0].instruction
            if run is None or now.opcode in WRAPPERS:
                return None
            return Trigger(run, LIKELY, f"step {run.step} replaced `{dot.instruction.opcode}` "
                           f"`{dot.instruction.name}`, which read the parameter, by `{now.opcode}` `{now.name}`")
        if dot is None and contraction(index) is not None:
            return None
    return None


def _origin_instruction(copy: ParameterCopy, history: _History, first: int, earlier: int,
                        free: int) -> tuple[int, Instruction] | None:
    """Whose metadata names the user's line: the program's own copy, else who reads the parameter before the copy."""
    candidates: list[tuple[int, Instruction]] = []
    if free < first and (made := _free_transpose(history.stages[free], copy.largest)) is not None:
        candidates.append((free, made))
    if earlier < first:
        candidates.append((earlier, history.indexes[earlier].first[copy.largest].instruction))
    for index in range(min(first, earlier) - 1, -1, -1):
        candidates += [(index, reader.instruction) for reader in history.readers(index, copy.largest)]
    candidates.append((len(history.stages) - 1, copy.instruction))
    for mark in ("stack_frame_id=", "source_file=", "op_name="):
        for index, instruction in candidates:
            if mark in instruction.attributes.get("metadata", ""):
                return index, instruction
    return candidates[0]


def consumer_reason(copy: ParameterCopy) -> str:
    """Why the copy's reader wants it, as far as its own text says so; "" where it does not."""
    if not copy.readers or copy.kind not in ("transpose", "gather"):
        return ""
    reader, shape = copy.readers[0].instruction, copy.readers[0].operand
    if copy.kind == "gather":
        return f"the parameter is sharded, and `{reader.opcode}` reads it whole"
    stored, wanted = copy.from_shape, copy.to_shape
    if stored.dims != wanted.dims or not stored.order or stored.order == wanted.order:
        return ""
    if _slices_slowest(reader, shape) and wanted.order[0] != stored.order[0]:
        axis = wanted.order[0]
        return (f"the loop reads one index of dimension {axis} (size {stored.dims[axis]}) per iteration, and the "
                f"parameter stores that dimension {_ordinal(stored.order.index(axis) + 1)} of {len(stored.order)}")
    if stored.order[-1] != wanted.order[-1]:
        return (f"`{reader.opcode}` wants dimension {wanted.order[-1]} (size {stored.dims[wanted.order[-1]]}) contiguous, "
                f"and the parameter is stored with dimension {stored.order[-1]} contiguous")
    return f"`{reader.opcode}` wants `{wanted.text}`, and the parameter is stored as `{stored.text}`"


def _slices_slowest(reader: Instruction, shape: Shape) -> bool:
    """True for a dynamic-slice that takes one index of the dimension that varies slowest in memory."""
    sizes = reader.integers("dynamic_slice_sizes")
    return (reader.opcode == "dynamic-slice" and len(sizes) == len(shape.dims) and bool(shape.order)
            and sizes[shape.order[0]] == 1)


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third", 4: "fourth"}.get(number, f"{number}th")
