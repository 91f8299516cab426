"""`manage.py triage` as a user runs it: a process without a data directory, a database or a broker."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = """HloModule jit_small

ENTRY main {
  w = f32[512,1024]{1,0} parameter(0), metadata={op_name="params['w']"}
  ROOT t = f32[1024,512]{1,0} transpose(w), dimensions={1,0}
}
"""


@pytest.fixture
def dump(tmp_path) -> Path:
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "module_0001.jit_small.before_optimizations.txt").write_text(SMALL)
    return folder


def triage(*arguments: object, cwd: Path = ROOT, **environ: str) -> subprocess.CompletedProcess:
    # Nobody listens at these addresses: whoever needs them would fail.
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "triage.settings", "TRIAGE_DATA": str(cwd / "no-such-data"),
                   "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none", "REDIS_URL": "redis://127.0.0.1:1/0", **environ}
    return subprocess.run([sys.executable, str(ROOT / "manage.py"), "triage", *map(str, arguments)], cwd=cwd,
                          env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_verdict_for_people(dump, tmp_path):
    done = triage(dump, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("jit_small (unknown target, 1 stage)\n")
    assert "1 parameter, 2.0 MiB, transposed outside any loop" in done.stdout
    assert not (tmp_path / "no-such-data").exists()


def test_json_and_markdown(dump, tmp_path):
    done = triage(dump, "--json", "-", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert report["schema"] == "hlo-triage/1"
    assert report["modules"][0]["copies"][0]["parameter_names"] == ["params['w']"]
    done = triage(dump, "--json", tmp_path / "r.json", "--markdown", tmp_path / "r.md", cwd=tmp_path)
    assert done.returncode == 0 and "jit_small" in done.stdout
    assert json.loads((tmp_path / "r.json").read_text()) == report
    assert (tmp_path / "r.md").read_text().startswith("# 2.0 MiB of parameters transposed outside any loop")


def test_a_terminal_is_given_nothing_to_obey(tmp_path):
    harm = "\x1b[31mred\x07\u202e"
    for folder, copied in (("with", "copy"), ("without", "negate")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"module_0001.jit_{harm}.before_optimizations.txt").write_text(
            SMALL.replace("params", harm).replace("t = ", f"t{harm} = ").replace("transpose(w)", f"{copied}(w)"))
        (tmp_path / folder / f"module_0002.jit_{harm}2.before_optimizations.txt").write_text("%cut {")
        for arguments in ([], ["--markdown", "-"], ["--json", "-"]):
            done = triage(tmp_path / folder, *arguments, cwd=tmp_path)
            assert done.returncode == 0
            assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout + done.stderr)
            assert "[31mred" in done.stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(triage(tmp_path / f"none{harm}", cwd=tmp_path).stderr)


def test_an_archive_and_a_smallest_size(dump, tmp_path):
    with tarfile.open(tmp_path / "d.tar.xz", "w:xz") as tar:
        tar.add(dump, "dump")
    assert "2.0 MiB" in triage(tmp_path / "d.tar.xz", cwd=tmp_path).stdout
    assert "Nothing of 2.0 MiB or more" in triage(tmp_path / "d.tar.xz", "--min-bytes", 2097153, cwd=tmp_path).stdout


@pytest.mark.parametrize("arguments, sentence", [
    (["missing"], "missing does not exist."),
    (["empty"], "There is no HLO text in this dump."),
    (["noise.bin"], "is no archive and no HLO text"),
    (["dump", "--json", "no/such/folder/r.json"], "No such file or directory"),
    (["dump", "--min-bytes", "-3"], "no positive number"),
    (["dump", "--min-bytes", "9" * 400], "no positive number"),
    (["dump", "--min-bytes", "9" * 5000], "no positive number"),
    (["dump", "--json", "/dev/full"], "/dev/full cannot be written: No space left on device."),
    (["pipe"], "pipe is neither a directory nor a file."),
    (["/dev/zero"], "/dev/zero is neither a directory nor a file."),
    ([""], "The path is empty"),
    ([], "required: path"),
])
def test_what_cannot_be_done_is_one_line_and_exit_code_2(dump, tmp_path, arguments, sentence):
    (tmp_path / "empty").mkdir()
    (tmp_path / "noise.bin").write_bytes(os.urandom(5000))
    os.mkfifo(tmp_path / "pipe")
    done = triage(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line and not line.startswith((" ", "usage"))]) == 1


def test_a_full_disk_behind_standard_output(dump, tmp_path):
    for arguments in ([dump], [dump, "--json", "-"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([sys.executable, ROOT / "manage.py", "triage", *arguments], cwd=tmp_path, stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (2, "Standard output cannot be written: No space left on device.\n")


def test_pipes_and_devices_in_a_dump_are_not_read(dump, tmp_path):
    os.mkfifo(dump / "module_0002.jit_p.before_optimizations.txt")
    (dump / "module_0003.jit_z.before_optimizations.txt").symlink_to("/dev/zero")
    os.mkfifo(dump / "loose.hlo")
    done = triage(dump, cwd=tmp_path)
    assert done.returncode == 0 and "jit_small" in done.stdout


def test_names_that_are_no_text_are_written_all_the_same(dump, tmp_path):
    os.rename(os.fsencode(dump / "module_0001.jit_small.before_optimizations.txt"),
              os.fsencode(dump) + b"/module_0001.jit_\xff.before_optimizations.txt")
    done = triage(dump, "--json", tmp_path / "r.json", "--markdown", tmp_path / "r.md", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "transposed" in (tmp_path / "r.md").read_text() and json.loads((tmp_path / "r.json").read_text())


@pytest.mark.parametrize("out", [(), ("--markdown", "-"), ("--json", "-")])
def test_a_terminal_that_knows_no_more_than_ascii(dump, tmp_path, out):
    (dump / "module_0001.jit_small.before_optimizations.txt").write_text(SMALL.replace("params['w']", "\u2603"), "utf-8")
    done = triage(dump, *out, cwd=tmp_path, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.isascii()


def test_a_closed_standard_output_is_one_line(dump, tmp_path):
    done = subprocess.run(["sh", "-c", f'exec "{sys.executable}" "{ROOT}/manage.py" triage "{dump}" >&-'], cwd=tmp_path,
                          capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (2, "Standard output is closed.\n")
