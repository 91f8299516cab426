"""What is known of passes, flags and releases, and the advice and version ranges made of it."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from triage.engine.knowledge import Releases, flag_releases, key, may_have_flag, pass_facts, release_dates
from triage.engine.remedies import cannot_disable, remedies
from triage.engine.report import analyse
from triage.engine.version import Facts, guess_version

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "xla_flags_by_jaxlib.json"
DSR = "--xla_gpu_enable_dot_strength_reduction=false"


def copy(kind: str = "transpose", introduced: str | None = "layout-assignment", trigger: str | None = None,
         origin: str = "compiler") -> dict:
    return {"id": "c1", "kind": kind, "origin": origin, "introduced_by": {"pass": introduced} if introduced else None,
            "trigger": {"pass": trigger} if trigger else None}


def version(first: str | None, last: str | None) -> dict:
    return {"jaxlib_first": first, "jaxlib_last": last}


def told(found: list[dict]) -> dict[str, bool]:
    return {remedy["flag"] or remedy["action"]: remedy["certain"] for remedy in found}


def test_the_flag_table_is_the_reference():
    if not REFERENCE.exists():
        pytest.skip(f"no {REFERENCE.name} in ../shared/reference beside the checkout")
    reference = json.loads(REFERENCE.read_text())["flags"]
    assert len(reference) > 400
    for flag, [*ranges] in reference.items():
        known = flag_releases(flag)
        assert (known is None) == (len(ranges) != 1), flag
        assert known is None or [known.first, known.last] == ranges[0]


def test_releases_are_in_order():
    releases = list(release_dates())
    assert releases == sorted(releases, key=key) and len(releases) > 40


@pytest.mark.parametrize("inner, outer, within, meets", [
    (("0.6.0", "0.6.2"), ("0.5.0", None), True, True), (("0.6.0", None), ("0.5.0", "0.7.0"), False, True),
    ((None, None), ("0.7.1", None), False, True), (("0.4.9", "0.4.10"), ("0.4.11", None), False, False),
    (("0.10.0", None), (None, "0.9.2"), False, False), (("0.4.9", "0.4.10"), (None, None), True, True),
])
def test_ranges(inner, outer, within, meets):
    assert Releases(*inner).within(Releases(*outer)) is within
    assert Releases(*inner).meets(Releases(*outer)) is Releases(*outer).meets(Releases(*inner)) is meets


def test_between_two_releases_that_were_looked_at_nothing_is_certain():
    assert flag_releases(DSR) == Releases("0.4.24", "0.5.0")
    assert may_have_flag(DSR) == Releases("0.4.24", "0.5.0")       # 0.4.23 and 0.5.1 were looked at, and have it not
    assert may_have_flag("--xla_no_such_flag") is None and flag_releases("xla_no_such_flag") is None


@pytest.mark.parametrize("first, last, flags", [
    ("0.10.0", None, {}), ("0.6.0", "0.10.0", {}), ("0.4.24", "0.5.0", {DSR: True}), ("0.4.34", "0.10.0", {DSR: False}),
    (None, None, {DSR: False}), ("0.4.9", "0.4.20", {}),
])
def test_a_flag_is_told_only_where_a_release_may_have_it(first, last, flags):
    """An unknown flag aborts the user's process."""
    found = told(remedies([copy(trigger="algsimp")], version(first, last), "gpu"))
    assert {flag: certain for flag, certain in found.items() if flag.startswith("--")} == flags


@pytest.mark.parametrize("first, last, certain", [
    ("0.10.0", None, True), ("0.6.0", "0.10.0", False), ("0.4.34", "0.7.0", None)])
def test_a_pass_is_disabled_only_where_it_exists(first, last, certain):
    found = told(remedies([copy(trigger="dot-strength-reduction")], version(first, last), "gpu"))
    assert found.get("--xla_disable_hlo_passes=dot-strength-reduction") is certain


@pytest.mark.parametrize("name", ["layout-assignment", "layout_normalization", "dot_decomposer", "copy-insertion"])
def test_passes_that_must_run_are_never_disabled(name):
    for found in (remedies([copy(introduced=name, trigger=name)], None, None), remedies([copy("copy", name)], None, "cpu")):
        assert all(remedy["action"] != "disable_pass" for remedy in found)
    assert [fact["pass"] for fact in cannot_disable([copy(introduced=name)])] == [name]
    assert pass_facts(name).why_not


def test_other_advice():
    hoisted = told(remedies([copy("computed", "while-loop-invariant-code-motion")], version("0.10.0", None), "cpu"))
    assert hoisted == {"--xla_disable_hlo_passes=while-loop-invariant-code-motion": True, "loop_attribute": True}
    assert told(remedies([copy("convert", "while-loop-invariant-code-motion")], version("0.10.0", None), "cpu")) == {}
    assert set(told(remedies([copy(origin="program")], version("0.10.0", None), "gpu"))) == {"auto_layout", "store_transposed"}
    assert remedies([copy("gather", None)], None, None) == [] == remedies([], None, None)


def test_one_remedy_names_all_its_copies():
    [found] = remedies([copy(), {**copy(), "id": "c2"}], version("0.10.0", None), "gpu")
    assert found["copies"] == ["c1", "c2"] and not found["verified"] and "2 copies" in found["sentence"]


@pytest.mark.parametrize("facts, first, last", [
    (Facts(["m.cpu_after_optimizations-live-range.txt"]), "0.10.0", None),
    (Facts(["m.cpu_after_optimizations-buffer-assignment.txt"]), None, "0.4.35"),
    (Facts(["m-buffer-assignment.txt", "m-memory-usage-report.txt"]), "0.4.34", "0.10.0"),
    (Facts(["m.txt"], debug_options={"xla_gpu_enable_dot_strength_reduction": "false"}), "0.4.24", "0.5.0"),
    (Facts(["m.txt"], header="HloModule m\n\nFileNames\n1 \"a\"\n\nStackFrames\n1 {}\n"), "0.8.2", None),
])
def test_versions_from_what_the_dump_holds(facts, first, last):
    found = guess_version(facts)
    assert (found["jaxlib_first"], found["jaxlib_last"]) == (first, last) and found["reason"]


def test_nothing_tells_no_version():
    assert guess_version(Facts(["m.before_optimizations.txt"])) is None


@pytest.mark.parametrize("name, true", [
    ("cpu-jaxlib0.4.25-attn_heads", "0.4.25"), ("h100-jaxlib0.4.38-attn_heads", "0.4.38"),
    ("h100-jaxlib0.4.38-attn_heads-flag_off", "0.4.38"), ("h100-jaxlib0.6.2-attn_heads", "0.6.2"),
    ("h100-jaxlib0.10.2-attn_heads", "0.10.2"), ("h100-jaxlib0.10.2-attn_heads-defaultdump", "0.10.2"),
    ("cpu-jaxlib0.10.2-f32_upcast", "0.10.2"), ("v5e-libtpu0.0.42-train_step", "0.10.2")])
def test_the_true_version_is_in_the_range(unpack_dump, name, true):
    [module] = analyse(unpack_dump(name)).report["modules"]
    found = module["version"]
    assert Releases(true, true).within(Releases(found["jaxlib_first"], found["jaxlib_last"]))
    assert found["jaxlib_first"] or found["jaxlib_last"]


def test_attn_heads_is_told_what_helped_when_it_was_recompiled(unpack_dump):
    [module] = analyse(unpack_dump("h100-jaxlib0.10.2-attn_heads")).report["modules"]
    assert told(module["remedies"]) == {"--xla_disable_hlo_passes=dot-strength-reduction": True, "auto_layout": True}
    assert [fact["pass"] for fact in module["cannot_disable"]] == ["layout-assignment"]
