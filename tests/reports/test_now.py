"""What to do now, and where else to look: out of reports with and without measurements."""
from __future__ import annotations

import copy

import pytest

from triage.engine.report import analyse
from triage.reports.elsewhere import elsewhere
from triage.reports.now import what_to_do

BASELINE = {"variant": "baseline", "action": "baseline", "pass": None, "flag": None, "scope": None, "says": "nothing",
            "status": "ok", "message": "", "temp_bytes": 27_268_824, "copied_bytes": 25_165_824, "flops": 10.0,
            "bytes_accessed": 100.0, "matches_upload": "reproduced", "difference": "", "toolchain": "cuda-0.10.2",
            "device": "H100"}


def measured(action: str, says: str, temp: int | None, copied: int = 0, **changes: object) -> tuple[dict, dict]:
    """A replay, and the remedy that it makes."""
    row = {**BASELINE, "variant": action, "action": action, "says": says, "temp_bytes": temp, "copied_bytes": copied, **changes}
    recipe = {"code": f"# {action}\nXLA_FLAGS=x\n" if action == "disable_pass" else f"# {action}\n",
              "parameters": [{"number": 0, "name": "p[0]['k']", "order": [1, 2, 0]}]}
    return row, {**row, "verified": True, "helps": True, "recipe": recipe, "gone": ["c1"], "certain": True, "reason": ""}


@pytest.fixture(scope="module")
def attn_heads(unpack_dump):
    return analyse(unpack_dump("h100-jaxlib0.10.2-attn_heads")).report["modules"][0]


def with_measured(module: dict, *found: tuple[dict, dict]) -> dict:
    return {**module, "replays": [BASELINE, *(row for row, _ in found)], "remedies": [remedy for _, remedy in found]}


DISABLED = measured("disable_pass", "`x` disabled", 525_016, flag="--xla_disable_hlo_passes=x", **{"pass": "x"})
AUTO = measured("auto_layout", "AUTO layouts for all parameters", 2_103_000, scope="all")
STORED = measured("store_transposed", "the copied parameters stored with their dimensions in XLA's order", 20_000_000,
                  scope="copied")


def test_layouts_come_before_a_disabled_pass_that_saves_hardly_more(attn_heads):
    text = what_to_do(with_measured(attn_heads, DISABLED, AUTO)).text
    assert "## Do this\nAUTO layouts for all parameters: temporary memory goes from 26.0 MiB (27,268,824 bytes) to 2.0 MiB " \
           "(2,103,000 bytes)" in text
    assert "# 27,268,824 now, 2,103,000 with it" in text and "each is there twice" in text
    assert "## Or else\n* `--xla_disable_hlo_passes=x`: 525,016 temp bytes." in text


def test_a_disabled_pass_comes_first_where_layouts_save_clearly_less(attn_heads):
    text = what_to_do(with_measured(attn_heads, DISABLED, STORED)).text
    assert "## Do this\n`--xla_disable_hlo_passes=x`" in text and "counts for everything that the process compiles" in text


def test_the_order_to_store_in_is_told(attn_heads):
    text = what_to_do(with_measured(attn_heads, STORED)).text
    assert "* `order = (1, 2, 0)`: `p[0]['k']`" in text and "axes in the new order" in text


def test_where_the_platform_tells_no_temp_bytes_the_copies_count(attn_heads):
    report = with_measured(attn_heads, measured("auto_layout", "AUTO", None, 7, scope="all"))
    report["replays"][0] = {**BASELINE, "temp_bytes": None}
    text = what_to_do(report).text
    assert "copies go from 24.0 MiB (25,165,824 bytes) to 7 bytes" in text
    assert "25,165,824 bytes copied now, 7 with it" in text


def test_what_is_not_known_to_be_sound_says_so(attn_heads):
    row, remedy = DISABLED
    text = what_to_do(with_measured(attn_heads, ({**row, "unsure": True}, remedy))).text
    assert "It is not known whether programs stay sound without this pass" in text


def test_nothing_measured_is_called_that(attn_heads):
    text = what_to_do(attn_heads).text
    assert "Nothing was measured yet" in text and "Candidates" in text and "dot-strength-reduction" in text
    assert "## Check" not in text


def test_nothing_that_helps_and_nothing_that_compiles(attn_heads):
    row, remedy = DISABLED
    assert "None of 1 change that" in what_to_do(with_measured(attn_heads, (row, {**remedy, "helps": False}))).text
    broken = {**attn_heads, "replays": [{**BASELINE, "status": "error", "message": "no such opcode"}]}
    assert "could not be compiled again: `no such opcode`" in what_to_do(broken).text


def test_the_programs_own_line_is_told_first(unpack_dump):
    module = analyse(unpack_dump("cpu-jaxlib0.10.2-f32_upcast")).report["modules"][0]
    text = what_to_do(module).text
    assert text.index("## In the program") < text.index("## What to try") and "`models.py:78`" in text
    assert "in the element type that is computed with" in text


def test_a_module_without_copies_has_no_copies_to_act_on(unpack_dump):
    calm = analyse(unpack_dump("h100-jaxlib0.10.2-matvec_decode")).report["modules"][0]
    assert what_to_do({**calm, "patterns": [], "copies": []}) is None


def test_where_else_to_look_follows_the_figures(unpack_dump, attn_heads):
    assert elsewhere(attn_heads) == []
    calm = copy.deepcopy(analyse(unpack_dump("h100-jaxlib0.10.2-matvec_decode")).report["modules"][0])
    calm["totals"]["parameter_bytes"] = 1000

    def first(temp: int | None) -> str:
        calm["memory"]["temp_bytes"] = temp
        return elsewhere(calm)[0]
    assert "needs 99 bytes beside its arguments, 10% of its parameters" in first(99)
    assert "4.9 KiB (5,000 bytes), holds something else" in first(5000) + elsewhere(calm)[1]
    assert "holds no memory figures" in first(None)
    calm["stages"] = calm["stages"][:1]
    assert first(99).startswith("The dump ends before the passes")
