"""Memory figures of one module, from the files XLA writes beside its final text.

Exact sizes come from `-buffer-assignment.txt`; the peak and what is live there from `-live-range.txt`, or from the end of
an older buffer assignment. The human sizes of `-memory-usage-report.txt` are never turned into bytes; only its exact
total is used. Everything is read line by line, and damage costs only what it hides.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

_ALLOCATION = re.compile(r"allocation \d+: size (\d+)(?:, color (\d+))?(?:, page \d+)?(.*)$")
_TOTAL = re.compile(r"Total bytes(?: used)?: (\d+)")
_PEAK = re.compile(r"\s*Live ranges at (\d+) \(peak\):")
_LIVE = re.compile(r"\s+(\S+?)(\{[\d,]*\})?: (\d+) bytes(?: \(cumulative: (\d+) bytes\))?\s*$")


def read_memory(files: Mapping[str, Callable[[], str]]) -> dict:
    """Figures in bytes; None where the dump does not say.

    Keys: argument_bytes, output_bytes, constant_bytes, temp_bytes (main memory alone), other_memory_bytes (temporaries in
    other memory spaces, TPU), total_bytes, peak_bytes, live_at_peak (names of values, or None), source, peak_source
    (file names), notes (sentences).
    """
    result: dict = {"argument_bytes": None, "output_bytes": None, "constant_bytes": None, "temp_bytes": None,
                    "other_memory_bytes": None, "total_bytes": None, "peak_bytes": None, "source": None,
                    "peak_source": None, "live_at_peak": None, "notes": []}
    readers = (("-memory-usage-report.txt", _read_report), ("-buffer-assignment.txt", _read_assignment),
               ("-live-range.txt", _read_live))
    for ending, reader in readers:
        for name in sorted(files):
            if name.endswith(ending):
                try:
                    reader(files[name]().splitlines(), name, result)
                except OSError as error:
                    result["notes"].append(f"{name} cannot be read: {error.strerror}.")
                break
    return result


def _read_report(lines: Iterable[str], name: str, result: dict) -> None:
    match = next((m for line in lines if (m := _TOTAL.match(line))), None)
    if match:
        result["total_bytes"], result["source"] = int(match[1]), name


def _read_assignment(lines: list[str], name: str, result: dict) -> None:
    sums = {"argument_bytes": 0, "output_bytes": 0, "constant_bytes": 0, "temp_bytes": 0, "other_memory_bytes": 0}
    found = 0
    for line in lines:
        if not line.startswith("allocation "):
            continue
        match = _ALLOCATION.match(line)
        if match is None:
            continue
        found += 1
        kind = _kind(match[3], int(match[2] or 0))
        if kind:
            sums[kind] += int(match[1])
    if not found:
        result["notes"].append(f"{name} holds no allocation and was not used.")
        return
    result.update(sums, source=name)
    _read_live(lines, name, result)


def _kind(text: str, color: int) -> str | None:
    """Which sum an allocation belongs to; None for thread-local ones, which live in the kernels' own memory."""
    if ", parameter " in text:
        return "argument_bytes"
    if "preallocated-temp" in text:
        return "other_memory_bytes" if color else "temp_bytes"
    if "maybe-live-out" in text:
        return "output_bytes"
    return "constant_bytes" if ", constant" in text else None


def _read_live(lines: Iterable[str], name: str, result: dict) -> None:
    """The list under `Live ranges at N (peak):`, up to the first line of another kind."""
    live: set[str] = set()
    peak = total = None
    for line in lines:
        if peak is None:
            peak = _PEAK.match(line)
            continue
        match = _LIVE.match(line)
        if match is None:
            break
        live.add(match[1])
        total = int(match[4]) if match[4] else (total or 0) + int(match[3])
    if live:
        result.update(peak_bytes=total, live_at_peak=live, peak_source=name)
