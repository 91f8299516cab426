"""Which XLA wrote a dump, as a range with the reason, and what its small option files say."""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, timedelta

from .ir import MAX_DIGITS
from .knowledge import Releases, may_have_flag, release_dates

_OPTION = re.compile(r"^(\w+):\s*(.*)$")
_STRING = re.compile(r'^"((?:[^"\\]|\\.)*)"$')
_TYPED_OPERAND = re.compile(r"= \S+ [\w\-]+\([a-z]\w*\[[\d,]*\](?:\{[^}]*\})? %")
_LONG_OPERAND = re.compile(r"= \S+ (?!parameter|constant)[\w\-]+\(%")
_ELEMENT_OPERAND = re.compile(r"[(,] ?%[\w.\-]+#\d")


@dataclass(frozen=True)
class Facts:
    """What the guess may use. `header` and `sample` are pieces of the last stage's text."""
    file_names: list[str]
    header: str = ""
    debug_options: dict[str, str] = field(default_factory=dict)
    sample: str = ""


# (date of the XLA change, what shows it, test). Dates are of commits in openxla/xla.
_SINCE = (
    ("2026-07-13", "operands are written `%tuple#0`", lambda f: bool(_ELEMENT_OPERAND.search(f.sample))),
    ("2026-04-03", "live ranges are a file of their own", lambda f: _has(f, "-live-range.txt")),
    ("2025-12-02", "the text has a StackFrames table", lambda f: "\nStackFrames\n" in f.header),
    ("2025-04-11", "there is a .debug_options file", lambda f: _has(f, ".debug_options")),
    ("2025-03-11", "operands are written without their shapes", lambda f: bool(_LONG_OPERAND.search(f.sample))),
    ("2024-10-04", "there is a memory usage report", lambda f: _has(f, "-memory-usage-report.txt")),
)
_BEFORE = (
    ("2024-10-04", "there is a buffer assignment and no memory usage report",
     lambda f: _has(f, "-buffer-assignment.txt") and not _has(f, "-memory-usage-report.txt")),
    ("2025-03-11", "operands are written with their shapes", lambda f: bool(_TYPED_OPERAND.search(f.sample))),
    ("2026-04-03", "live ranges stand inside the buffer assignment",
     lambda f: _has(f, "-buffer-assignment.txt") and not _has(f, "-live-range.txt")),
)
#: A release is made of a source that is up to this much older.
LAG = timedelta(days=30)


def guess_version(facts: Facts) -> dict | None:
    """Which XLA wrote the dump, as ranges with the reason; None if nothing tells.

    Keys: range and reason (sentences), since and before (dates of XLA's source), jaxlib_first and jaxlib_last (releases
    that may have been it, None for no bound).
    """
    since = next(((date, why) for date, why, shows in _SINCE if shows(facts)), None)
    before = next(((date, why) for date, why, shows in _BEFORE if shows(facts)), None)
    first, last, flags = _releases(facts, since[0] if since else None, before[0] if before else None)
    if since is None and before is None and not flags:
        return None
    reasons = [why for _, why in filter(None, (since, before))]
    if flags:
        reasons.append(f"it was given {', '.join(f'`{flag}`' for flag in flags)}, which other releases do not have")
    return {"range": _range(since, before, Releases(first, last)), "reason": "; ".join(reasons),
            "since": since[0] if since else None, "before": before[0] if before else None,
            "jaxlib_first": first, "jaxlib_last": last}


def _releases(facts: Facts, since: str | None, before: str | None) -> tuple[str | None, str | None, list[str]]:
    """(first and last jaxlib release that may have been it, the flags that narrowed that down)."""
    dates = release_dates()
    late = (date.fromisoformat(before) + LAG).isoformat() if before else None
    options = [r for r, day in dates.items() if (since is None or day >= since) and (late is None or day <= late)]
    narrowing: list[str] = []
    for flag in facts.debug_options:
        known = may_have_flag(flag)
        fewer = [r for r in options if Releases(r, r).within(known)] if known is not None else options
        if fewer and len(fewer) < len(options):
            options = fewer
            narrowing.append(flag)
    first = options[0] if options and (since or narrowing) and options[0] != next(iter(dates)) else None
    last = options[-1] if options and options[-1] != list(dates)[-1] else None
    return first, last, narrowing


def _range(since: tuple[str, str] | None, before: tuple[str, str] | None, releases: Releases) -> str:
    source = ""
    if since and before:
        source = f"XLA of {since[0]} to {before[0]}"
    elif since or before:
        source = f"XLA of {since[0]} or later" if since else f"XLA before {before[0]}"
    if not (releases.first or releases.last):
        return source
    words = str(releases).replace(">= ", "").replace("<= ", "")
    words += " or later" if releases.last is None else " or earlier" if releases.first is None else ""
    return f"{source} ({words})" if source else f"XLA of {words}"


def _has(facts: Facts, ending: str) -> bool:
    return any(name.endswith(ending) for name in facts.file_names)


def read_debug_options(text: str) -> dict[str, str | list[str]]:
    """The fields of a `.debug_options` file, all of them not at their defaults; repeated ones as a list."""
    result: dict[str, str | list[str]] = {}
    for line in text.splitlines():
        match = _OPTION.match(line)
        if match is None:
            continue
        string = _STRING.match(match[2].strip())
        value = string[1] if string else match[2].strip()
        known = result.get(match[1])
        if known is None:
            result[match[1]] = value
        else:
            result[match[1]] = [*known, value] if isinstance(known, list) else [known, value]
    return result


def read_target(text: str) -> dict:
    """Facts of a `gpu_target_config.pbtxt`: name, compute_capability, cores, memory_bytes; only those it holds."""
    result: dict = {}
    name = re.search(r'device_description_str:\s*"([^"\n]{1,200})"', text) or re.search(r'\bname:\s*"([^"\n]{1,200})"', text)
    if name:
        result["name"] = name[1]
    capability = re.search(r"cuda_compute_capability\s*\{([^}]*)\}", text)
    if capability:
        numbers = dict(re.findall(r"(major|minor):\s*(\d+)", capability[1]))
        result["compute_capability"] = f"{numbers.get('major', '?')}.{numbers.get('minor', '0')}"
    for key, field_name in (("cores", "core_count"), ("memory_bytes", "device_memory_size")):
        match = re.search(rf"\b{field_name}:\s*(\d+)", text)
        if match:
            result[key] = int(match[1][:MAX_DIGITS])
    return result
