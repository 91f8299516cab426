"""Drafts of real dumps with what real recompiles measured: their length, their figures, whom they address."""
from __future__ import annotations

import re
from dataclasses import asdict

import pytest

from tests.replay.conftest import H100
from triage.engine.cost import human_bytes
from triage.replay.reduce import reproduce
from triage.replay.source import source_of
from triage.reports.draft import Draft, Subject, draft
from triage.reports.excerpt import Line, copy_lines
from triage.reports.now import what_to_do

CASES = {"h100-jaxlib0.10.2-attn_heads": "cuda", "h100-jaxlib0.10.2-int8_dot": "cuda",
         "h100-jaxlib0.10.2-llama3_8b_generate": "cuda", "cpu-jaxlib0.10.2-f32_upcast": "cpu",
         "v5e-libtpu0.0.42-train_step": "tpu"}


@pytest.fixture
def drafts(analysed, replayed):
    def write(name: str, changes: dict | None = None) -> tuple[list[Draft], dict]:
        module, texts = {**replayed(name, CASES[name]), **(changes or {})}, analysed(name).modules[0]

        def excerpt(stage: int, copy_id: str) -> list[Line]:
            return copy_lines(texts.stages[stage], copy_id, lambda keys: {key: texts.texts[key] for key in keys})
        return [draft(Subject(module, number, excerpt, "HLO Triage")) for number in range(len(module["patterns"]))], module
    return write


def unfolded(text: str) -> list[str]:
    """The lines that a reader sees before anything is unfolded."""
    return re.sub(r"(<details>[^\n]*)\n.*?\n</details>", r"\1", text, flags=re.S).split("\n")


def integers(node: object) -> set[int]:
    if isinstance(node, dict):
        return set().union(*map(integers, node.values()))
    if isinstance(node, list):
        return set().union(*map(integers, node))
    return {int(node)} if isinstance(node, (int, float)) else set()


@pytest.mark.parametrize("name", CASES)
def test_every_figure_is_of_the_dump_or_of_a_recompile(drafts, name):
    written, module = drafts(name)
    known = integers(module)
    for pattern in module["patterns"]:      # what a draft sums up
        known.add(sum(c["bytes"] for c in module["copies"] if c["id"] in pattern["copies"] and c["live_at_peak"]))
    exact = {f"{value:,}" for value in known}
    rounded = {human_bytes(value) for value in known}
    for found in [*written, what_to_do(module)]:
        told = "".join(re.findall(r"```python.*?```", found.text, flags=re.S))
        told += re.sub(r"`[^`]*`", "", re.sub(r"```.*?```", "", found.text, flags=re.S))      # shapes are code
        assert set(re.findall(r"\b\d{1,3}(?:,\d{3})+\b", told)) <= exact
        assert set(re.findall(r"\b\d+(?:\.\d)? (?:[KMG]iB|GB)", told)) <= rounded


@pytest.mark.parametrize("name", CASES)
def test_a_draft_is_as_long_as_a_maintainer_reads(drafts, name):
    written, module = drafts(name)
    for found in written:
        assert 40 <= len(unfolded(found.body)) <= 120
        assert len(re.findall(r"^<details>", found.body, flags=re.M)) == found.body.count("</details>")
        assert found.body.count("\n```") % 2 == 0
        assert "xla_dump_to=" not in re.sub(r"```.*?```", "", found.body, flags=re.S) and "/home/" not in found.text


def test_the_right_address(drafts):
    told = {name: [(d.address, d.title) for d in drafts(name)[0]] for name in CASES}
    assert told["h100-jaxlib0.10.2-attn_heads"] == [("xla", (
        "[GPU] 24.0 MiB of parameters transposed before the loop by layout-assignment (trigger: dot-strength-reduction)"))]
    assert [address for address, _ in told["h100-jaxlib0.10.2-llama3_8b_generate"]] == ["program", "xla"]
    assert told["cpu-jaxlib0.10.2-f32_upcast"][0][0] == "program"
    assert {address for address, _ in told["v5e-libtpu0.0.42-train_step"]} == {"xla"}


def test_the_ablation_begins_with_the_baseline_and_says_what_does_not_compile(drafts):
    body = drafts("h100-jaxlib0.10.2-attn_heads")[0][0].body
    table = body[body.index("## Ablation"):body.index("## Workarounds")]
    rows = [line for line in table.split("\n") if line.startswith("| ")]
    assert rows[2] == "| none (baseline) | 27,268,824 | 25,165,824 |  |"
    assert rows[3] == "| `--xla_disable_hlo_passes=dot-strength-reduction` | 525,016 | 0 | 12 gone |"
    assert "| `--xla_disable_hlo_passes=layout-assignment` | does not compile: `INTERNAL: RET_CHECK" in table
    assert "Trigger (without this pass the copy is not made)" in body and "suspicion" not in body
    assert "+ %copy.13 = bf16[1024,16,64]{0,2,1} copy(" in body and "- %dot.1 = " in body


def test_no_single_pass_and_the_lines_to_write(drafts):
    opening, *_ = drafts("h100-jaxlib0.10.2-llama3_8b_generate")[0]
    assert "temp bytes go from 28,329,537,504 to 394,317,024" in opening.sections[0].text
    workarounds = next(section.text for section in opening.sections if section.key == "workarounds")
    assert "Format(Layout.AUTO)" in workarounds and "order = (1, 0, 2)" in workarounds
    assert "disable_hlo_passes" not in workarounds


def test_the_small_program_stands_in_the_text_with_its_command(drafts, analysed, toolchain):
    name = "h100-jaxlib0.10.2-int8_dot"
    _, module = drafts(name)
    texts = analysed(name).modules[0]
    source = source_of(module, texts.text(0), texts.gpu_target, H100)
    found = reproduce(module, module["patterns"][0]["copies"][0], source, toolchain("cuda", "0.10.2"))
    reproducer = {**asdict(found), "commands": list(found.commands)}
    written, _ = drafts(name, {"reproducer": reproducer})
    section = next(section.text for section in written[0].sections if section.key == "reproducer")
    assert found.text.strip() in section and "hlo-opt --platform=CUDA" in section and "____" not in section
    assert f"{found.instructions} instructions" in section and 40 <= len(unfolded(written[0].body)) <= 120
    other = drafts(name, {"reproducer": {**reproducer, "copy": "c99"}})[0][0]
    assert "none was made for this report" in other.body
