"""What is known of passes, flags and releases, and the advice made of it."""
from __future__ import annotations

import json
from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from triage.engine.knowledge import (
    Releases,
    _data,
    flag_is_known_to,
    flag_releases,
    key,
    may_have_flag,
    pass_facts,
    pass_names,
    release_dates,
)
from triage.engine.knowledge.advice import Advice, auto_layout, disable_advice

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "xla_flags_by_jaxlib.json"
DSR = "--xla_gpu_enable_dot_strength_reduction=false"
MUST_RUN = ["layout-assignment", "layout_normalization", "dot_decomposer", "copy-insertion", "spmd-partitioning",
            "float-normalization-*"]


def accepts(flag: str, release: str) -> bool:
    return any(Releases(release, release).within(span) for span in flag_releases(flag))


def test_the_flag_table_is_the_reference():
    """But for what the wheels refused: an unknown flag aborts, so their word counts."""
    if not REFERENCE.exists():
        pytest.skip(f"no {REFERENCE.name} in ../shared/reference beside the checkout")
    reference = json.loads(REFERENCE.read_text())
    refused = _data("flags")["refused"]
    assert len(reference["flags"]) > 400
    for flag, spans in reference["flags"].items():
        for release in reference["releases"]:
            listed = any(Releases(release, release).within(Releases(*span)) for span in spans)
            assert accepts(flag, release) == (listed and release not in refused.get(flag, ())), (flag, release)


def test_refused_flags_are_not_accepted():
    refused = _data("flags")["refused"]
    assert refused and not any(accepts(flag, release) for flag, releases in refused.items() for release in releases)


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
    assert flag_releases(DSR) == (Releases("0.4.24", "0.5.0"),) == may_have_flag(DSR)   # not 0.4.23, and not 0.5.1
    [known], [possible] = flag_releases("xla_dump_hlo_pass_re"), may_have_flag("xla_dump_hlo_pass_re")
    assert known.last and possible.last is None             # a later release may well have it
    assert may_have_flag("--xla_no_such_flag") == () == flag_releases("xla_no_such_flag")


@pytest.mark.parametrize("flag, first, last, known", [
    (DSR, "0.4.24", "0.5.0", True), (DSR, "0.4.35", "0.5.0", True), (DSR, "0.4.35", "0.5.1", None), (DSR, None, "0.5.0", None),
    (DSR, "0.5.1", None, False), ("xla_no_such_flag", "0.5.1", None, None),
    ("xla_disable_hlo_passes", "0.4.24", "0.11.1", True),
    ("xla_disable_hlo_passes", "0.4.24", None, None), ("xla_gpu_rocm_max_trace_events", "0.7.1", "0.8.2", False),
])
def test_whether_a_flag_is_known(flag, first, last, known):
    assert flag_is_known_to(flag, Releases(first, last)) is known


def test_the_flag_that_disables_passes_is_in_every_release():
    [span] = flag_releases("xla_disable_hlo_passes")
    assert Releases(_data("flags")["asked"][0], _data("flags")["asked"][-1]).within(span)


def test_every_pass_is_described():
    for name in pass_names():
        facts = pass_facts(name)
        assert facts.disable in ("yes", "no", "unknown") and facts.does and facts.role and set(facts.role) <= set("CMHR")
        assert set(facts.platforms) <= {"cpu", "gpu", "tpu"} and bool(facts.why_not) == (facts.disable == "no")
        assert all(flag_releases(flag["flag"]) for flag in facts.flags)
    assert [name for name in pass_names() if pass_facts(name).disable == "no"] == sorted(MUST_RUN, key=pass_names().index)


def test_one_entry_for_the_pass_of_every_type():
    assert pass_facts("float-normalization-bf16").why_not == pass_facts("float-normalization-f8e4m3fn").why_not
    assert pass_facts("no-such-pass") is None


@pytest.mark.parametrize("name", MUST_RUN)
@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu", None])
def test_passes_that_must_run_are_never_disabled(name, platform):
    advice = disable_advice(name, Releases(), platform)
    assert (advice.action, advice.flag) == ("none", None) and advice.reason.startswith("it must run: ")


@pytest.mark.parametrize("name, first, last, platform, action, certain, valid_for", [
    ("dot-strength-reduction", "0.10.0", None, "gpu", "disable_pass", True, "jaxlib >= 0.7.1"),
    ("dot-strength-reduction", "0.6.0", "0.9.1", "gpu", "disable_pass", False, "jaxlib >= 0.7.1"),
    ("dot-strength-reduction", "0.10.0", None, "cpu", "none", False, "any jaxlib"),
    ("dot-strength-reduction", "0.4.35", "0.5.0", "gpu", "none", False, "any jaxlib"),
    ("algsimp", "0.4.35", "0.5.0", "gpu", "flag", True, "jaxlib 0.4.24 to 0.5.0"),
    ("algsimp", None, "0.4.34", "gpu", "flag", False, "jaxlib 0.4.24 to 0.5.0"),
    ("algsimp", "0.4.35", "0.5.0", "cpu", "none", False, "any jaxlib"),
    ("algsimp", "0.6.0", None, "gpu", "none", False, "any jaxlib"),
    ("while-loop-invariant-code-motion", None, None, "cpu", "disable_pass", True, "any jaxlib"),
    ("priority-fusion", "0.10.0", None, "gpu", "none", False, "any jaxlib"),
    ("no-such-pass", "0.10.0", None, "gpu", "none", False, "any jaxlib"),
])
def test_advice(name, first, last, platform, action, certain, valid_for):
    advice = disable_advice(name, Releases(first, last), platform)
    assert (advice.action, advice.certain, advice.valid_for) == (action, certain, valid_for) and advice.reason


def aborts(advice: Advice, release: str) -> bool:
    return advice.flag is not None and not accepts(advice.flag, release)


def test_no_advice_names_a_flag_that_would_abort():
    """In every range of releases whose flags are known: certain advice is accepted by all of it, and any by some of it."""
    known = [release for release in release_dates() if release in _data("flags")["asked"]]
    told = 0
    for first, last in combinations_with_replacement(known, 2):
        inside = known[known.index(first):known.index(last) + 1]
        for name in pass_names():
            advice = disable_advice(name, Releases(first, last), None)
            told += advice.flag is not None
            assert not all(aborts(advice, release) for release in inside), (name, first, last)
            assert not advice.certain or not any(aborts(advice, release) for release in inside), (name, first, last)
    assert told > 1000


@pytest.mark.parametrize("first, last, ask, certain", [
    ("0.10.0", None, "Format(Layout.AUTO)", True), ("0.6.2", "0.6.2", "Format(DeviceLocalLayout.AUTO)", True),
    ("0.4.35", "0.5.0", "Layout(DeviceLocalLayout.AUTO)", True), ("0.6.0", "0.9.1", "Format(Layout.AUTO)", False),
    (None, "0.4.34", "Layout(DeviceLocalLayout.AUTO)", False), ("0.4.18", "0.4.28", None, None),
])
def test_automatic_layouts_are_spelled_as_the_release_spells_them(first, last, ask, certain):
    auto = auto_layout(Releases(first, last))
    assert (auto.ask, auto.certain) == (ask, certain) if ask else auto is None
