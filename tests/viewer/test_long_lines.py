"""No line of a dump, however long and whatever it holds, keeps the web process busy."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .long_lines import LINES

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20            # for one function and one line, on a machine that is busy; what is quadratic takes minutes


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict]:
    command = [sys.executable, "-m", "tests.viewer.long_lines", *LINES]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS * 12)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"no end to {(error.stdout or b'').decode().strip().split(chr(10))[-1]}")
    assert done.returncode == 0, done.stderr[-3000:]
    return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", LINES)
def test_a_long_line_takes_time_that_grows_with_it_only(outcomes, name):
    assert outcomes[name]["seconds"] < SECONDS, outcomes[name]["function"]
