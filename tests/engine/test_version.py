"""Which jaxlib wrote a dump: what shows in it, and real dumps of releases that are known."""
from __future__ import annotations

import pytest

from triage.engine.knowledge import Releases, release_dates
from triage.engine.report import analyse
from triage.engine.version import _CAME, _WENT, Facts, guess_version

BODY = "".join(f"  %a.{i} = f32[] add(%a, %b)\n" for i in range(6))
SHORT = BODY.replace("%", "")
TYPED = "  %a = f32[2]{0} add(f32[2]{0} %b, f32[2]{0} %c)\n"
NAME = "module_0001.jit_f.cpu_after_optimizations"
DSR = "module_0001.jit_f.0009.simplification.after_dot-strength-reduction.before_algsimp.txt"


def found(*endings: str, **facts) -> tuple[str | None, str | None]:
    version = guess_version(Facts([NAME + ".txt", *(NAME + ending for ending in endings)], **facts))
    return version["jaxlib_first"], version["jaxlib_last"]


@pytest.mark.parametrize("endings, facts, first, last", [
    (["-live-range.txt"], {}, "0.10.0", None),
    (["-buffer-assignment.txt"], {}, None, "0.4.34"),
    (["-memory-usage-report.txt"], {}, "0.4.35", None),
    ([], {"memory_report": "Memory Space: default (color=0)\n"}, "0.9.2", None),
    ([], {"memory_report": "Total bytes used: 8 (8B)\n"}, None, "0.9.1"),
    ([], {"assignment": "BufferAssignment:\nBufferLiveRange:\n"}, None, "0.9.2"),
    ([".debug_options"], {}, "0.6.0", None),
    ([".debug_options", ".ir-no-opt.ll"], {}, "0.6.0", "0.11.0"),
    ([".debug_options", ".ir-no-opt.ll"], {"debug_options": {"xla_dump_emitter_re": ".*"}}, "0.8.2", None),
    ([], {"header": "HloModule m\n\nFileNames\n1 \"a\"\n\nStackFrames\n1 {}\n"}, "0.8.2", None),
    ([], {"sample": TYPED}, None, "0.5.1"),
    ([], {"sample": "%f (a: f32[]) -> f32[] {\n" + BODY + "}\n\n"}, "0.5.3", None),
    ([], {"sample": "f {\n" + SHORT + "}\n\n"}, "0.5.1", None),
    ([], {"sample": "f {\n" + SHORT + "} // f\n\n"}, None, "0.5.0"),
    ([], {"sample": "  %a = f32[] add(%t#0, %t#1)\n"}, "0.11.0", None),
    ([], {"debug_options": {"xla_gpu_enable_dot_strength_reduction": "false"}}, "0.4.24", "0.5.0"),
])
def test_signs(endings, facts, first, last):
    assert found(*endings, **facts) == (first, last)


def test_pass_names_tell():
    assert guess_version(Facts([DSR]))["jaxlib_first"] == "0.7.0"


def test_what_is_there_tells_more_than_what_is_missing():
    """Of a new dump, somebody sends the buffer assignment and not the report beside it."""
    assert found("-buffer-assignment.txt", ".debug_options") == ("0.6.0", None)


def test_a_short_body_does_not_tell_how_bodies_end():
    assert guess_version(Facts([NAME + ".txt"], sample="f {\n" + SHORT[:SHORT.index("\n") + 1] + "}\n")) is None


def test_text_that_somebody_printed_does_not_tell_how_bodies_end():
    assert guess_version(Facts(["step.txt"], sample="f {\n" + SHORT + "}\n")) is None


def test_nothing_tells_no_version():
    assert guess_version(Facts(["m.before_optimizations.txt"])) is None


def test_libtpu_may_be_a_release_apart():
    names = ["module_0001.jit_f.cl_933746096.after_optimizations-live-range.txt"]
    version = guess_version(Facts(names))
    assert (version["jaxlib_first"], version["jaxlib_last"]) == ("0.9.2", None) and "libtpu" in version["reason"]


def test_the_range_does_not_read_as_one_date():
    assert guess_version(Facts([NAME + "-live-range.txt"]))["range"] == "XLA of 2026-04-03 or later (jaxlib 0.10.0 or later)"
    version = guess_version(Facts([NAME + ".debug_options"], memory_report="Total bytes used: 8 (8B)\n"))
    assert version["range"] == "XLA of 2025-04-11 to 2026-03-18 (jaxlib 0.6.0 to 0.9.1)"
    assert version["reason"] == "there is a .debug_options file; the memory usage report is one for all memory spaces"


def test_signs_stand_in_the_order_of_what_they_tell_most():
    releases = list(release_dates())
    came, went = [releases.index(sign.release) for sign in _CAME], [releases.index(sign.release) for sign in _WENT]
    assert came == sorted(came, reverse=True) and went == sorted(went)


@pytest.mark.parametrize("name, true, first, last", [
    ("cpu-jaxlib0.4.25-attn_heads", "0.4.25", None, "0.4.34"),
    ("h100-jaxlib0.4.38-attn_heads", "0.4.38", "0.4.35", "0.5.0"),
    ("h100-jaxlib0.4.38-attn_heads-flag_off", "0.4.38", "0.4.35", "0.5.0"),
    ("h100-jaxlib0.6.2-attn_heads", "0.6.2", "0.6.0", "0.9.1"),
    ("h100-jaxlib0.10.2-attn_heads", "0.10.2", "0.10.0", None),
    ("h100-jaxlib0.10.2-attn_heads-defaultdump", "0.10.2", "0.10.0", None),
    ("cpu-jaxlib0.10.2-f32_upcast", "0.10.2", "0.10.0", None),
    ("v5e-libtpu0.0.42-train_step", "0.10.2", "0.9.2", "0.11.0"),       # libtpu 0.0.42 comes with jax 0.10.2
])
def test_the_true_version_is_in_the_range(unpack_dump, name, true, first, last):
    [module] = analyse(unpack_dump(name)).report["modules"]
    version = module["version"]
    assert Releases(true, true).within(Releases(version["jaxlib_first"], version["jaxlib_last"]))
    assert (version["jaxlib_first"], version["jaxlib_last"]) == (first, last)
