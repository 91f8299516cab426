"""Long hostile lines through everything that reads dump text in the web process. Run as a program it prints a line of JSON
for each line given by name: how many seconds the slowest function took, and which one that was.

The test runs it as a child process, so that a line on which a function hangs fails the test instead of stopping all.
"""
from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

LENGTH = 200_000
START = "  %x = f32[1]{0} add(%a, %b)"


def many(piece: str) -> str:
    return piece * (LENGTH // len(piece))


LINES = {
    "blanks": lambda: f"{START}, metadata={{op_name=\"a\"}}{many(' ')}z",
    "tabs": lambda: f"{many(chr(9))}z",
    "commas and blanks": lambda: START + many(", "),
    "commas": lambda: f"  %x = f32[{many('1,')}] add(%a)",
    "blanks in a head": lambda: f"%f (p: f32[1]) -> f32[1] {many(' ')}{{{many(' ')}x {{",
    "blanks after ROOT": lambda: f"  ROOT{many(' ')}x{many(' ')}y",
    "braces in a head": lambda: f"%f (p){many(' {')}",
    "braces that no head ends with": lambda: f"%f (p){many(' {')} x",
    "a long name before a bracket": lambda: f"%{many('a')}{many('(')}",
    "a long bare operand": lambda: f"  x = f32[1] add({many('a')}[)",
    "many bare operands": lambda: f"  x = f32[1] add({many('a[')})",
    "dots and digits": lambda: f"  %x{many('.1')}x = f32[1] add(%a{many('.1')}x)",
    "dots and clones": lambda: f"  %x{many('.clone')}x = f32[1] add(%a)",
    "escaped quotes in an open string": lambda: f"{START}, metadata={{op_name=\"{many(chr(92) + chr(34))}",
    "escaped quotes without a string": lambda: f"{START}, metadata={{{many(chr(92) + chr(34))}",
    "escaped quotes behind open braces": lambda: f"{START}, metadata={{{{{many(chr(92) + chr(34))}",
    "a string for a value": lambda: f"{START}, backend_config=\"{many(chr(92) + chr(34))}",
    "quotes": lambda: START + many('"'),
    "backslashes": lambda: f"{START}, metadata={{\"{many(chr(92))}",
    "open noise": lambda: START + many(", metadata={"),
    "open noise with strings": lambda: START + many(', metadata={"'),
    "noise": lambda: START + many(", metadata={a}"),
    "noise for values": lambda: START + many(", origin="),
    "nested configuration": lambda: f"{START}, backend_config={'{' * 90_000}{'}' * 90_000}",
    "a wide deep list": lambda: f"{START}, backend_config={{\"a\":{'[' * 900}{many('1,')}1{']' * 900}}}",
    "brackets": lambda: f"  %x = f32[1] add({many('[')}",
    "brackets that close": lambda: f"  %x = {'(' * 90_000}{')' * 90_000} add(%a)",
    "all brackets": lambda: START + many("([{"),
    "open shapes": lambda: START + many("f32[1,"),
    "an open shape": lambda: f"{START} f32[{many('1,')}",
    "open layouts": lambda: START + many("]{:"),
    "a layout of letters": lambda: f"  %x = f32[1]{{0:{many('A')}}} add(%a)",
    "tiles": lambda: f"  %x = f32[1]{{0:{many('T(1)')}}} add(%a)",
    "comments": lambda: START + many("/*"),
    "apostrophes": lambda: START + many("'a"),
    "names": lambda: f"  %x = f32[1] add({many('%a, ')}",
    "percent signs": lambda: START + many("%"),
    "percent signs and dots": lambda: f"%{many('a.')}",
    "equals signs": lambda: many("= "),
    "attributes": lambda: START + many(", a=1"),
    "attributes without values": lambda: f"{many('a=')}",
    "calls": lambda: f"  x = f32[1] add(a){many(', calls=')}{many('a')}(",
    "op_names": lambda: START + many('op_name="'),
    "digits": lambda: f"{START}, index={many('9')}",
    "numbers": lambda: START + many(" 1.5e"),
    "dashes": lambda: START + many("-a"),
    "letters": lambda: many("a"),
    "words": lambda: many("a "),
    "backquotes": lambda: many("`a"),
    "pipes": lambda: many("\\|"),
    "escape characters": lambda: many("\x1b"),
}


def functions() -> dict[str, Callable[[str, str], object]]:
    """What reads one line, or two that differ, by name."""
    from triage.engine import align, lines, printable
    from triage.highlight import line_html
    from triage.reports import excerpt, github, markdown
    from triage.viewer import instruction
    from triage.viewer import lines as shown
    from triage.viewer.templatetags import triage_format

    def alone(function: Callable[[str], object]) -> Callable[[str, str], object]:
        return lambda line, _: function(line)

    def aligned(line: str, other: str) -> None:
        old, new = [line, START, line + "x"], [other, line]
        align.align(old, new, [lines.keys(each) for each in old], [lines.keys(each) for each in new], {}, {})

    single = (lines.noise_ranges, lines.without_noise, lines.defined_name, lines.name_ranges, lines.stem, lines.keys,
              shown.html, instruction._part, instruction._pretty, excerpt.trim, excerpt._NAME.match, printable.one_line,
              markdown.plain, markdown.code, markdown.sentence, triage_format.ticks, triage_format.hlo)
    found = {f"{function.__module__}.{function.__name__}" if hasattr(function, "__module__") else str(function):
             alone(function) for function in single}
    # A lexer takes its time for each token; tests/highlight has longer lines for it.
    return {**found, "line_html": lambda line, _: line_html(line[:LENGTH // 4]), "align": aligned,
            "changed_words": lambda line, other: shown.changed_words(line, other, {}),
            "visible": lambda line, _: [shown.visible(line, meta) for meta in (True, False)],
            "hidden_note": lambda line, _: [shown.hidden_note(line, meta) for meta in (True, False)],
            "block": lambda line, other: markdown.block([line, other]),
            "table": lambda line, other: markdown.table(["a"], [[line], [other]]),
            "prefilled": lambda line, _: github.prefilled("title", line)}


def slowest(line: str) -> tuple[float, str]:
    """Seconds of the slowest function, and its name. The other line has a change in its middle."""
    other = line[:len(line) // 2] + "%other" + line[len(line) // 2:]
    result = (0.0, "")
    for name, function in functions().items():
        start = time.monotonic()
        function(line, other)
        result = max(result, (time.monotonic() - start, name))
    return result


if __name__ == "__main__":
    import os

    import django
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    for key in sys.argv[1:]:
        print(json.dumps({"name": key}), flush=True)
        taken, slow = slowest(LINES[key]())
        print(json.dumps({"name": key, "seconds": taken, "function": slow}), flush=True)
