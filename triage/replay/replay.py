"""A module's variants, one after the other, and what they say together."""
from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from . import compare
from .measure import Measurement, measure
from .merge import put_history, put_replays
from .process import DEFAULT_LIMITS, Limits
from .source import Source
from .toolchains import Toolchain
from .variants import AUTO_ALL, BASELINE, Variant, store_transposed, variants

Progress = Callable[[str, int, int], None]


def replay(module: dict, source: Source, toolchain: Toolchain, progress: Progress, limits: Limits = DEFAULT_LIMITS) -> None:
    """Measures the baseline and every variant, and writes `replays`, `remedies` and, where the dump has no passes, its
    history into the module of a report."""
    progress("compiling it as it is", 0, 1)
    first = measured(source, BASELINE, toolchain, module, limits, every_pass=True)
    baseline = {**first.row, **compare.against_upload(first.row, module)}
    if first.module is not None:
        put_history(module, first.module, baseline)
    rows = [baseline]
    planned = variants(module)
    for position, variant in enumerate(planned):
        progress(f"compiling with {variant.says}", position + 1, len(planned) + 2)
        rows.append(_compared(measured(source, variant, toolchain, module, limits).row, baseline, module))
        if variant is AUTO_ALL and rows[-1]["status"] == "ok" and (stored := store_transposed(module, rows[-1]["layouts"])):
            rows.append(_compared(measured(source, stored, toolchain, module, limits).row, baseline, module))
    put_replays(module, rows)


def measured(source: Source, variant: Variant, toolchain: Toolchain, module: dict, limits: Limits,
             every_pass: bool = False) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="triage-replay-") as scratch:
        return measure(source, variant, toolchain, Path(scratch), module["totals"]["min_bytes"], limits, every_pass)


def _compared(row: dict, baseline: dict, module: dict) -> dict:
    return {**row, **compare.against_baseline(row, baseline, module)}
