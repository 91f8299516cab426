"""What is taken over from the stage before is what a walk from scratch finds."""
from __future__ import annotations

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triage.engine.copies import parameter_copies
from triage.engine.flow import Flow
from triage.engine.ir import Module
from triage.engine.text import Parser, split_chunks

from .programs import modules
from .test_against_xla import EXAMPLES

NAMES = re.compile(r"(?<=[(,] |.\()[a-z][\w\-]*\.\d+")
LAYOUT = re.compile(r"(?<=\])\{[\d,]+\}")


def parse(parser: Parser, text: str) -> Module:
    computations = [c for chunk in split_chunks(text)[1:] if (c := parser.computation(chunk)) is not None]
    entry = next((c for c in computations if c.is_entry), computations[-1])
    return Module("m", "", {c.name: c for c in computations}, entry)


@st.composite
def changed(draw, text: str) -> str:
    """The text as a pass might leave it, or as no pass would: it need not make sense."""
    lines = text.split("\n")
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(lines) - 1))
        line, sort = lines[position], draw(st.integers(0, 5))
        if sort == 0:       # another layout
            lines[position] = LAYOUT.sub(lambda m: "{" + ",".join(reversed(m[0][1:-1].split(","))) + "}", line, count=1)
        elif sort == 1:     # another operand, defined or not
            names = re.findall(r"^\s+(?:ROOT )?(\S+) =", "\n".join(lines), re.M)
            lines[position] = NAMES.sub(draw(st.sampled_from(names or ["p.1"])), line, count=1)
        elif sort == 2 and " = " in line:
            del lines[position]
        elif sort == 3:     # a new quantity
            lines[position] = re.sub(r"\b(copy|transpose|convert|reverse|bitcast)\(", "dot(", line)
        elif sort == 4 and " = " in line and " = " in lines[position - 1]:
            lines[position - 1], lines[position] = line, lines[position - 1]
        elif sort == 5 and " = " in line and " = " in lines[position - 1]:      # two of one name
            name = lines[position - 1].split(" = ")[0].replace("ROOT ", "")
            lines[position] = name + " = " + line.split(" = ", 1)[1]
    return "\n".join(lines)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.data(), modules(), st.sampled_from([1, 40, 90]))
def test_stages_after_one_another_are_as_each_alone(data, text, smallest):
    parser, together = Parser(), Flow(smallest)
    stages = [text]
    for _ in range(3):
        stages.append(data.draw(changed(stages[-1])))
    for stage in [*stages, text, data.draw(modules())]:
        module = parse(parser, stage)
        assert parameter_copies(module, together) == parameter_copies(module, Flow(smallest))


def test_an_instruction_that_reads_itself_is_out_of_order():
    parser, together = Parser(), Flow(1)
    head = "HloModule random\n\nENTRY main {\n"
    reads = "  add.3 = f32[4,6]{0,1} add(%s, p.2)\n"
    parameter = "  p.2 = f32[4,6]{0,1} parameter(0)\n"
    for lines in (parameter + reads % "p.2", reads % "p.2" + parameter, reads % "add.3" + parameter):
        module = parse(parser, head + lines + "}\n")
        assert parameter_copies(module, together) == parameter_copies(module, Flow(1))


def test_of_two_instructions_of_one_name_the_one_left_counts():
    parser, together = Parser(), Flow(1)
    head = "HloModule random\n\nENTRY main {\n  p.1 = f32[4,6]{1,0} parameter(0)\n"
    copied, made = "  v.2 = f32[4,6]{0,1} copy(p.1)\n", "  v.2 = f32[4,6]{0,1} custom-call(p.1)\n"
    reads = "  ROOT r.3 = f32[4,6]{1,0} copy(v.2)\n}\n"
    for lines in (copied + made, copied, made + copied, made, copied):
        module = parse(parser, head + lines + reads)
        assert parameter_copies(module, together) == parameter_copies(module, Flow(1))
