"""Which XLA wrote a dump, as a range with the reason, and what its small option files say."""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from .ir import MAX_DIGITS
from .knowledge import Releases, may_have_flag, release_dates
from .knowledge import key as by_number

_OPTION = re.compile(r"^(\w+):\s*(.*)$")
_STRING = re.compile(r'^"((?:[^"\\]|\\.)*)"$')
_TYPED_OPERAND = re.compile(r"= \S+ [\w\-]+\([a-z]\w*\[[\d,]*\](?:\{[^}]*\})? %")
_LONG_OPERAND = re.compile(r"= \S+ (?!parameter|constant)[\w\-]+\(%")
_ELEMENT_OPERAND = re.compile(r"[(,] ?%[\w.\-]+#\d")
_NAMED_END = re.compile(r"^\} // ", re.M)
_PLAIN_END = re.compile(r"^ .*\n(?: .*\n){5,}\}\s*$", re.M)      # of a body of more than five instructions
_DUMPED = re.compile(r"\bmodule_\d{4,}\.")
_OF_TPU = re.compile(r"\.cl_\d+\.|tpu_comp_env")


@dataclass(frozen=True)
class Facts:
    """What the guess may use. `header` is a piece of the last stage's text, `sample` one of its instructions with the end of
    their computation, `memory_report` the beginning of the memory usage report, `assignment` the whole buffer assignment."""
    file_names: list[str]
    header: str = ""
    debug_options: dict[str, str] = field(default_factory=dict)
    sample: str = ""
    memory_report: str = ""
    assignment: str = ""


@dataclass(frozen=True)
class _Sign:
    """Something that came or went between two releases. `release`: the first that has what came, the last that has what
    went. `date`: of the change in openxla/xla; where only releases were compared, None for what came and the day of the next
    release for what went."""
    release: str
    date: str | None
    words: str
    shows: Callable[[Facts], bool]


# Seen in dumps of one small program, written on the CPU by the wheels of 37 releases, 0.4.23 to 0.12.0: each sign shows in the
# releases from (or up to) the one named and in no other. What a flag can bring earlier or take away later only counts on the
# side where it cannot. In dumps of a GPU (0.4.38, 0.6.2, 0.10.2) and a TPU (libtpu 0.0.42, which comes with 0.10.2) the signs
# are the same; that of the missing `.ir-no-opt.ll` was seen on the CPU alone.
_CAME = (
    _Sign("0.11.0", "2026-07-13", "operands are written `%tuple#0`", lambda f: bool(_ELEMENT_OPERAND.search(f.sample))),
    _Sign("0.10.0", "2026-04-03", "live ranges are a file of their own", lambda f: _has(f, "-live-range.txt")),
    _Sign("0.9.2", None, "the memory usage report is by memory space", lambda f: f.memory_report.startswith("Memory Space:")),
    _Sign("0.8.2", "2025-12-02", "the text has a StackFrames table", lambda f: "\nStackFrames\n" in f.header),
    # In the CUDA plugin: its name is in that of 0.7.0, and not in that of 0.6.2.
    _Sign("0.7.0", "2025-07-18", "`dot-strength-reduction` is a pass of its own",
          lambda f: any(".after_dot-strength-reduction.before_" in name for name in f.file_names)),
    _Sign("0.6.0", "2025-04-11", "there is a .debug_options file", lambda f: _has(f, ".debug_options")),
    _Sign("0.5.3", "2025-03-11", "operands are written without their shapes", lambda f: bool(_LONG_OPERAND.search(f.sample))),
    _Sign("0.5.1", None, "computations end without their names",
          lambda f: _dumped(f) and bool(_PLAIN_END.search(f.sample)) and not _NAMED_END.search(f.sample)),
    _Sign("0.4.35", "2024-10-04", "there is a memory usage report", lambda f: _has(f, "-memory-usage-report.txt")),
)
# A file that is missing tells little, since people choose what they send: only where one that is written together with it is
# there, and nothing that is there says otherwise.
_WENT = (
    _Sign("0.4.34", "2024-10-04", "there is a buffer assignment and no memory usage report",
          lambda f: _has(f, "-buffer-assignment.txt") and not _has(f, "-memory-usage-report.txt")),
    _Sign("0.5.0", "2025-02-24", "computations end with their names", lambda f: bool(_NAMED_END.search(f.sample))),
    _Sign("0.5.1", "2025-03-11", "operands are written with their shapes", lambda f: bool(_TYPED_OPERAND.search(f.sample))),
    _Sign("0.9.1", "2026-03-18", "the memory usage report is one for all memory spaces",
          lambda f: f.memory_report.startswith("Total bytes used:")),
    _Sign("0.9.2", "2026-04-03", "live ranges stand inside the buffer assignment",
          lambda f: "BufferLiveRange:" in f.assignment),
    _Sign("0.11.0", "2026-08-04", "LLVM code is dumped though nobody asked for it",
          lambda f: _has(f, ".ir-no-opt.ll") and _has(f, ".debug_options") and "xla_dump_emitter_re" not in f.debug_options),
)


def guess_version(facts: Facts) -> dict | None:
    """Which XLA wrote the dump, as ranges with the reason; None if nothing tells.

    Keys: range and reason (sentences), since and before (dates of XLA's source), jaxlib_first and jaxlib_last (releases
    that may have been it, None for no bound).
    """
    came = [sign for sign in _CAME if sign.shows(facts)]
    least = by_number(came[0].release) if came else ()
    went = [sign for sign in _WENT if sign.shows(facts) and by_number(sign.release) >= least]
    first, last, flags = _narrowed(facts, came[0].release if came else None, went[0].release if went else None)
    if not (came or went or flags):
        return None
    reasons = [sign.words for sign in came[:1] + went[:1]]
    if flags:
        reasons.append(f"it was given {', '.join(f'`{flag}`' for flag in flags)}, which other releases do not have")
    if _is_of_tpu(facts):
        first, last = _neighbour(first, -1), _neighbour(last, 1)
        reasons.append("libtpu's XLA can be a release older or newer than jaxlib's")
    since = next((sign.date for sign in came if sign.date), None)
    before = next((sign.date for sign in went if sign.date), None)
    return {"range": _range(since, before, Releases(first, last)), "reason": "; ".join(reasons),
            "since": since, "before": before, "jaxlib_first": first, "jaxlib_last": last}


def _narrowed(facts: Facts, first: str | None, last: str | None) -> tuple[str | None, str | None, list[str]]:
    """(first and last release, narrowed by the flags that were given; those flags)."""
    releases = list(release_dates())
    options = [r for r in releases if Releases(r, r).within(Releases(first, last))]
    narrowing: list[str] = []
    for flag in facts.debug_options:
        spans = may_have_flag(flag)
        fewer = [r for r in options if any(Releases(r, r).within(span) for span in spans)]
        if fewer and (fewer[0], fewer[-1]) != (options[0], options[-1]):
            narrowing.append(flag)
            options = fewer
    if narrowing:
        first = options[0] if first or options[0] != releases[0] else None
        last = options[-1] if last or options[-1] != releases[-1] else None
    return first, last, narrowing


def _neighbour(release: str | None, step: int) -> str | None:
    """The release before or after; None where there is none."""
    releases = list(release_dates())
    position = releases.index(release) + step if release else -1
    return releases[position] if 0 <= position < len(releases) else None


def _range(since: str | None, before: str | None, releases: Releases) -> str:
    source = f"XLA before {before}" if before else ""
    if since:
        source = f"XLA of {since} to {before}" if before else f"XLA of {since} or later"
    if not (releases.first or releases.last):
        return source
    words = str(releases).replace(">= ", "").replace("<= ", "")
    words += " or later" if releases.last is None else " or earlier" if releases.first is None else ""
    return f"{source} ({words})" if source else f"XLA of {words}"


def _dumped(facts: Facts) -> bool:
    """Whether XLA itself named the files: people print modules in other forms."""
    return any(_DUMPED.search(name) for name in facts.file_names)


def _is_of_tpu(facts: Facts) -> bool:
    return any(_OF_TPU.search(name) for name in facts.file_names)


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
