"""Archives that are cut short, damaged or followed by rubbish: what is whole in them is used, what is not is named."""
from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile

import pytest
import zstandard

from tests.dumps.test_archive import HLO, LAST, STAGE, tar, unpacker, zipped
from triage.engine.analysis import InputError

__all__ = ["unpacker"]      # a fixture


def flipped(data: bytes, place: int) -> bytes:
    data = bytearray(data)
    data[place] ^= 255
    return bytes(data)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


PACKERS = [gzip.compress, lzma.compress, bz2.compress, zstd]
SMALL_TAR, LARGE_TAR = tar((STAGE, HLO), (LAST, HLO * 3)), tar((STAGE, HLO), (LAST, os.urandom(150_000).hex().encode()))


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("content", [SMALL_TAR, LARGE_TAR], ids=["small", "large"])
@pytest.mark.parametrize("damage", ["cut", "rubbish"])
def test_damage_behind_the_last_file_is_no_damage_to_the_files(unpacker, pack, content, damage):
    """The beginning of the archive is read ahead: of a small one that is all of it, damage at its end included."""
    whole = pack(content)
    result = unpacker(whole[:-3] if damage == "cut" else whole + b"rubbish" * 100)
    assert set(unpacker.files) == {STAGE, LAST} and unpacker.files[STAGE] == HLO
    [note] = result.notes or [""] if pack is bz2.compress and damage == "rubbish" else result.notes
    assert STAGE not in note and LAST not in note
    if damage == "rubbish":     # bzip2 itself takes no notice
        assert note in ("", "What follows the end of the archive could not be read and was left out.")
    else:
        assert "whole up to its end, which is damaged" in note


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("content", [SMALL_TAR, LARGE_TAR, HLO], ids=["small", "large", "text"])
def test_what_is_cut_in_the_middle_names_what_is_cut(unpacker, pack, content):
    whole = pack(content)
    try:
        result = unpacker(whole[:len(whole) // 2], name=STAGE)
    except InputError as refused:       # nothing of a small block comes out before all of it is there
        assert "is damaged: nothing in it could be read" in str(refused) and pack in (bz2.compress, zstd)
    else:
        assert unpacker.files[STAGE] == HLO or HLO.startswith(unpacker.files[STAGE])
        assert any(f"`{name}` is cut short or damaged" in note for name in (STAGE, LAST) for note in result.notes)


@pytest.mark.parametrize(("data", "place"), [
    (gzip.compress(HLO), -6), (zstd(HLO), -2), (zipped((STAGE, HLO)), zipped((STAGE, HLO)).index(b"PK\x01\x02") + 16),
], ids=["gzip", "zstd", "zip"])
def test_a_wrong_checksum_does_not_cost_the_text(unpacker, data, place):
    result = unpacker(flipped(data, place), name=STAGE)
    assert unpacker.files == {STAGE: HLO}
    assert result.notes == [f"`{STAGE}` is cut short or damaged; its readable part was used."]


def test_a_large_zstd_gives_every_whole_block(unpacker):
    text = HLO + os.urandom(300_000).hex().encode()
    whole = zstd(tar((STAGE, text)))
    unpacker(whole[:len(whole) // 2])
    assert 200_000 < len(unpacker.files[STAGE]) < 400_000 and text.startswith(unpacker.files[STAGE])


@pytest.mark.parametrize("options", [{"level": 1}, {"level": 19}, {"threads": 2}, {"write_content_size": False}])
@pytest.mark.parametrize("content", [SMALL_TAR, LARGE_TAR, tar((STAGE, HLO + b" " * 3_000_000))],
                         ids=["small", "large", "runs"])
def test_every_form_of_zstd(unpacker, options, content):
    """Frames with and without their size, blocks of all kinds, and frames that are to be skipped."""
    skipped = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    result = unpacker(zstandard.ZstdCompressor(**options).compress(content) + skipped)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert unpacker.files == {member.name: archive.extractfile(member).read() for member in archive}
    assert result.notes == []


@pytest.mark.parametrize("pack", PACKERS)
def test_nothing_packed_says_so(unpacker, pack):
    with pytest.raises(InputError, match="`d` is empty"):
        unpacker(pack(b""), name="d")


def test_a_zip_name_that_is_no_utf8_costs_nothing(unpacker):
    data = zipped(("é.txt", HLO * 2), ("☃.txt", HLO * 3), (STAGE, HLO)).replace("é".encode(), b"\xff\xfe")
    result = unpacker(data)
    assert sorted(map(len, unpacker.files.values())) == [len(HLO) * n for n in (1, 2, 3)]
    assert {STAGE, "☃.txt"} < set(unpacker.files) and result.notes == []


@pytest.mark.parametrize("name", ["hlo_snapshot.txt", "._x.txt", "é" * 190 + ".txt", "é" * 190, "n" * 300, "x.schedule.txt",
                                  "a.mlir-trace.txt", "x.txt\n", "\udcff.txt", "a/b\\._c.hlo", ".", "/", "C:",
                                  "autotuner_1.x.txt"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_ones_own_name_for_a_text_does_not_matter(unpacker, name, pack):
    assert unpacker(pack(HLO), name=name).notes == []
    [(kept, content)] = unpacker.files.items()
    assert content == HLO and kept.endswith((".txt", ".hlo"))
