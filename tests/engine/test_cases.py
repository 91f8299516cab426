"""Golden cases: `cases/*.txt` hold a module and, in comments at its top, the parameter copies to be found in it.

    // copy: INSTRUCTION KIND WHERE loop=NAME|- parameters=0,1 bytes=N     one line per copy
    // state: N         bytes of copies that only start what a loop overwrites (default 0)
    // prefetched: N    bytes moved whole into another memory space (default 0)
    // min_bytes: N     (default 1000)
    // xla: no, REASON  XLA's own parser rejects the text; otherwise the copies are also found by way of that parser
"""
from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from triage.engine.copies import StageCopies, parameter_copies
from triage.engine.flow import Flow
from triage.engine.ir import Module
from triage.engine.text import Parser, split_chunks

from .oracle import parameter_copies as independent_copies
from .xla_module import read_module

CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"), key=lambda path: path.name)
FIELD = re.compile(r"^// (copy|state|prefetched|min_bytes|xla): (.*)$", re.M)


def read_case(path: Path) -> tuple[str, dict[str, list[str]]]:
    text = path.read_text("utf-8")
    fields: dict[str, list[str]] = {}
    for key, value in FIELD.findall(text):
        fields.setdefault(key, []).append(value)
    return text, fields


def number(fields: dict[str, list[str]], key: str, default: int) -> int:
    return int(fields.get(key, [str(default)])[0])


def parse(text: str) -> Module:
    parser = Parser()
    computations = [parser.computation(chunk) for chunk in split_chunks(text)[1:]]
    assert computations and all(c is not None and c.closed and not c.unparsed for c in computations)
    entry = next((c for c in computations if c.is_entry), computations[-1])
    return Module("m", "", {c.name: c for c in computations}, entry)


def found(copies: StageCopies) -> Counter:
    return Counter(f"{c.instruction.name} {c.kind} {c.where} loop={c.loop or '-'} "
                   f"parameters={','.join(map(str, c.parameters))} bytes={c.bytes}" for c in copies.copies)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_engine_finds_exactly_these_copies(path):
    text, fields = read_case(path)
    copies = parameter_copies(parse(text), Flow(number(fields, "min_bytes", 1000)))
    assert found(copies) == Counter(fields.get("copy", []))
    assert copies.state_bytes == number(fields, "state", 0)
    assert copies.prefetched_bytes == number(fields, "prefetched", 0)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_walk_over_what_xla_parses_finds_them_too(path):
    text, fields = read_case(path)
    if "xla" in fields:
        with pytest.raises(Exception, match="INVALID_ARGUMENT"):
            read_module(text)
        return
    copies = independent_copies(read_module(text), number(fields, "min_bytes", 1000))
    assert Counter({f"{c.name} {c.kind} {c.where} loop={next(iter(c.loops), '-')} "
                    f"parameters={','.join(map(str, sorted({n for n, _ in c.parameters})))} bytes={c.bytes}": count
                    for c, count in copies.items()}) == Counter(fields.get("copy", []))
