"""What an analysis hands to its caller: the report and, per stage, the text and its marks.

The report (`Analysis.report`) is the JSON document of schema `hlo-triage/1`. The rest is what pages need and a report
would be too large for: the text of every stage as a list of chunks named by hash, and the instructions worth a highlight.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, NamedTuple

SCHEMA = "hlo-triage/1"

#: `progress(phase, done, total)`: phase is a short lower-case phrase ("reading stages of jit_step"); done <= total.
Progress = Callable[[str, int, int], None]

#: `first(modules)`: worst first, each with name, verdict, copies, copied_bytes, hoisted_bytes and temp_bytes (or None).
First = Callable[[list[dict]], None]


class InputError(Exception):
    """The input cannot be analysed at all; `str()` is one sentence for the user."""


class Chunk(NamedTuple):
    """One computation's text (or the text before the first one, `name == ""`), including what follows it up to the next."""
    key: str          # hexadecimal hash of the text; equal keys are equal texts
    name: str         # computation name without '%'; "" for the module header and its tables
    lines: int        # number of lines in the text
    entry: bool = False


class Mark(NamedTuple):
    """An instruction of one stage that takes part in a parameter copy."""
    computation: str            # name of the computation that holds the instruction, without '%'
    instruction: str            # name without '%'
    role: str                   # "copy", "parameter" or "consumer"
    copies: tuple[str, ...]     # ids of the copies of the last stage it belongs to ("c1"); () when it left no trace there
    kind: str = ""              # for role "copy": transpose, copy, convert, gather, concat, computed
    where: str = ""             # for role "copy": before_loop, in_loop, entry
    bytes: int = 0              # for role "copy": bytes written


@dataclass
class StageText:
    """One stage of a module: `"".join(texts[c.key] for c in chunks)` is the file's text to the letter."""
    index: int                  # position in the module's `stages`, 0-based; the same index as in the report
    file: str                   # path inside the dump
    chunks: tuple[Chunk, ...]
    marks: tuple[Mark, ...] = ()


@dataclass
class ModuleTexts:
    name: str
    stages: list[StageText] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)     # chunk key -> text
    gpu_target: str = ""        # text of the GPU's or TPU's own description, which a recompile needs; "" for none

    def text(self, stage: int) -> str:
        """A stage's file, to the letter."""
        return "".join([self.texts[chunk.key] for chunk in self.stages[stage].chunks])


@dataclass
class Analysis:
    report: dict
    modules: list[ModuleTexts]  # same order as report["modules"]
