"""Memory figures of one module, from the files XLA writes beside its final text.

Sizes come from `-buffer-assignment.txt`, where they are exact: arguments are the allocations of parameters, the output is
what may be live at the end (donated arguments included), temporaries are the preallocated ones; that is how XLA's own
statistics, and jax's `memory_analysis()`, count them. The peak and what is live there come from `-live-range.txt`, or
from the end of a buffer assignment older than April 2026. The human sizes of `-memory-usage-report.txt` are never turned
into bytes; only its exact total is used. Damage costs only what it hides.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from .ir import number

_ALLOCATION = re.compile(r"allocation \d+: size (\d+)(?:, color (\d+))?(?:, page \d+)?(.*)$")
_TOTAL = re.compile(r"Total bytes(?: used)?: (\d+)")
_PEAK = re.compile(r"\s*Live ranges at (\d+) \(peak\):")
_LIVE = re.compile(r"\s+(\S+?)(\{[\d,]*\})?: (\d+) bytes(?: \(cumulative: (\d+) bytes\))?\s*$")
Value = tuple[str, str]         # (instruction, index in its result such as "1", "" for the whole)
FIGURES = ("argument_bytes", "output_bytes", "alias_bytes", "constant_bytes", "temp_bytes", "other_memory_bytes")


def read_memory(files: Mapping[str, Callable[[], str]]) -> dict:
    """Figures in bytes; None where the dump does not say.

    Keys: argument_bytes, output_bytes, alias_bytes (of both: donated arguments), constant_bytes, temp_bytes (main memory
    alone), other_memory_bytes (temporaries in other memory spaces, TPU), total_bytes, peak_bytes, live_at_peak (a set of
    `Value`, or None), source, peak_source (file names), notes (sentences).
    """
    result: dict = {**dict.fromkeys(FIGURES), "total_bytes": None, "peak_bytes": None, "source": None,
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
    """The totals of all memory spaces together."""
    totals = [number(match[1]) for line in lines if (match := _TOTAL.match(line))]
    if totals and None not in totals:
        result["total_bytes"], result["source"] = sum(totals), name


def _read_assignment(lines: list[str], name: str, result: dict) -> None:
    sums, found, damaged = dict.fromkeys(FIGURES, 0), 0, 0
    for line in lines:
        if not line.startswith("allocation "):
            continue
        match = _ALLOCATION.match(line)
        size = number(match[1]) if match else None
        if match is None or size is None:
            damaged += 1
            continue
        found += 1
        for figure in _kinds(match[3], match[2]):
            sums[figure] += size
    if damaged or not found:
        # A sum that lacks a part is a wrong number.
        result["notes"].append(f"{name} is damaged or cut: its figures were not used." if damaged else
                               f"{name} holds no allocation and was not used.")
    else:
        result.update(sums, source=name)
    _read_live(lines, name, result)


def _kinds(text: str, color: str | None) -> tuple[str, ...]:
    """The sums an allocation belongs to; none for thread-local ones, which live in the kernels' own memory."""
    is_output = "maybe-live-out" in text
    if ", parameter " in text:
        return ("argument_bytes", "output_bytes", "alias_bytes") if is_output else ("argument_bytes",)
    if "preallocated-temp" in text:
        return ("temp_bytes",) if not (color or "").strip("0") else ("other_memory_bytes",)
    if is_output:
        return ("output_bytes",)
    return ("constant_bytes",) if ", constant" in text else ()


def _read_live(lines: Iterable[str], name: str, result: dict) -> None:
    """The list under `Live ranges at N (peak):`, up to the first line of another kind."""
    live: set[Value] = set()
    total, at_peak = 0, False
    for line in lines:
        if not at_peak:
            at_peak = _PEAK.match(line) is not None
            continue
        match = _LIVE.match(line)
        size = number(match[4] or match[3]) if match else None
        if match is None or size is None:
            break
        live.add((match[1], (match[2] or "")[1:-1]))
        total = size if match[4] else total + size
    if live:
        result.update(peak_bytes=total, live_at_peak=live, peak_source=name)


def put_copies(memory: dict, copies: list[dict]) -> None:
    """Says of each copy whether it is live at the peak, and of all what share they are; None where the dump does not tell.

    Adds share_of_temp (of the copies before a loop, which live together while it runs), live_copies_bytes and
    share_of_peak to `memory`, and takes live_at_peak out of it.
    """
    live = memory.pop("live_at_peak")
    if live is not None:
        for copy in copies:
            copy["live_at_peak"] = (copy["instruction"], copy["output_index"]) in live
    hoisted = sum(copy["bytes"] for copy in copies if copy["where"] == "before_loop")
    temp, peak = memory["temp_bytes"], memory["peak_bytes"]
    # More than all of it means that copies lie elsewhere, in the output or in on-chip memory: there is no share to tell.
    memory["share_of_temp"] = hoisted / temp if temp and hoisted <= temp else None
    if temp is not None and hoisted > temp:
        memory["notes"].append("The copies before loops are more than the temporary memory: some of them lie elsewhere, in "
                               "the output or in another memory space.")
    at_peak = sum(copy["bytes"] for copy in copies if copy["live_at_peak"]) if live is not None else None
    memory["live_copies_bytes"] = at_peak
    memory["share_of_peak"] = at_peak / peak if at_peak is not None and peak and at_peak <= peak else None
