"""A module's variants, one after the other, and what they say together."""
from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from triage.engine.analysis import ModuleTexts

from . import compare
from .measure import Measurement, measure
from .merge import REPLAYED, put_history, put_replays, put_versions
from .process import DEFAULT_LIMITS, Limits
from .source import Source
from .toolchains import Toolchain
from .variants import BASELINE, Variant, followers, variants

Progress = Callable[[str, int, int], None]


def replay(module: dict, source: Source, toolchain: Toolchain, progress: Progress,
           limits: Limits = DEFAULT_LIMITS) -> ModuleTexts | None:
    """Measures the baseline and every variant, and writes `replays`, `remedies` and, where the dump has no passes, its
    history into the module of a report. Returns the texts of that history; None where the dump has its own."""
    progress("compiling it as it is", 0, 1)
    first = _measured(source, BASELINE, toolchain, module, limits, every_pass=True)
    rows = [first.row]
    planned = variants(seen(module, first.row, first.module), first.row.get("fired"))
    for position, variant in enumerate(planned):
        progress(f"compiling with {variant.says}", position + 1, len(planned) + 1)
        rows.append(_measured(source, variant, toolchain, module, limits).row)
        planned += followers(variant, rows[-1], module)
    assemble(module, rows, first.module)
    return first.analysis.modules[0] if module.get("history") == REPLAYED else None


def compare_versions(module: dict, source: Source, toolchains: list[Toolchain], progress: Progress,
                     limits: Limits = DEFAULT_LIMITS) -> None:
    """Compiles the module as it is with each toolchain and writes `versions` into the module of a report."""
    rows = []
    for position, toolchain in enumerate(toolchains):
        progress(f"compiling with {toolchain.name}", position, len(toolchains))
        rows.append(_measured(source, BASELINE, toolchain, module, limits).row)
    put_versions(module, rows)


def seen(module: dict, baseline: dict, replayed: dict | None) -> dict:
    """The module, with the history of its recompile where it has none itself: a copy."""
    module = {**module, "copies": [dict(copy) for copy in module["copies"]]}
    if replayed is not None:
        put_history(module, replayed, {**baseline, **compare.against_upload(baseline, module)})
    return module


def assemble(module: dict, rows: list[dict], replayed: dict | None) -> None:
    """Writes what was measured into the module of a report. `rows`: of `measure`, the baseline's first; `replayed`: the
    module as its recompile's own dump shows it, where that is wanted for its history."""
    baseline = {**rows[0], **compare.against_upload(rows[0], module)}
    if replayed is not None:
        put_history(module, replayed, baseline)
    put_replays(module, [baseline, *({**row, **compare.against_baseline(row, baseline, module)} for row in rows[1:])])


def _measured(source: Source, variant: Variant, toolchain: Toolchain, module: dict, limits: Limits,
              every_pass: bool = False) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="triage-replay-") as scratch:
        return measure(source, variant, toolchain, Path(scratch), module["totals"]["min_bytes"], limits, every_pass)
