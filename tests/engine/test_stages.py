"""Reading stages block by block: what comes out is the text cut into computations, and equal texts have one key."""
from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triage.engine.files import StageFile
from triage.engine.stages import Stage, StageReader
from triage.engine.text import split_chunks

ADD = b"add {\n  a = f32[4]{0} parameter(0)\n  ROOT c = f32[4]{0} add(a, a)\n}\n\n"
MAIN = b"ENTRY main {\n  p = f32[4]{0} parameter(0)\n  ROOT r = f32[4]{0} call(p), to_apply=add\n}\n"
PIECES = (b"HloModule m\n\n", ADD, MAIN, ADD[:40], MAIN[20:], b"\n", b"\n\n", b"}\n", b"\n}\n\n", b"foo\n", b"// foo\n\n", b"}",
          b"\0", b"\xff", b"\xe2\x82", "\u00e9".encode(), "\U0001f600".encode(), b"\\x00", b"\\xff", b"\r\n", b" ")


def read(reader: StageReader, data: bytes) -> tuple[Stage, list[str]]:
    """The stage, and the text of each of its chunks."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "stage.txt")
        path.write_bytes(data)
        stage = reader.read(StageFile(path, path.name, "0001", None, None, None, path.name))
    return stage, [reader.texts[chunk.key] for chunk in stage.chunks]


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=12), min_size=1, max_size=3))
def test_the_chunks_of_a_stage_are_those_of_its_text(files):
    reader = StageReader()
    for data in map(b"".join, files):
        stage, chunks = read(reader, data)
        assert chunks == split_chunks(data.decode("utf-8", "backslashreplace").replace("\0", "\\x00"))
        assert [c.name for c in stage.computations] == [chunk.name for chunk in stage.chunks[1:]]
    assert len(set(reader.texts.values())) == len(reader.texts)


@pytest.mark.parametrize("odd", [b"\0", b"\xff", "\u00e9".encode(), "\U0001f600\0".encode(), "\u20ac\u20ac\0\u00e9".encode()])
def test_a_text_has_one_key_however_its_file_spells_it(odd):
    reader = StageReader()
    first, texts = read(reader, ADD.replace(b"a, a", b"a, " + odd) + MAIN)
    second, again = read(reader, "".join(texts).encode())
    assert texts == again and first.chunks == second.chunks


def test_the_text_behind_a_computation_is_read_at_once():
    """Each step of reading it again with one more line would take a gigabyte for these."""
    reader = StageReader()
    _, chunks = read(reader, ADD + MAIN + b"foo\n}\n\n" * 10_000)
    assert len(chunks) == 3 and len(reader.texts) <= 4
