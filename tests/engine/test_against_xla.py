"""The engine held against an independent walk (oracle.py) over what XLA's own parser reads."""
from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import sampled_from

from triage.engine.copies import StageCopies, default_min_bytes, entry_parameters, parameter_copies
from triage.engine.files import StageFile, find_modules
from triage.engine.flow import Flow
from triage.engine.stages import StageReader

from .oracle import Found
from .oracle import parameter_copies as independent_copies
from .programs import modules
from .test_cases import parse
from .xla_module import read_module

DUMPS = ["cpu-jaxlib0.10.2-attn_heads", "cpu-jaxlib0.10.2-f32_upcast", "cpu-jaxlib0.4.25-attn_heads",
         "h100-jaxlib0.10.2-attn_heads", "h100-jaxlib0.10.2-attn_heads-defaultdump", "h100-jaxlib0.10.2-fsdp8",
         "h100-jaxlib0.10.2-int8_dot", "h100-jaxlib0.10.2-llama3_8b_generate", "h100-jaxlib0.10.2-matvec_decode",
         "h100-jaxlib0.10.2-train_step", "h100-jaxlib0.4.38-attn_heads", "h100-jaxlib0.4.38-attn_heads-flag_off",
         "h100-jaxlib0.6.2-attn_heads", "v5e-libtpu0.0.42-attn_heads", "v5e-libtpu0.0.42-explicit_T",
         "v5e-libtpu0.0.42-train_step"]
#: Every how many-th stage is looked at; 1 with TRIAGE_TEST_EVERY_STAGE=1 in the environment, which takes a minute.
STEP = 1 if os.environ.get("TRIAGE_TEST_EVERY_STAGE") else 6
EXAMPLES = 1500 if os.environ.get("TRIAGE_TEST_EVERY_STAGE") else 300


def of_engine(copies: StageCopies) -> Counter:
    return Counter((c.instruction.name, c.kind, c.where, c.bytes, c.sources) for c in copies.copies)


def of_walk(copies: Counter[Found]) -> Counter:
    result: Counter = Counter()
    for found, count in copies.items():
        result[found.name, found.kind, found.where, found.bytes, found.parameters] += count
    return result


def loops(copies: Counter[Found]) -> set[tuple[str, str]]:
    return {(found.name, loop) for found in copies for loop in found.loops}


@pytest.mark.parametrize("name", DUMPS)
def test_stages_of_real_dumps(unpack_dump, name):
    compared = 0
    for files in find_modules(Path(unpack_dump(name))):
        reader = StageReader()
        stages = [reader.read(file) for file in files.stages]
        smallest = default_min_bytes(entry_parameters(reader.module(stages[-1])))
        flow, seen = Flow(smallest), set()
        for stage in [*stages[:-1:STEP], stages[-1]]:
            text = "".join(reader.texts[chunk.key] for chunk in stage.chunks)
            if text in seen:
                continue
            seen.add(text)
            expected = independent_copies(read_module(text), smallest)
            copies = parameter_copies(reader.module(stage), flow)
            assert of_engine(copies) == of_walk(expected), stage.file.name
            assert {(c.instruction.name, c.loop) for c in copies.copies if c.loop} <= loops(expected), stage.file.name
            compared += 1
    assert compared >= 2


def test_modules_of_other_people(unpack_dump):
    """By the default size and by size 1, with which everything counts. XLA does not read all of them any more."""
    compared = 0
    for path in sorted(path for path in unpack_dump("hlo_samples").rglob("*") if path.is_file()):
        try:
            module = read_module(path.read_text("utf-8", "backslashreplace"))
        except RuntimeError:
            continue
        reader = StageReader()
        stage = reader.module(reader.read(StageFile(path, path.name, "", None, None, None, path.name)))
        for smallest in {1, default_min_bytes(entry_parameters(stage))}:
            copies = parameter_copies(stage, Flow(smallest))
            assert of_engine(copies) == of_walk(independent_copies(module, smallest)), (path.name, smallest)
            compared += 1
    assert compared >= 60


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(modules(), sampled_from([1, 40, 90]))
def test_random_modules(text, smallest):
    """Arrays have 24, 48 or 96 bytes, so that by the smallest size that counts all, some or the largest ones matter."""
    expected = independent_copies(read_module(text), smallest)
    copies = parameter_copies(parse(text), Flow(smallest))
    assert of_engine(copies) == of_walk(expected)
    assert {(c.instruction.name, c.loop) for c in copies.copies if c.loop} <= loops(expected)
