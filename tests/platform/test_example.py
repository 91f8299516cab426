"""The example that a fresh installation compiles and triages."""
from __future__ import annotations

from pathlib import Path

import pytest

from triage.engine.report import analyse
from triage.examples import build


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example") / "dump"
    build.compile_example(folder)
    return folder


def test_the_example_is_a_real_finding(dump: Path) -> None:
    module = next(module for module in analyse(dump).report["modules"] if module["name"] == "jit_decode")
    weights = 2 * 4 * 512 * 8 * 64  # elements: layers, weights of each, and the shape of one
    assert module["platform"] == "cpu"
    assert len({number for copy in module["copies"] for number in copy["parameters"]}) == 8
    assert module["totals"]["hoisted_bytes"] >= weights * 4
    assert {copy["where"] for copy in module["copies"]} == {"before_loop"}


def test_a_compile_cache_and_foreign_flags_do_not_keep_the_dump_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag=1")
    for name in ("first", "second"):
        build.compile_example(tmp_path / name)
        assert list((tmp_path / name).glob("*jit_decode*after_optimizations.txt"))


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "broken.py"
    program.write_text("raise SystemExit('no compiler here')\n")
    monkeypatch.setattr(build, "_PROGRAM", program)
    with pytest.raises(build.ExampleError, match="no compiler here"):
        build.compile_example(tmp_path / "dump")
