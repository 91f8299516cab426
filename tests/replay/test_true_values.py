"""Real dumps compiled again by real toolchains: the figures must be those that were measured when the dumps were made."""
from __future__ import annotations

import pytest

from tests.replay.conftest import H100
from triage.replay.gpus import known_gpus


def rows(module: dict) -> dict[str, dict]:
    return {row["variant"]: row for row in module["replays"]}


def test_attn_heads(replayed):
    module = replayed("h100-jaxlib0.10.2-attn_heads", "cuda", "0.10.2")
    found = rows(module)
    assert found["baseline"]["matches_upload"] == "reproduced" and found["baseline"]["temp_bytes"] == 27_268_824
    assert found["disable-dot-strength-reduction"]["temp_bytes"] == 525_016
    assert found["disable-dot-strength-reduction"]["gone"] == [copy["id"] for copy in module["copies"]]
    assert found["disable-dot-strength-reduction"]["fired"][0] >= 1
    assert found["auto-all"]["temp_bytes"] == found["store-transposed"]["temp_bytes"] == 2_103_000
    assert found["disable-layout-assignment"]["status"] == "error"
    assert "RET_CHECK failure" in found["disable-layout-assignment"]["message"]
    assert module["replay_says"][0] == f"Reproduced with jaxlib 0.10.2 for {H100}."
    best = module["remedies"][0]
    assert (best["action"], best["pass"], best["verified"]) == ("disable_pass", "dot-strength-reduction", True)
    assert best["temp_bytes"] == 525_016 and best["copied_bytes"] == 0
    assert not any(remedy["verified"] for remedy in module["remedies"] if remedy["pass"] == "layout-assignment")


def test_int8_dot(replayed):
    module = replayed("h100-jaxlib0.10.2-int8_dot", "cuda", "0.10.2")
    assert rows(module)["baseline"]["temp_bytes"] == 34_668_880
    assert rows(module)["auto-all"]["temp_bytes"] == 1_114_448
    assert module["remedies"][0]["action"] in ("auto_layout", "store_transposed")


def test_llama(replayed):
    module = replayed("h100-jaxlib0.10.2-llama3_8b_generate", "cuda", "0.10.2")
    found = rows(module)
    assert found["baseline"]["temp_bytes"] == 28_329_537_504 and found["baseline"]["matches_upload"] == "reproduced"
    assert found["auto-all"]["temp_bytes"] == 394_317_024 and len(found["auto-all"]["gone"]) == 11
    assert found["disable-dot-strength-reduction"]["temp_bytes"] == 28_338_138_080
    assert found["disable-algsimp"]["temp_bytes"] == 28_333_724_896
    assert module["replay_says"][1].startswith("No single pass helps")
    recipe = module["remedies"][0]["recipe"]
    assert "Format(Layout.AUTO)" in recipe["code"] and len(recipe["parameters"]) >= 11


def test_a_dump_without_passes_gets_the_history_of_the_full_one(replayed, analysed):
    module = replayed("h100-jaxlib0.10.2-attn_heads-defaultdump", "cuda", "0.10.2")
    full = analysed("h100-jaxlib0.10.2-attn_heads").report["modules"][0]
    assert module["history"] == "replayed"
    # What is a suspicion from the dump is a fact after the recompile.
    assert module["verdict"] == full["verdict"].replace("probably because of", "because of")

    def told(copies: list[dict]) -> list[tuple]:
        return sorted((copy["parameters"], copy["introduced_by"]["pass"], copy["trigger"]["pass"], copy["origin"])
                      for copy in copies)
    assert told(module["copies"]) == told(full["copies"])
    assert rows(module)["disable-dot-strength-reduction"]["temp_bytes"] == 525_016


def test_eight_partitions(replayed):
    module = replayed("h100-jaxlib0.10.2-fsdp8", "cuda", "0.10.2")
    assert rows(module)["baseline"]["matches_upload"] == "reproduced"
    assert rows(module)["baseline"]["temp_bytes"] == 67_177_808
    assert rows(module)["disable-spmd-partitioning"]["must_run"] and not any(r.get("helps") for r in module["remedies"])


@pytest.mark.parametrize("name,temp", [("cpu-jaxlib0.10.2-attn_heads", 67_641_752),
                                       ("cpu-jaxlib0.10.2-f32_upcast", 134_348_932)])
def test_cpu(replayed, name, temp):
    baseline = rows(replayed(name, "cpu"))["baseline"]
    assert baseline["temp_bytes"] == temp and baseline["matches_upload"] == "reproduced"


def test_an_old_cpu_dump_is_reproduced_in_part(replayed):
    baseline = rows(replayed("cpu-jaxlib0.4.25-attn_heads", "cpu"))["baseline"]
    assert baseline["matches_upload"] == "partly" and "67,383,572 temp bytes in the dump" in baseline["difference"]


@pytest.mark.parametrize("name", ["v5e-libtpu0.0.42-attn_heads", "v5e-libtpu0.0.42-train_step"])
def test_tpu(replayed, name):
    baseline = rows(replayed(name, "tpu"))["baseline"]
    assert baseline["matches_upload"] == "reproduced" and baseline["device"] == "TPU v5e:2x2"


@pytest.mark.parametrize("version,temp", [("0.6.2", 27_269_592), ("0.4.38", 27_268_568)])
def test_older_releases(replayed, version, temp):
    module = replayed(f"h100-jaxlib{version}-attn_heads", "cuda", version)
    assert rows(module)["baseline"]["matches_upload"] == "reproduced" and rows(module)["baseline"]["temp_bytes"] == temp
    assert rows(module)["auto-all"]["status"] == "error"        # it would ignore what it is asked, and say nothing
    assert "cannot leave layouts to XLA for a GPU that is not there" in rows(module)["auto-all"]["message"]


def test_an_older_dump_on_a_newer_release_says_what_differs(replayed):
    module = replayed("h100-jaxlib0.6.2-attn_heads", "cuda", "0.10.2")
    assert rows(module)["baseline"]["matches_upload"] == "partly"
    assert module["replay_says"][0].startswith("Partly reproduced with jaxlib 0.10.2")


def test_the_known_gpus_are_targets(toolchain):
    from triage.replay.gpus import known_target
    from triage.replay.toolchains import works

    for name in known_gpus():
        assert works(toolchain("cuda"), known_target(name)) == ""
