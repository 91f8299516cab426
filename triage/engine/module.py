"""One module of a dump on its way through the engine: its part of the report and its texts."""
from __future__ import annotations

from dataclasses import dataclass

from . import facts, sentences
from .analysis import Mark, ModuleTexts, Progress, StageText
from .copies import (
    BEFORE_LOOP,
    IN_LOOP,
    Parameter,
    ParameterCopy,
    StageCopies,
    default_min_bytes,
    entry_parameters,
    parameter_copies,
)
from .files import ModuleFiles, StageFile
from .flow import Flow
from .history import PIPELINE_START, Lineage, follow, layouts_assigned_at, pass_is_known
from .ir import Computation, number
from .remedies import cannot_disable, remedies
from .source import SourceTables
from .stages import Stage, StageReader
from .values import Read

NO_PASSES = ("No per-pass files: the pass that introduced a copy cannot be named. "
             "Dump again with --xla_dump_hlo_pass_re=.* to see it.")
SOME_PASSES = ("Only some passes were dumped: a copy that appears between two of them cannot be laid to one pass. "
               "Dump again with --xla_dump_hlo_pass_re=.* to see all.")


@dataclass
class ModuleAnalysis:
    """Ask `has_text`, then `begin` for what the last stage says, then `finish`."""
    files: ModuleFiles
    min_bytes: int | None
    tell: Progress

    def __post_init__(self) -> None:
        self.name = self.files.name or "module " + "+".join(self.files.ids)
        self.reader = StageReader()
        self.flow = Flow(1)
        self.tables: dict[int, SourceTables] = {}
        self.unparsed: list[dict] = []

    def has_text(self) -> bool:
        """Whether any stage holds HLO; then `stages` is the last one of them alone."""
        for file in reversed(self.files.stages):
            self.stages = self._read([file])
            if self.stages:
                return True
        return False

    def begin(self) -> dict:
        """What the last stage alone says: name, verdict, copies, copied_bytes, hoisted_bytes, temp_bytes."""
        self.tell(f"finding copies in {self.name}", 0, len(self.files.stages))
        report = self._analyse()
        return {"name": self.name, "verdict": report["verdict"], "copies": len(report["copies"]),
                "copied_bytes": report["totals"]["copied_bytes"], "hoisted_bytes": report["totals"]["hoisted_bytes"],
                "temp_bytes": report["memory"]["temp_bytes"]}

    def finish(self) -> tuple[dict, ModuleTexts]:
        """(report of the module, its texts)."""
        self.unparsed.clear()
        self.tables.clear()
        self.stages = self._placed(self._read(self.files.stages))
        return self._analyse(), self._texts()

    def _analyse(self) -> dict:
        last = self.reader.module(self.stages[-1])
        self.parameters = entry_parameters(last)
        smallest = default_min_bytes(self.parameters) if self.min_bytes is None else max(1, self.min_bytes)
        if self.flow.min_bytes != smallest:
            self.flow = Flow(smallest)
        self.copies: list[StageCopies] = []
        self.entries: list[Computation | None] = []
        for index, stage in enumerate(self.stages):
            self.tell(f"finding copies in {self.name}", index, len(self.stages))
            if self._same_text_before(index):
                self.copies.append(self.copies[-1])
                self.entries.append(self.entries[-1])
            else:
                module = self.reader.module(stage)
                self.copies.append(parameter_copies(module, self.flow))
                self.entries.append(module.entry)
        self.lineages = follow([stage.file for stage in self.stages], self.copies, [stage.cut for stage in self.stages])
        self.facts = facts.gather(self.files, self.reader.header(self.stages[-1]), self._sample())
        return self._report(smallest)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, files: list[StageFile]) -> list[Stage]:
        """The stages that hold HLO; what is wrong with a file is added to `unparsed`."""
        stages: list[Stage] = []
        for index, file in enumerate(files):
            self.tell(f"reading {self.name}", index, len(files))
            try:
                stage = self.reader.read(file)
            except OSError as error:
                self.unparsed.append({"file": file.name, "reason": f"cannot be read: {error.strerror}"})
                continue
            if stage.broken:
                self.unparsed.append({"file": file.name, "reason": stage.broken})
            if len(stage.chunks) > 1:
                stages.append(stage)
        return stages

    @staticmethod
    def _placed(stages: list[Stage]) -> list[Stage]:
        """Named dumps written while passes still ran go behind the last per-pass stage with the same text."""
        for stage in [s for s in reversed(stages) if s.file.named_rank in (1, 2)]:
            same = [s for s in stages if s.file.step is not None and s.chunks[1:] == stage.chunks[1:]]
            if same:
                stages.remove(stage)
                stages.insert(stages.index(same[-1]) + 1, stage)
        return stages

    def _same_text_before(self, number: int) -> bool:
        return number > 0 and self.stages[number].chunks == self.stages[number - 1].chunks

    def _sample(self) -> str:
        """The beginning and end of the last stage's largest computation: what the instruction text looks like."""
        chunks = self.stages[-1].chunks[1:]
        text = self.reader.texts[max(chunks, key=lambda chunk: chunk.lines).key] if chunks else ""
        return text if len(text) <= 65536 else text[:65536] + "\n" + text[-1024:]

    # -- the report --------------------------------------------------------------------------------------------------

    def _report(self, smallest: int) -> dict:
        parameters = [self._parameter(parameter) for parameter in self.parameters]
        self.names = {p["number"]: p["op_name"] or p["name"] for p in parameters}
        self.writers = {copy.instruction for copy in self.copies[-1].copies}
        copies = [self._copy(f"c{position}", lineage) for position, lineage in enumerate(self.lineages, 1)]
        last = self.copies[-1]
        memory = facts.memory(self.facts, copies)
        patterns = sentences.patterns(copies)
        totals = {"parameter_bytes": sum(p.shape.bytes for p in self.parameters), "copied_bytes": last.sum(),
                  "hoisted_bytes": last.sum(BEFORE_LOOP), "in_loop_bytes": last.sum(IN_LOOP), "min_bytes": smallest}
        return {
            "name": self.name, "folder": self.files.folder, "ids": self.files.ids, "platform": self.facts.platform,
            "target": self.facts.target, "partitions": self.facts.partitions, "version": self.facts.version,
            "flags": self.facts.flags,
            "files": {"total": self.files.total, "stages": len(self.stages), "unparsed": self.unparsed},
            "stages": self._stages(), "parameters": parameters, "memory": memory,
            "copies": copies, "totals": totals, "patterns": patterns,
            "verdict": sentences.verdict(copies, smallest, memory, last.cut),
            "remedies": remedies(copies, self.facts.version, self.facts.platform), "cannot_disable": cannot_disable(copies),
            "replays": [],
            "notes": self._notes(last),
        }

    def _stages(self) -> list[dict]:
        assigned = layouts_assigned_at([stage.file for stage in self.stages])
        iterations = _iterations(self.stages)
        result = []
        for index, (stage, copies) in enumerate(zip(self.stages, self.copies)):
            file = stage.file
            result.append({
                "index": index, "step": file.step, "pipeline": file.pipeline, "pass": file.pass_, "label": file.label,
                "named": file.step is None, "file": file.name, "iteration": iterations[index],
                "changed": index == 0 or stage.chunks != self.stages[index - 1].chunks,
                "instructions": stage.instructions, "copied_bytes": copies.sum(), "copies": len(copies.copies),
                "hoisted_bytes": copies.sum(BEFORE_LOOP), "in_loop_bytes": copies.sum(IN_LOOP),
                "layouts_assigned": assigned is not None and index >= assigned})
        return result

    def _parameter(self, parameter: Parameter) -> dict:
        source = self._source(len(self.stages) - 1, parameter.instruction)
        return {"number": parameter.number, "name": parameter.name, "op_name": source["op_name"],
                "shape": parameter.shape.text, "bytes": parameter.shape.bytes}

    def _copy(self, identity: str, lineage: Lineage) -> dict:
        copy, trigger = lineage.copy, lineage.trigger
        source = self._source(*lineage.origin_instruction) if lineage.origin_instruction else None
        return {
            "id": identity, "kind": copy.kind, "where": copy.where, "parameters": list(copy.parameters),
            "parameter_names": [self.names.get(number, f"parameter {number}") for number in copy.parameters],
            "instruction": copy.instruction.name, "computation": copy.computation, "bytes": copy.bytes,
            "from_shape": copy.from_shape.text, "to_shape": copy.to_shape.text, "loop": copy.loop,
            "memory_space": copy.to_shape.memory_space,
            "consumer": _consumer(copy), "live_at_peak": None,
            "output_index": ",".join(part[1:-1] for part in copy.key if part.startswith("{")),
            "other_user": self._other_user(copy),
            "introduced_by": lineage.introduced_by.as_dict() if lineage.introduced_by else None,
            "between": list(lineage.between) if lineage.between else None,
            "stage": lineage.first, "previous_stage": max(0, lineage.first - 1),
            "trigger": {**trigger.run.as_dict(), "confidence": trigger.confidence, "evidence": trigger.evidence,
                        "stage": trigger.run.index} if trigger else None,
            "reason": lineage.reason, "origin": lineage.origin, "free_until": lineage.free_until, "source": source}

    def _other_user(self, copy: ParameterCopy) -> dict | None:
        """Who reads the parameter itself, as it is stored: where there is one, two users want two layouts."""
        readers = self.copies[-1].readers.get(copy.largest, ())
        reader = next((reader for reader in readers if reader.instruction not in self.writers), None)
        return _user(reader) if reader is not None else None

    def _source(self, index: int, instruction) -> dict:
        if index not in self.tables:
            self.tables[index] = SourceTables(self.reader.header(self.stages[index]))
        return self.tables[index].source(instruction).as_dict()

    def _notes(self, last: StageCopies) -> list[str]:
        notes = []
        if not any(stage.file.step is not None for stage in self.stages):
            notes.append(NO_PASSES if len(self.stages) > 1 else
                         f"Only one text of this module ({self.stages[0].file.label}): nothing can be said about passes.")
        files = [stage.file for stage in self.stages]
        if not all(pass_is_known(files, index) for index in range(1, len(files))):
            notes.append(SOME_PASSES)
        if self.stages[-1].file.named_rank == 0:
            notes.append("The text after optimisation is missing: what the compiler adds to this module is not visible.")
        return notes + sentences.side_notes(last) + self.facts.notes + (
            [f"{self.files.left_out} stages were left out: at most {len(self.files.stages)} are read."]
            if self.files.left_out else [])

    # -- texts and marks ---------------------------------------------------------------------------------------------

    def _texts(self) -> ModuleTexts:
        stages: list[StageText] = []
        for index, stage in enumerate(self.stages):
            marks = stages[-1].marks if self._same_text_before(index) else self._marks(index)
            stages.append(StageText(index, stage.file.name, stage.chunks, marks))
        return ModuleTexts(self.name, stages, self.reader.texts, self.facts.gpu_target)

    def _marks(self, index: int) -> tuple[Mark, ...]:
        """Copies of this stage, the parameters of the last stage's copies and who reads them here."""
        stage, entry, owners, marks = self.copies[index], self.entries[index], {}, {}
        parameters = {number(i.arguments): i.name for i in entry.parameters} if entry is not None else {}
        for position, lineage in enumerate(self.lineages, 1):
            identity, match = f"c{position}", lineage.matches[index]
            if match is not None:
                owners.setdefault(match.key, []).append(identity)
            readers = match.readers if match is not None else stage.readers.get(lineage.copy.largest, ())
            if readers:
                marks.setdefault(("consumer", readers[0].computation, readers[0].instruction.name), []).append(identity)
            parameter = parameters.get(lineage.copy.largest[0])
            if parameter is not None:
                marks.setdefault(("parameter", entry.name, parameter), []).append(identity)
        copies = [Mark(c.computation, c.instruction.name, "copy", tuple(owners.get(c.key, ())), c.kind, c.where, c.bytes)
                  for c in stage.copies]
        return (*copies, *(Mark(computation, instruction, role, tuple(ids))
                           for (role, computation, instruction), ids in marks.items()))


def _user(reader: Read) -> dict:
    return {"instruction": reader.instruction.name, "opcode": reader.instruction.opcode, "computation": reader.computation,
            "wants": reader.operand.text}


def _consumer(copy: ParameterCopy) -> dict | None:
    """Who reads the copy at the last stage; one inside a loop if there is one."""
    return _user(copy.readers[0]) if copy.readers else None


def _iterations(stages: list[Stage]) -> list[int | None]:
    """Which run of a pipeline that is repeated to a fixed point each stage belongs to; None where it ran once."""
    result: list[int | None] = [None] * len(stages)
    start = 0
    while start < len(stages):
        end = start
        while end < len(stages) and stages[end].file.pipeline == stages[start].file.pipeline:
            end += 1
        starts = [i for i in range(start, end) if stages[i].file.pass_ == PIPELINE_START]
        if len(starts) > 1:
            for index in range(start, end):
                result[index] = max(1, sum(s <= index for s in starts))
        start = max(end, start + 1)
    return result
