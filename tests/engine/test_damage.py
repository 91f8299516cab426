"""Whatever a file holds, the engine ends soon, with a report or with one sentence."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .damaged import MODULES

CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"))
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20            # for one module, on a machine that is busy; what is slow takes minutes


def run_apart(names: list[str]) -> dict[str, dict]:
    command = [sys.executable, "-m", "tests.engine.damaged", *names]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS * 4)
    except subprocess.TimeoutExpired as error:
        last = json.loads((error.stdout or b"{}").decode().strip().split("\n")[-1])
        pytest.fail(f"no end to {last}")
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: line["outcome"] for line in lines}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict]:
    return run_apart(list(MODULES))


@pytest.mark.parametrize("name", MODULES)
def test_a_damaged_module_ends_in_a_report_or_a_sentence(outcomes, name):
    result = outcomes[name]
    assert result["seconds"] < SECONDS
    assert "error" in result or result["report"] > 0


@pytest.mark.parametrize("name", ["deep tuple shape", "doubling tuples", "deep tuples", "deep calls", "calls in a circle",
                                  "operands in a circle", "lines of no HLO", "literal lines", "two line ends", "spaces",
                                  "tiles of nothing", "numbers of many digits", "many branches", "heads without bodies",
                                  "closing braces and empty lines", "lines of no HLO between closing braces",
                                  "empty lines", "nothing read", "fewer dimensions read", "more dimensions read",
                                  "names of elements"])
def test_what_is_not_damaged_is_still_found(outcomes, name):
    assert outcomes[name]["copies"] >= 1


@pytest.mark.parametrize("name", ["cut in an escaped string", "deep brackets", "heads without bodies"])
def test_damage_is_named(outcomes, name):
    assert len(outcomes[name]["unparsed"]) == 2


def test_mutations_of_the_cases_end_in_reports_or_sentences():
    results = run_apart([str(path) for path in CASES])
    assert len(results) == len(CASES)
    assert all(result["seconds"] < SECONDS for result in results.values())
    assert sum(result["reports"] for result in results.values()) > 5 * len(CASES)


def test_mutations_of_real_texts_end_in_reports_or_sentences(unpack_dump):
    """Short texts of other people's, 2021 to 2026, and one of each dump that is small."""
    texts = [path for path in sorted(unpack_dump("hlo_samples").rglob("*")) if path.is_file()]
    samples = [path for path in texts if path.stat().st_size < 40_000]
    stages = [sorted(unpack_dump(name).glob("*.0030.*.txt"))[0] for name in ("v5e-libtpu0.0.42-train_step",
                                                                              "cpu-jaxlib0.4.25-attn_heads")]
    results = run_apart([str(path) for path in (*samples, *stages)])
    assert len(results) > 20 and all(result["seconds"] < SECONDS for result in results.values())
