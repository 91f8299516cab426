"""One line of HLO on a page: noise cut, long lines cut around what matters, changed words marked, coloured."""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import NamedTuple

from django.utils.safestring import SafeString, mark_safe

from triage.engine.lines import MAX_LINE, noise_ranges, without_noise
from triage.highlight import line_html

#: Characters that one page looks at, of all its lines. Where they have more, each is cut to its share of them.
PAGE_CHARACTERS = 4_000_000
#: Longest line shown whole; of longer ones HEAD and TAIL characters and AROUND each changed word stay.
SHOWN_WHOLE, HEAD, TAIL, AROUND = 400, 220, 60, 50
#: Changed places of one line that are shown; further ones are in the cut part.
MAX_WINDOWS = 8
#: Words of the differing middle of two lines that are compared one by one; more are marked as one change.
MAX_WORDS = 300
#: Below this share of common words two lines are different lines, and marking words tells nothing.
MIN_COMMON = 0.3

#: A shape, a layout and a name are one word each: half a layout says nothing.
_WORD = re.compile(r"""\w+\[[\d,<=? ]*\]|(?<=\])\{[\d,]*(?::[^{}"]{0,400})?\}|%[\w.\-#$<>@:/']+|[\w.\-#$]+|\s+|.""", re.DOTALL)
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.){0,300})')
Ranges = tuple[tuple[int, int], ...]


class Beginning(NamedTuple):
    """A line, or as much of it as a page looks at."""
    text: str
    left_out: int       # characters behind it


def beginning(line: str, limit: int = MAX_LINE) -> Beginning:
    return Beginning(line[:limit], max(0, len(line) - limit))


def page_limit(lengths: Iterable[int]) -> int:
    """Characters that a page looks at of each of its lines, which are so long."""
    cut = [min(length, MAX_LINE) for length in lengths]
    return MAX_LINE if sum(cut) <= PAGE_CHARACTERS else max(SHOWN_WHOLE, PAGE_CHARACTERS // len(cut))


def visible(line: str, meta: bool) -> str:
    """The part of a line that is shown."""
    return line.rstrip("\r") if meta else without_noise(line)


def hidden_note(line: str, meta: bool, left_out: int = 0) -> str:
    """What is left out of a line, in words: its op_name where it has one; "" where nothing is."""
    if left_out:
        return f"{len(line) + left_out:,} characters"
    if not meta and noise_ranges(line):
        found = _OP_NAME.search(line)
        return found[1] if found else "metadata and configuration"
    return f"{len(line):,} characters" if len(visible(line, meta)) > SHOWN_WHOLE else ""


def html(text: str, changed: Ranges = (), left_out: int = 0) -> SafeString:
    """`text`, cut if it is long, the ranges in `changed` marked. `left_out` characters behind it were cut already."""
    out, position = [], 0
    for start, end in _windows(text, changed, tail=not left_out):
        if start > position:
            out.append(f'<span class="gap">⋯ {start - position:,} characters ⋯</span>')
        inside = tuple((max(a, start) - start, min(b, end) - start) for a, b in changed if a < end and b > start)
        out.append(line_html(text[start:end], inside))
        position = end
    if left_out:
        out.append(f'<span class="gap">⋯ {len(text) - position + left_out:,} more characters; download the text</span>')
    elif position < len(text):
        out.append(f'<span class="gap">⋯ {len(text) - position:,} characters</span>')
    return mark_safe("".join(out))  # noqa: S308 - line_html escapes every token's text; the rest are numbers


def _windows(text: str, changed: Ranges, tail: bool) -> list[tuple[int, int]]:
    """The parts of a line that are shown: all of a short one; beginning, end and changed places of a long one."""
    if len(text) <= SHOWN_WHOLE:
        return [(0, len(text))]
    wanted = [(0, HEAD)]
    for start, end in changed[:MAX_WINDOWS]:
        wanted.append((start - AROUND, min(end, start + HEAD) + AROUND))
    if tail:
        wanted.append((len(text) - TAIL, len(text)))
    result: list[tuple[int, int]] = []
    for start, end in wanted:
        # Cut at blanks, where HLO text can be cut without splitting a name.
        start = max(0, text.rfind(" ", max(0, start - 40), max(0, start)) if start > 0 else 0, start - 40)
        end = min(len(text), max(end, text.find(" ", end, end + 40)))
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def changed_words(old: str, new: str, names: Mapping[str, str]) -> tuple[Ranges, Ranges]:
    """Where two versions of a line differ. `names` maps old names to new ones: another name alone does not count."""
    left, right = _WORD.findall(old), _WORD.findall(new)
    same_left = ["%" + names.get(word[1:], word[1:]) if word[0] == "%" else names.get(word, word) for word in left]
    first = _common(same_left, right)
    last = _common(same_left[first:][::-1], right[first:][::-1])
    middle, other = same_left[first:len(left) - last], right[first:len(right) - last]
    if len(middle) > MAX_WORDS or len(other) > MAX_WORDS:
        blocks = [(first, len(left) - last, first, len(right) - last)]
    else:
        matcher = SequenceMatcher(None, middle, other, autojunk=False)
        same = first + last + sum(block.size for block in matcher.get_matching_blocks())
        if same < MIN_COMMON * max(len(left), len(right)):
            return (), ()
        blocks = [(first + a, first + b, first + c, first + d) for tag, a, b, c, d in matcher.get_opcodes()
                  if tag != "equal"]
    return (_ranges(left, [(a, b) for a, b, _, _ in blocks]), _ranges(right, [(c, d) for _, _, c, d in blocks]))


def _common(left: list[str], right: list[str]) -> int:
    count = 0
    for a, b in zip(left, right):
        if a != b:
            break
        count += 1
    return count


def _ranges(words: list[str], blocks: list[tuple[int, int]]) -> Ranges:
    """Word positions as character positions; changes only a blank apart become one."""
    starts, position = [], 0
    for word in words:
        starts.append(position)
        position += len(word)
    starts.append(position)
    result: list[tuple[int, int]] = []
    for a, b in blocks:
        if a == b:
            continue
        start, end = starts[a], starts[b]
        if result and start - result[-1][1] <= 1:
            result[-1] = (result[-1][0], end)
        else:
            result.append((start, end))
    return tuple(result)
