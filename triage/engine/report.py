"""The whole analysis of one dump directory: `analyse` returns the report (schema hlo-triage/1) and the stage texts."""
from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from . import GENERATOR
from .analysis import SCHEMA, Analysis, First, InputError, Progress
from .files import find_loose_texts, find_modules
from .module import ModuleAnalysis

MAX_MODULES = 500       # of one dump; more are left out and said
EMPTY = ("There is no HLO text in this dump. If the directory is nearly empty, the program was probably taken from JAX's "
         "compilation cache: set JAX_ENABLE_COMPILATION_CACHE=false (or clear jax_compilation_cache_dir) and dump again.")


def analyse(path: str | Path, *, min_bytes: int | None = None, progress: Progress | None = None,
            first: First | None = None) -> Analysis:
    """Analyses a dump directory.

    `min_bytes` is the smallest copy that counts (default: 1 MiB or 1% of the largest parameter, per module). `first` is
    told what the last stages say long before the passes are known. Raises InputError where there is nothing to analyse;
    damage in single files is reported in the report.
    """
    root = Path(path)
    if not root.is_dir():
        raise InputError(f"{root.name} is not a directory.")
    modules = find_modules(root) or find_loose_texts(root)
    if not modules:
        raise InputError(EMPTY)
    parts = [ModuleAnalysis(files, min_bytes, progress or _silent) for files in modules[:MAX_MODULES]]
    faults = _Faults()
    with _no_collector():
        begun = [(part, summary) for part in parts
                 if faults.apart(part, part.has_text) and (summary := faults.apart(part, part.begin))]
        begun.sort(key=lambda pair: _worst_first(pair[1]))
        if begun and first is not None:
            first([summary for _, summary in begun])
        done = [result for part, _ in begun if (result := faults.apart(part, part.finish))]
    if not done:
        raise faults.last or InputError("None of the HLO files in this dump could be read as HLO text.")
    done.sort(key=lambda part: _worst_first({"name": part[0]["name"], **part[0]["totals"]}))
    for index, (report, _) in enumerate(done):
        report["index"] = index
    left_out = len(modules) - MAX_MODULES
    notes = [f"{left_out} more modules were left out: at most {MAX_MODULES} are analysed."] if left_out > 0 else []
    report = {"schema": SCHEMA, "generator": GENERATOR, "notes": notes + faults.notes, "modules": [part[0] for part in done]}
    return Analysis(report, [part[1] for part in done])


def _silent(phase: str, done: int, total: int) -> None:
    """Progress for nobody."""


_Result = TypeVar("_Result")


class _Faults:
    """Faults of ours: one module must not lose the others. Where all have one, the last is raised."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.last: Exception | None = None

    def apart(self, part: ModuleAnalysis, step: Callable[[], _Result]) -> _Result | None:
        try:
            return step()
        except MemoryError:
            raise
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.last = error
            self.notes.append(f"{part.name} could not be analysed. This is a fault of HLO Triage: {type(error).__name__} in "
                              f"{Path(place.filename).name}, line {place.lineno}.")
            return None


def _worst_first(summary: dict) -> tuple:
    return -summary["hoisted_bytes"], -summary["copied_bytes"], summary["name"]


@contextmanager
def _no_collector() -> Iterator[None]:
    """Millions of small objects and no cycles among them: looking for garbage would take a quarter of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()     # what lives on is live: not to be looked through at once
            gc.enable()
