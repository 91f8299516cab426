"""The issue draft: what it says of small and of real dumps, and what hostile names cannot do to it."""
from __future__ import annotations

import re
import urllib.parse
from pathlib import Path

import pytest

from triage.engine.analysis import Chunk, Mark, StageText
from triage.engine.report import analyse
from triage.reports.draft import Draft, Subject, draft
from triage.reports.excerpt import Line, copy_lines, trim
from triage.reports.github import CUT, MAX_URL, prefilled
from triage.reports.markdown import block, code, plain, table

BEFORE = """HloModule jit_small

ENTRY main {
  w = f32[512,1024]{1,0} parameter(0), metadata={op_name="NAME"}
  ROOT t = f32[1024,512]{1,0} transpose(w), dimensions={1,0}, metadata={META}
}
""".replace("META", 'op_name="jit(f)/T" source_file="/home/me/secret/model.py" source_line=7')


def drafted(folder: Path, number: int = 0) -> tuple[Draft, dict]:
    analysis = analyse(folder)
    module, texts = analysis.report["modules"][0], analysis.modules[0]

    def excerpt(stage: int, copy: str) -> list[Line]:
        return copy_lines(texts.stages[stage], copy, lambda keys: {key: texts.texts[key] for key in keys})
    return draft(Subject(module, number, excerpt, analysis.report["generator"])), module


def without_texts(module: dict) -> Draft:
    return draft(Subject(module, 0, lambda stage, copy: [], "x"))


def small(tmp_path: Path, name: str = "w") -> Draft:
    (tmp_path / "module_0001.jit_small.before_optimizations.txt").write_text(BEFORE.replace("NAME", name))
    (tmp_path / "module_0001.jit_small.debug_options").write_text(
        'xla_gpu_autotune_level: 0\nxla_dump_to: "/home/me/secret/dump"\nxla_gpu_cuda_data_dir: "/home/me/cuda"\n')
    return drafted(tmp_path)[0]


def test_the_programs_own_copy_is_told_first_and_paths_stay_at_home(tmp_path):
    found = small(tmp_path)
    assert found.address == "program" and found.title.endswith("in the program itself (model.py:7)")
    assert found.body.startswith("> **To be fixed in the program first.**")
    assert "`model.py:7`" in found.body and "secret" not in found.text and "/home/me" not in found.text
    assert "--xla_gpu_autotune_level=0" in found.body and "cuda_data_dir" not in found.body


def test_blanks_are_named_and_stand_in_the_text(tmp_path):
    found = small(tmp_path)
    assert found.blanks and all("____" in blank and blank in found.body for blank in found.blanks)
    named = small(tmp_path, "a____b")       # no blank, though it looks like one
    assert "a____b" in named.body and named.blanks == found.blanks


@pytest.mark.parametrize("name", [
    "<script>alert(1)</script>", "a|b", "``` x ```", "[x](https://evil.example)", "![x](y)", "@everyone #1", "\u202eevil",
    "<img src=x onerror=y>", "**bold** _it_ ~~no~~", "&lt;b&gt;"])
def test_hostile_names_stay_text(tmp_path, name):
    body = small(tmp_path, name).text
    outside = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", re.sub(r"^(`{3,}).*?^\1$", "", body, flags=re.S | re.M))
    for harmful in ("<script", "<img", "](http", "![", "@everyone", "\u202e", "**bold**", "&lt;"):
        assert harmful not in outside
    for row in (line for line in body.splitlines() if line.startswith("| ")):
        assert len(re.findall(r"(?<!\\)\|", row)) == 4


def many(module: dict, count: int) -> dict:
    """The module's report with so many copies of one pattern, as if each were another."""
    copy, pattern = module["copies"][0], module["patterns"][0]
    copies = [{**copy, "id": f"c{n}", "live_at_peak": n < 1} for n in range(count)]
    return {**module, "copies": copies, "patterns": [{**pattern, "count": count, "copies": [c["id"] for c in copies]}]}


class Counted(list):
    """A list that counts how often it was gone through."""
    times = 0

    def __iter__(self):
        self.times += 1
        return super().__iter__()


def test_time_grows_with_the_number_of_copies_only(tmp_path):
    small(tmp_path)
    module = many(drafted(tmp_path)[1], 1000)
    ids = module["patterns"][0]["copies"] = Counted(module["patterns"][0]["copies"])
    module["copies"] = Counted(module["copies"])
    assert without_texts(module).body
    assert ids.times <= 4 and module["copies"].times <= 3


@pytest.mark.parametrize(("count", "told"), [
    (1, ["The copy: `w`", "Live at the peak: 1 of 1 copy, 2,097,152 bytes."]),
    (2, ["One of the 2 copies: `w`", "Live at the peak: 1 of 2 copies, 2,097,152 bytes."])])
def test_one_and_several(tmp_path, count, told):
    small(tmp_path)
    found = without_texts(many(drafted(tmp_path)[1], count))
    assert all(sentence in found.body for sentence in told)


def test_what_a_draft_leaves_out_is_told(tmp_path):
    small(tmp_path)
    module = many(drafted(tmp_path)[1], 1)
    module["flags"] = {f"xla_flag_{n:03}": "1" for n in range(150)}
    module["patterns"] *= 13
    module["parameters"] = [{**module["parameters"][0], "number": 0, "shape": f"f32[{1 + n % 7}]"} for n in range(70)]
    body = without_texts(module).body
    assert body.count("--xla_flag_") == 100 and "\n(50 more)\n" in body and "150 flags" in body
    assert "\n\nand 7 more patterns.\n" in body and " and 2 more.\n" in body and "\n* 1 more shape.\n" in body


def test_an_excerpt_says_what_it_leaves_out():
    chunks = (Chunk("1", "f", 90), Chunk("2", "g", 90))
    marks = [Mark(name, f"x.{n}", "consumer", ("c1",)) for name in ("f", "g") for n in range(15)]
    stage = StageText(0, "a.txt", chunks, tuple(marks))
    found = copy_lines(stage, "c1", lambda keys: {"1": "".join(f"  %x.{n} = f32[] add(%a)\n" for n in range(15))})
    assert found[0].text == "  %x.0 = f32[] add(%a)" and len(found) == 13
    assert found[-1].text == "// (4 more lines left out)"
    assert "too large to be searched" in copy_lines(stage, "c1", lambda keys: {})[1].text


def test_markdown_pieces():
    assert code("a`b``c") == "```a`b``c```" and code("`x") == "`` `x ``" and code("") == "`  `"
    assert plain("a_b <c> [d]\n#e") == r"a\_b \<c\> \[d\] \#e"
    assert block(["````"])[0] == "`````"
    assert table(["a"], [["x|y"]])[-1] == r"| x\|y |"


def test_long_drafts_are_cut_for_the_link_with_a_notice():
    body = "## One\n\n```hlo\n" + "%x = f32[8]{0} add(%y, %z)\n" * 2000 + "```\n"
    address, cut = prefilled("A title", body)
    assert cut and len(address) <= MAX_URL
    sent = urllib.parse.parse_qs(urllib.parse.urlsplit(address).query)
    assert sent["title"] == ["A title"] and sent["body"][0].endswith("\n```" + CUT)
    short, cut = prefilled("A title & more", "short ünï")
    assert not cut and urllib.parse.parse_qs(urllib.parse.urlsplit(short).query)["body"] == ["short ünï"]


def test_lines_of_an_excerpt_are_trimmed():
    line = '  %a = f32[8]{0} add(%b, %c), metadata={op_name="x, y"}, backend_config={"k":[1,2]}'
    assert trim(line) == "  %a = f32[8]{0} add(%b, %c)"
    assert len(trim("  %a = f32[8]{0} add(" + "%b, " * 900 + ")")) < 500


REAL = {
    "h100-jaxlib0.10.2-attn_heads": ("[GPU] 24.0 MiB of parameters transposed before the loop by layout-assignment (suspected "
                                     "trigger: dot-strength-reduction)", ["25,165,824 of 27,268,824", "step 57", "step 11",
                                                                          "copy(", "dot(", "NVIDIA H100 80GB HBM3"]),
    "h100-jaxlib0.10.2-llama3_8b_generate": ("[GPU] 27.9 GB of parameters transposed before the loop, in the program itself "
                                             "(axes_scan.py:124)", ["28,185,722,880 of 28,329,537,504", "step 66"]),
    "h100-jaxlib0.10.2-int8_dot": ("[GPU] 32.0 MiB of parameters transposed before the loop by layout-assignment",
                                   ["33,554,432 of 34,668,880", "`dot` wants dimension 0"]),
    "h100-jaxlib0.10.2-attn_heads-defaultdump": ("[GPU] 24.0 MiB of parameters transposed before the loop",
                                                 ["the passes in between are not in the dump", "--xla_dump_hlo_pass_re=.*"]),
    "cpu-jaxlib0.10.2-f32_upcast": ("[CPU] 128.0 MiB of parameters converted before the loop, in the program itself "
                                    "(models.py:78)", ["134,217,728", "convert_element_type"]),
    "v5e-libtpu0.0.42-train_step": ("[TPU] 16.0 MiB of parameters converted before the loop by bfloat16-propagation",
                                    ["memory space S\\(1\\)".replace("\\", ""), "16,777,216"]),
}


@pytest.mark.parametrize("name", REAL)
def test_real_dumps(unpack_dump, name):
    found, module = drafted(unpack_dump(name))
    title, facts = REAL[name]
    assert found.title == title
    for fact in facts:
        assert fact in found.body
    assert 40 <= len(unfolded(found)) <= 120
    # Every exact number of bytes is one of the report's, or a sum it states.
    known = {f"{value:,}" for value in _numbers(module)}
    for number in re.findall(r"\b\d{1,3}(?:,\d{3})+\b", re.sub(r"```.*?```|`[^`]*`", "", found.body, flags=re.S)):
        assert number in known


def unfolded(found: Draft) -> list[str]:
    """The lines that a reader sees before anything is unfolded."""
    return re.sub(r"(<details>[^\n]*)\n.*?\n</details>", r"\1", found.body, flags=re.S).split("\n")


def _numbers(node: object) -> set[int]:
    """All integers of the report, and the bytes of the copies that are live at the peak."""
    if isinstance(node, dict):
        own = {sum(c["bytes"] for c in node["copies"] if c["live_at_peak"])} if "patterns" in node else set()
        return own.union(*(_numbers(value) for value in node.values()))
    if isinstance(node, list):
        return set().union(*(_numbers(value) for value in node))
    return {node} if isinstance(node, int) else set()
