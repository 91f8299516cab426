"""What a report says is worth a try: safe for the dump's releases, once each, and not claimed to be measured."""
from __future__ import annotations

import pytest

from triage.engine.remedies import cannot_disable, remedies
from triage.engine.report import analyse

DSR = "--xla_gpu_enable_dot_strength_reduction=false"
HOISTING = "while-loop-invariant-code-motion"
NO_HOISTING = f"--xla_disable_hlo_passes={HOISTING}"


def copy(kind: str = "transpose", introduced: str | None = "layout-assignment", trigger: str | None = None,
         origin: str = "compiler") -> dict:
    return {"id": "c1", "kind": kind, "origin": origin, "introduced_by": {"pass": introduced} if introduced else None,
            "trigger": {"pass": trigger} if trigger else None}


def version(first: str | None, last: str | None) -> dict:
    return {"jaxlib_first": first, "jaxlib_last": last}


def told(found: list[dict]) -> dict[str, bool]:
    return {remedy["flag"] or remedy["action"]: remedy["certain"] for remedy in found}


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


def test_passes_that_must_run_are_named():
    found = cannot_disable([copy(trigger="dot_decomposer"), copy(), copy(introduced="algsimp")])
    assert [fact["pass"] for fact in found] == ["layout-assignment", "dot_decomposer"] and all(fact["why"] for fact in found)
    assert all(remedy["action"] != "disable_pass" for remedy in remedies([copy(trigger="dot_decomposer")], None, None))


@pytest.mark.parametrize("made, first, last, expected", [
    (copy("computed", HOISTING), "0.10.0", None, {NO_HOISTING: True, "loop_attribute": True}),
    (copy("computed", HOISTING), "0.6.0", "0.9.1", {NO_HOISTING: True, "loop_attribute": False}),
    (copy("computed", HOISTING), "0.6.0", "0.7.1", {NO_HOISTING: True}),            # 0.7.1 hoists all the same
    (copy("convert", HOISTING), "0.10.0", None, {}),
    (copy(origin="program"), "0.10.0", None, {"auto_layout": True, "store_transposed": True}),
    (copy(introduced="layout_normalization"), "0.10.0", None, {"auto_layout": True}),
    (copy(), "0.4.18", "0.4.28", {}),                                               # JAX had no AUTO layouts
    (copy("copy"), "0.10.0", None, {}),
    (copy("gather", None), "0.10.0", None, {}),
])
def test_other_advice(made, first, last, expected):
    assert told(remedies([made], version(first, last), "cpu")) == expected


def test_nothing_copied_nothing_to_try():
    assert remedies([], None, None) == [] == cannot_disable([])


def test_one_remedy_names_all_its_copies_once():
    [found] = remedies([copy(), {**copy(), "id": "c2"}], version("0.10.0", None), "gpu")
    assert found["copies"] == ["c1", "c2"] and not found["verified"] and "2 copies" in found["sentence"]
    found = remedies([copy("computed", HOISTING, HOISTING)], version("0.10.0", None), "cpu")
    assert [remedy["copies"] for remedy in found] == [["c1"], ["c1"]]


@pytest.mark.parametrize("name, expected, kept", [
    ("h100-jaxlib0.10.2-attn_heads", {"--xla_disable_hlo_passes=dot-strength-reduction": True, "auto_layout": True},
     ["layout-assignment"]),        # both helped when it was recompiled
    ("h100-jaxlib0.4.38-attn_heads", {DSR: True, "auto_layout": True}, ["layout-assignment"]),
    ("h100-jaxlib0.6.2-attn_heads", {"auto_layout": False}, ["layout-assignment"]),
    ("h100-jaxlib0.10.2-int8_dot", {"auto_layout": True}, ["layout-assignment"]),
    ("h100-jaxlib0.10.2-llama3_8b_generate", {"auto_layout": True, "store_transposed": True}, ["layout-assignment"]),
    ("h100-jaxlib0.10.2-matvec_decode", {}, []),
    ("h100-jaxlib0.10.2-train_step", {}, []),
    ("cpu-jaxlib0.10.2-f32_upcast", {}, []),
])
def test_real_dumps(unpack_dump, name, expected, kept):
    [module] = analyse(unpack_dump(name)).report["modules"]
    assert told(module["remedies"]) == expected
    assert [fact["pass"] for fact in module["cannot_disable"]] == kept
