"""Memory figures: every generation of XLA's files, real dumps, damaged ones, and jax's own account of fresh compiles."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from triage.engine.memory import put_copies, read_memory
from triage.engine.report import analyse

PROGRAMS = '''
import json, sys
import jax, jax.numpy as jnp
W, x = jnp.ones((256, 256)), jnp.ones((4, 256))
half = W.astype(jnp.bfloat16)
def m_loop(W, x, n): return jax.lax.fori_loop(0, n, lambda i, h: jnp.tanh(h @ (W.T + 1.0)), x)
def m_upcast(W, x): return jax.lax.fori_loop(0, 9, lambda i, h: jnp.tanh(h @ W.astype(jnp.float32)), x)
def m_two(W, x): return x @ W, (x @ W.T).sum()
def m_plain(W, x): return x @ W
def m_given(s, x): return {"a": s["a"] + x, "b": s["b"] * 2}
figures = {}
for f, args, donated in [(m_loop, (W, x, 10), ()), (m_upcast, (half, x), ()), (m_two, (W, x), ()), (m_plain, (W, x), ()),
                         (m_given, ({"a": x, "b": W}, x), (0,))]:
    m = jax.jit(f, donate_argnums=donated).lower(*args).compile().memory_analysis()
    figures["jit_" + f.__name__] = [m.argument_size_in_bytes, m.output_size_in_bytes, m.alias_size_in_bytes,
                                    m.temp_size_in_bytes]
print(json.dumps(figures))
'''
#: Of the compiler's dumps: argument, temp, peak bytes and how many of the copies are live at the peak.
TRUE = {
    "h100-jaxlib0.10.2-attn_heads": (34605056, 27268824, 62922788, 12),
    "h100-jaxlib0.10.2-int8_dot": (33570816, 34668880, None, 8),
    "h100-jaxlib0.10.2-llama3_8b_generate": (None, 28329537504, None, 11),
    "h100-jaxlib0.4.38-attn_heads": (34605056, None, None, 12),
    "cpu-jaxlib0.4.25-attn_heads": (34605056, 67383572, None, 16),
    "cpu-jaxlib0.10.2-attn_heads": (34605056, 67641752, None, 16),
}
ASSIGNMENT = """BufferAssignment:
allocation 0: size 400, parameter 0, shape |f32[100]| at ShapeIndex {}, maybe-live-out:
 value: <1 p @0> (size=400,offset=0): f32[100]{0}
allocation 1: size 80, parameter 1, shape |f32[20]| at ShapeIndex {}:
allocation 2: size 16, output shape is |(f32[100], f32[2])|, maybe-live-out:
allocation 3: size 8, maybe-live-out:
allocation 4: size 4, constant:
allocation 5: size 4, thread-local:
allocation 6: size 1000, color 0, preallocated-temp:
allocation 7: size 64, color 1, page 2, preallocated-temp:
"""
OLD_PEAK = """
BufferLiveRange:
    p{}:0-9
  Live ranges at 7 (peak):
    p: 400 bytes
    t{1}: 600 bytes

Used values:
    nothing: 5 bytes
"""
NEW_PEAK = """HloLiveRange (max 9):
  Live ranges at 7 (peak):
    t{1}: 600 bytes (cumulative: 600 bytes)
    p{}: 400 bytes (cumulative: 1000 bytes)
  Stack trace breakdown for peak usage: 1 000 bytes
"""


def read(**files: str) -> dict:
    names = {"report": "m-memory-usage-report.txt", "assignment": "m-buffer-assignment.txt", "live": "m-live-range.txt"}
    return read_memory({names[key]: (lambda text=text: text) for key, text in files.items()})


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("memory")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false",
                   "XLA_FLAGS": f"--xla_dump_to={folder} --xla_dump_hlo_module_re=jit_m_"}
    done = subprocess.run([sys.executable, "-c", PROGRAMS], env=environment, capture_output=True, text=True, check=True)
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_figures_are_those_of_jax(compiled):
    folder, figures = compiled
    modules = {module["name"]: module["memory"] for module in analyse(folder).report["modules"]}
    assert len(figures) == 5
    for name, expected in figures.items():
        memory = modules[name]
        assert [memory[key] for key in ("argument_bytes", "output_bytes", "alias_bytes", "temp_bytes")] == expected, name


@pytest.mark.parametrize("name", TRUE)
def test_real_dumps(unpack_dump, name):
    [module] = analyse(unpack_dump(name)).report["modules"]
    memory, (argument, temp, peak, live) = module["memory"], TRUE[name]
    for key, expected in (("argument_bytes", argument), ("temp_bytes", temp), ("peak_bytes", peak)):
        assert expected is None or memory[key] == expected
    assert sum(copy["live_at_peak"] for copy in module["copies"]) == live
    assert memory["live_copies_bytes"] == sum(copy["bytes"] for copy in module["copies"] if copy["live_at_peak"])
    assert 0 < memory["share_of_peak"] <= 1 and 0 < memory["share_of_temp"] <= 1


def test_every_sort_of_allocation():
    found = read(assignment=ASSIGNMENT)
    assert [found[key] for key in ("argument_bytes", "output_bytes", "alias_bytes", "constant_bytes", "temp_bytes",
                                   "other_memory_bytes")] == [480, 424, 400, 4, 1000, 64]
    assert found["source"] == "m-buffer-assignment.txt" and not found["notes"]


@pytest.mark.parametrize("files", [{"assignment": ASSIGNMENT + OLD_PEAK}, {"assignment": ASSIGNMENT, "live": NEW_PEAK},
                                   {"live": NEW_PEAK}], ids=["before 2026", "since 2026", "live ranges alone"])
def test_the_peak(files):
    found = read(**files)
    assert found["peak_bytes"] == 1000 and found["live_at_peak"] == {("p", ""), ("t", "1")}


@pytest.mark.parametrize("text, total", [
    ("Total bytes used: 300 (300B)\n\nAllocations sorted by size:\n", 300),
    ("Memory Space: default (color=0)\nTotal bytes: 200 (200B)\n\n"
     "Memory Space: alternate (color=1)\nTotal bytes: 50 (50B)\n", 250),
    ("nothing\n", None), (f"Total bytes: {'9' * 5000}\n", None),
], ids=["2024", "2026", "none", "absurd"])
def test_the_total(text, total):
    assert read(report=text)["total_bytes"] == total


@pytest.mark.parametrize("text", [ASSIGNMENT[:ASSIGNMENT.index("4, constant") - 1],
                                  ASSIGNMENT.replace("size 1000", f"size {'1' * 5000}"),
                                  ASSIGNMENT.replace("size 80", "size x"), "", "BufferAssignment:\n"],
                         ids=["cut", "absurd", "no number", "empty", "no allocation"])
def test_a_sum_that_lacks_a_part_is_not_told(text):
    found = read(assignment=text, report="Total bytes: 7\n", live=NEW_PEAK)
    assert found["temp_bytes"] is None and found["total_bytes"] == 7 and found["peak_bytes"] == 1000
    assert len(found["notes"]) == 1 and "m-buffer-assignment.txt" in found["notes"][0]


def test_damaged_live_ranges_cost_only_themselves():
    found = read(assignment=ASSIGNMENT, live=NEW_PEAK.replace("(cumulative: 600 bytes)", f"(cumulative: {'6' * 999} bytes)"))
    assert found["temp_bytes"] == 1000 and found["peak_bytes"] is None


def copies(*sizes: int, index: str = "1") -> list[dict]:
    return [{"instruction": "t", "output_index": index, "bytes": size, "where": "before_loop", "live_at_peak": None}
            for size in sizes]


def test_shares():
    found, mine = read(assignment=ASSIGNMENT, live=NEW_PEAK), copies(600)
    put_copies(found, mine)
    assert mine[0]["live_at_peak"] is True
    assert (found["share_of_temp"], found["live_copies_bytes"], found["share_of_peak"]) == (0.6, 600, 0.6)


def test_another_element_of_the_same_kernel_is_not_live():
    found, mine = read(assignment=ASSIGNMENT, live=NEW_PEAK), copies(600, index="0")
    put_copies(found, mine)
    assert mine[0]["live_at_peak"] is False and found["live_copies_bytes"] == 0


def test_no_share_is_claimed_of_what_lies_elsewhere():
    found, mine = read(assignment=ASSIGNMENT, live=NEW_PEAK), copies(600, 600)
    put_copies(found, mine)
    assert found["share_of_temp"] is None and found["share_of_peak"] is None
    assert "more than the temporary memory" in found["notes"][0]


def test_nothing_is_known_without_files():
    found, mine = read_memory({}), copies(600)
    put_copies(found, mine)
    assert mine[0]["live_at_peak"] is None
    assert {key: value for key, value in found.items() if value} == {}
