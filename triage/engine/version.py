"""Which XLA wrote a dump, as a range of dates with the reason, and what its small option files say."""
from __future__ import annotations

import re
from dataclasses import dataclass, field

from .ir import MAX_DIGITS

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
    ("2025-03-11", "operands are written with their shapes", lambda f: bool(_TYPED_OPERAND.search(f.sample))),
    ("2026-04-03", "live ranges stand inside the buffer assignment",
     lambda f: _has(f, "-buffer-assignment.txt") and not _has(f, "-live-range.txt")),
)


def guess_version(facts: Facts) -> dict | None:
    """{"range", "reason", "since", "before"}: dates of XLA's source between which this dump was written; None if unknown."""
    since = next(((date, why) for date, why, shows in _SINCE if shows(facts)), None)
    before = next(((date, why) for date, why, shows in _BEFORE if shows(facts)), None)
    if since is None and before is None:
        return None
    parts = ([f"from {since[0]}"] if since else []) + ([f"before {before[0]}"] if before else [])
    reasons = [why for _, why in filter(None, (since, before))]
    return {"range": "XLA " + " and ".join(parts), "reason": "; ".join(reasons),
            "since": since[0] if since else None, "before": before[0] if before else None}


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
