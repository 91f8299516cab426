"""Archives as people send them, and as attackers do."""
import bz2
import contextlib
import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
import tracemalloc
import zipfile
from pathlib import Path
from random import Random

import pytest
import zstandard

from triage.engine.analysis import InputError
from triage.engine.archive import DROP, KEEP, Limits, is_useful, unpack

HLO = (b"HloModule jit_f, entry_computation_layout={()->f32[]}\n\n"
       b"ENTRY %main () -> f32[] {\n  ROOT %c = f32[] constant(1)\n}\n")
STAGE = "module_0001.jit_f.before_optimizations.txt"
LAST = "module_0001.jit_f.cpu_after_optimizations.txt"


def tar(*members, end=True) -> bytes:
    """A tar of (name or TarInfo, content) pairs."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        size = archive.offset
    return out.getvalue() if end else out.getvalue()[:size]


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zipped(*members, method=zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def zip_mode(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def sealed(header: bytes) -> bytes:
    """A tar header with its checksum made right again."""
    header = header[:148] + b" " * 8 + header[156:]
    return header[:148] + b"%06o\0 " % sum(header) + header[156:]


class Unpacker:
    """Unpacks bytes into a directory of its own, and sees to it that nothing appears beside it."""

    def __init__(self, tmp_path: Path) -> None:
        self.outer = tmp_path
        self.into = tmp_path / "into"

    def __call__(self, data: bytes, limits: Limits | None = None, name: str = "dump"):
        upload = self.outer / "upload"
        upload.write_bytes(data)
        self.into.mkdir(exist_ok=True)
        try:
            return unpack(upload, self.into, limits, name)
        finally:
            assert sorted(p.name for p in self.outer.iterdir()) == ["into", "upload"]
            assert not any(p.is_symlink() for p in self.into.rglob("*"))

    @property
    def files(self) -> dict[str, bytes]:
        return {str(p.relative_to(self.into)): p.read_bytes() for p in sorted(self.into.rglob("*")) if p.is_file()}


@pytest.fixture
def unpacker(tmp_path):
    return Unpacker(tmp_path)


PLAIN = tar((f"d/{STAGE}", HLO), ("d/module_0001.jit_f.ir-no-opt.ll", b"; llvm"))


@pytest.mark.parametrize("data", [
    PLAIN, gzip.compress(PLAIN), lzma.compress(PLAIN), bz2.compress(PLAIN), zstandard.compress(PLAIN),
    zipped((f"d/{STAGE}", HLO), ("d/module_0001.jit_f.ir-no-opt.ll", b"; llvm")),
], ids=["tar", "gzip", "xz", "bzip2", "zstd", "zip"])
def test_every_kind_is_told_by_content_and_useless_files_are_skipped(unpacker, data):
    result = unpacker(data, name="no-ending")
    assert (result.files, result.bytes, result.skipped, result.notes) == (1, len(HLO), 1, [])
    assert unpacker.files == {f"d/{STAGE}": HLO}


@pytest.mark.parametrize(("data", "name", "file"), [
    (HLO, STAGE, STAGE),
    (gzip.compress(HLO), STAGE + ".gz", STAGE),
    (zstandard.compress(HLO), "my.hlo.zst", "my.hlo"),
    (b"// a comment\n" + HLO, "..", "...txt"),
    (HLO, "noend", "noend.txt"),
])
def test_a_single_text_is_a_dump_of_one_stage(unpacker, data, name, file):
    assert unpacker(data, name=name).files == 1
    assert list(unpacker.files) == [file]


REFUSED = {
    "traversal": (tar((f"../{STAGE}", HLO)), "leads out of its directory"),
    "traversal inside": (tar((f"a/../../{STAGE}", HLO)), "leads out of its directory"),
    "traversal of a useless file": (tar(("../x.ll", HLO), (STAGE, HLO)), "leads out of its directory"),
    "traversal, Windows": (zipped((f"..\\..\\{STAGE}", HLO)), "leads out of its directory"),
    "traversal, zip": (zipped((f"../{STAGE}", HLO)), "leads out of its directory"),
    "traversal of a folder": (tar((special("../../etc", tarfile.DIRTYPE), b"")), "leads out of its directory"),
    "absolute": (tar((f"/tmp/{STAGE}", HLO)), "absolute path"),
    "absolute, Windows": (zipped((f"C:\\dump\\{STAGE}", HLO)), "absolute path"),
    "absolute, zip": (zipped((f"/{STAGE}", HLO)), "absolute path"),
    "symlink": (tar((special(STAGE, tarfile.SYMTYPE, "/etc/passwd"), b"")), "link"),
    "symlink to a folder, then a file in it": (
        tar((special("d", tarfile.SYMTYPE, "/tmp"), b""), (f"d/{STAGE}", HLO)), "link"),
    "hard link": (tar((STAGE, HLO), (special(LAST, tarfile.LNKTYPE, STAGE), b"")), "link"),
    "symlink, zip": (zipped((zip_mode(STAGE, stat.S_IFLNK | 0o777), b"/etc/passwd")), "link"),
    "device": (tar((special("module_0001.x.txt", tarfile.CHRTYPE), b"")), "device"),
    "pipe": (tar((special("module_0001.x.txt", tarfile.FIFOTYPE), b"")), "device"),
    "pipe, zip": (zipped((zip_mode(STAGE, stat.S_IFIFO | 0o600), HLO)), "device"),
    "too deep": (tar(("a/" * 17 + STAGE, HLO)), "folders more than 16 deep"),
    "nothing in it": (tar(), "empty"),
    "nothing in it, zip": (zipped(), "empty"),
    "nothing useful": (tar(("a.ll", b"x"), ("b.ptx", b"x")), "None of the 2 files"),
    "protobuf only": (tar(("module_0001.jit_f.before_optimizations.hlo.pb", b"x")), "--xla_dump_hlo_as_text"),
    "an archive in an archive": (tar(("dump.tar.gz", PLAIN)), "another archive, `dump.tar.gz`"),
    "no archive": (b"\x89PNG\r\n\x1a\n" + b"\0" * 600, "is no archive and no HLO text"),
    "a text that is no HLO": (b"hello\n", "is no archive and no HLO text"),
    "no bytes": (b"", "is no archive and no HLO text"),
    "packed something": (gzip.compress(b"hello\n" * 200), "neither a tar archive nor an HLO text"),
    "gzip in gzip": (gzip.compress(gzip.compress(PLAIN)), "neither a tar archive nor an HLO text"),
    "damaged from the start": (gzip.compress(PLAIN)[:12], "nothing in it could be read"),
    "zip without its end": (zipped((STAGE, HLO))[:-40], "table of contents"),
    "xz that wants 4 GiB of memory": (
        lzma.compress(PLAIN, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 29}]), "could be read"),
    "zstd that wants 1 GiB of memory": (
        zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=30)).compressobj()
        .compress(b"") + b"\x28\xb5\x2f\xfd\x00\xa0" + b"\x01\x00\x00", "could be read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_one_sentence(unpacker, case):
    data, sentence = REFUSED[case]
    with pytest.raises(InputError, match=".") as error:
        unpacker(data)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_limits_say_themselves(unpacker):
    many = tar(*((f"module_{n:04}.jit_f.before_optimizations.txt", HLO) for n in range(30)))
    for limits, sentence in [(Limits(files=29), "more than 29 HLO files"), (Limits(members=20), "more than 20 files"),
                             (Limits(bytes=1000), "more than 1000 B"), (Limits(stream_bytes=2048), "than 2.0 KiB")]:
        with pytest.raises(InputError) as error:
            unpacker(gzip.compress(many), limits)
        assert sentence in str(error.value)
        shutil.rmtree(unpacker.into)
    assert unpacker(many, Limits(files=30, members=30, bytes=30 * len(HLO))).files == 30


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, zstandard.compress, bz2.compress, "zip"])
def test_a_bomb_stops_at_the_limit_with_flat_memory(unpacker, pack):
    text = HLO + b" " * 60_000_000
    data = zipped((STAGE, text)) if pack == "zip" else pack(tar((STAGE, text)))
    del text
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"more than 19\.1 MiB, the limit"):
            unpacker(data, Limits(bytes=20_000_000))
        assert tracemalloc.get_traced_memory()[1] < 12_000_000        # xz has a dictionary of 8 MiB
    finally:
        tracemalloc.stop()
    assert sum(map(len, unpacker.files.values())) <= 20_000_000


def test_highly_compressible_stages_are_no_bomb(unpacker):
    stages = tar(*((f"module_0001.jit_f.{n:04}.p.after_a.before_b.txt", HLO * 2000) for n in range(50)))
    data = lzma.compress(stages)
    assert len(stages) / len(data) > 1000
    assert unpacker(data).bytes == 50 * 2000 * len(HLO)


TWO = tar((STAGE, HLO), (LAST, HLO * 3000))
NOISE = os.urandom(2000)


@pytest.mark.parametrize(("data", "last"), [
    (TWO[:-11000], True), (gzip.compress(TWO)[:-100], True), (lzma.compress(TWO)[:-100], True),
    (tar((STAGE, HLO), end=False), False),                                      # cut between two members
    (tar((STAGE, HLO), end=False) + TWO[1024:1300], False),                     # cut in a header
    (tar((STAGE, HLO), end=False) + NOISE[:512] + TWO, False),                  # a damaged header
    (gzip.compress(tar((STAGE, HLO), end=False)) + NOISE, False),
], ids=["in a file", "gzip", "xz", "between", "in a header", "damaged header", "noise behind gzip"])
def test_a_damaged_tar_gives_what_comes_before_the_damage(unpacker, data, last):
    result = unpacker(data)
    assert unpacker.files[STAGE] == HLO
    assert (LAST in unpacker.files) is last
    if last:
        assert (HLO * 3000).startswith(unpacker.files[LAST])
    assert any("cut short or damaged" in note for note in result.notes)


def test_a_zip_with_a_damaged_file_gives_the_others(unpacker):
    data = bytearray(zipped((STAGE, HLO), (LAST, os.urandom(5000)), method=zipfile.ZIP_STORED))
    data[data.index(b"cpu_after") + 2000] ^= 255
    result = unpacker(bytes(data))
    assert unpacker.files[STAGE] == HLO
    assert result.notes == [f"`{LAST}` is cut short or damaged; its readable part was used."]


def test_an_encrypted_zip_is_refused(unpacker):
    data = bytearray(zipped((STAGE, HLO)))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(InputError, match="encrypted"):
        unpacker(bytes(data))


def test_a_zip_with_an_unknown_method_names_the_file(unpacker):
    data = bytearray(zipped((STAGE, HLO), (LAST, HLO)))
    data[data.rindex(b"PK\x01\x02") + 10] = 99
    assert "unknown way" in unpacker(bytes(data)).notes[0]
    assert list(unpacker.files) == [STAGE]


@pytest.mark.parametrize(("field", "value", "sentence"), [
    (6, b"\xff\x00", "table of contents"),                          # a version nobody has written yet
    (42, b"\xff\xff\xff\x7f", "Nothing in the archive could be read"),     # where the file starts: far behind the end
])
def test_a_zip_that_lies_about_itself(unpacker, field, value, sentence):
    data = bytearray(zipped((STAGE, HLO)))
    entry = data.rindex(b"PK\x01\x02")
    data[entry + field:entry + field + len(value)] = value
    with pytest.raises(InputError, match=sentence):
        unpacker(bytes(data))


@pytest.mark.parametrize("seed", range(4))
def test_random_damage_is_refused_or_noted(unpacker, seed):
    """Never another exception, never a file elsewhere (the fixture looks)."""
    random = Random(seed)
    two = ((STAGE, HLO * 5), ("n" * 150 + ".txt", HLO), (LAST, HLO * 40))
    wholes = [tar(*two), gzip.compress(tar(*two)), lzma.compress(tar(*two)), zstandard.compress(tar(*two)), zipped(*two),
              zipped(*two, method=zipfile.ZIP_STORED), zipped(*two, method=zipfile.ZIP_LZMA)]
    for whole in wholes * 20:
        data = bytearray(whole)
        for _ in range(random.choice((1, 2, 8))):
            place = random.randrange(len(data))
            change = random.choice((bytes([random.randrange(256)]), b"\xff" * 8, b"\0" * 16))
            data[place:place + len(change)] = change
        with contextlib.suppress(InputError):
            unpacker(bytes(data))
        shutil.rmtree(unpacker.into)


def test_a_zip_directory_larger_than_memory_is_refused_before_it_is_read(unpacker):
    data = bytearray(zipped((STAGE, HLO)))
    end = data.rindex(b"PK\x05\x06")
    data[end + 12:end + 16] = (1 << 30).to_bytes(4, "little")
    with pytest.raises(InputError, match=r"larger than 64\.0 MiB"):
        unpacker(bytes(data))


@pytest.mark.parametrize("join", [lambda a, b: a + b, lambda a, b: gzip.compress(a) + gzip.compress(b),
                                  lambda a, b: lzma.compress(a) + b"\0" * 8 + lzma.compress(b),
                                  lambda a, b: zstandard.compress(a) + zstandard.compress(b)])
def test_concatenated_archives_are_one(unpacker, join):
    result = unpacker(join(tar((STAGE, HLO)), tar((LAST, HLO * 2))))
    assert unpacker.files == {STAGE: HLO, LAST: HLO * 2}
    assert result.notes == []


def test_names_are_made_printable(unpacker):
    raw = tar(("module_0001.AAAA.before_optimizations.txt", HLO))
    unpacker(sealed(raw[:512].replace(b"AAAA", b"\xff\x1b[m")) + raw[512:])
    assert list(unpacker.files) == ["module_0001.__[m.before_optimizations.txt"]


def test_the_later_of_two_equal_names_counts(unpacker):
    result = unpacker(tar((STAGE, HLO), (STAGE, HLO * 2)))
    assert unpacker.files == {STAGE: HLO * 2}
    assert (result.files, result.notes) == (1, [f"`{STAGE}` is in the archive twice; the later one was used."])


def test_names_that_differ_in_case_are_two_files_or_a_note(unpacker):
    result = unpacker(tar((STAGE, HLO), (STAGE.replace("jit_f", "JIT_F"), HLO * 2)))
    assert unpacker.files[STAGE] == HLO
    assert result.files + len(result.notes) == 2


def test_a_file_and_a_folder_of_one_name(unpacker):
    result = unpacker(tar((STAGE, HLO), (f"{STAGE}/{LAST}", HLO), (f"b.txt/{LAST}", HLO), ("b.txt", HLO)))
    assert unpacker.files == {STAGE: HLO, f"b.txt/{LAST}": HLO}
    left_out = " was left out: the archive holds something else of that name."
    assert [note.split("`")[2] for note in result.notes] == [left_out] * 2


def test_a_name_no_file_system_takes_is_noted(unpacker):
    result = unpacker(tar((STAGE, HLO), ("m" * 300 + ".txt", HLO)))
    assert result.files == 1
    assert "longer than 255 bytes" in result.notes[0]
    assert len(result.notes[0]) < 250


def test_notes_are_bounded(unpacker):
    result = unpacker(tar(*[(STAGE, HLO)] * 50))
    assert len(result.notes) == 21
    assert result.notes[-1] == "29 more such notes about the archive were left out."


def test_a_header_that_claims_gigabytes_is_refused(unpacker):
    header = special("x", tarfile.XHDTYPE).tobuf(tarfile.USTAR_FORMAT).replace(b"00000000000", b"77777777777", 1)
    with pytest.raises(InputError, match="larger than any real one"):
        unpacker(sealed(header) + PLAIN)


def test_a_chain_of_headers_does_not_exhaust_the_stack(unpacker):
    link = special("././@LongLink", tarfile.GNUTYPE_LONGNAME).tobuf()
    result = unpacker(tar((STAGE, HLO), end=False) + link * 5000)
    assert list(unpacker.files) == [STAGE]
    assert "cut short or damaged" in result.notes[0]


def test_a_sparse_file_is_left_out(unpacker):
    info = tarfile.TarInfo("module_0002.g.before_optimizations.txt")
    info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,1,9999999999,1",
                        "GNU.sparse.size": "99999999999", "GNU.sparse.numblocks": "2"}
    result = unpacker(tar((STAGE, HLO), (info, b"xx")))
    assert list(unpacker.files) == [STAGE]
    assert "sparse" in result.notes[0]


def test_many_members_take_no_memory(unpacker):
    data = gzip.compress(tar((STAGE, HLO), *((f"{n}.ll", b"") for n in range(6000))), 1)
    tracemalloc.start()
    try:
        assert unpacker(data).skipped == 6000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", [
    STAGE, LAST, "1700000000000000.module_0001.jit_f.before_optimizations.txt", "sub/dir/" + STAGE, "a\\" + STAGE,
    "module_0001.f.0057.layout_assignment.after_layout-assignment.before_x.txt",
    "module_0001.f.0057.p.after_thunk_sequence.before_x.txt",
    "module_0001.f.sm_9.0_gpu_after_optimizations-buffer-assignment.txt", "module_0001.f.debug_options",
    "module_0001.f.sm_9.0_gpu_after_optimizations-memory-usage-report.txt", "module_0001.f.config.pbtxt",
    "module_0001.f.gpu_target_config.pbtxt", "module_0001.f.autotune_results.pbtxt", "x.hlo", "flagfile",
    "module_0001.f.cl_1.flagfile", "module_0001.f.cl_1.tpu_comp_env.txt", "module_0001.metadata.textproto",
])
def test_useful(name):
    assert is_useful(name)


@pytest.mark.parametrize("name", [
    "module_0001.f.ir-no-opt.ll", "module_0001.f.ptx", "module_0001.f.obj-file.k.o", "module_0001.f.spv", "a.dot",
    "module_0001.f.after_optimizations.html", "f_fusion.pyz", "module_0001.f.wrapped_iota.mlir-trace.txt",
    "module_0001.f.before_optimizations.hlo.pb", "1700000000000000.module_0001.f.execution_0001.hlo_snapshot.pb",
    "module_f.execution_0001.hlo_unoptimized_snapshot.txt", "module_0001.f.thunk_sequence.txt",
    "module_0001.f.thunk_sequence_after_thunk_passes.txt", "module_0001.f.thunk_metadata.txt",
    "module_0001.f.priority_fusion_dump.txt", "autotuner_3.fusion.before.txt", "f.ttir.txt", "f.schedule.txt",
    "module.mlir", "compile_options.textproto", "._" + STAGE, "sub.txt/", ".DS_Store",
])
def test_useless(name):
    assert not is_useful(name)


def test_the_rules_run_in_javascript_too():
    for rule in KEEP + DROP:
        assert "(?" not in rule and "\\Z" not in rule and "\\A" not in rule


def test_real_dumps_keep_every_file_the_engine_reads(tmp_path):
    dumps = Path(__file__).parents[2].parent / "shared" / "dumps"
    if not dumps.is_dir():
        pytest.skip("real dumps are not here: ../shared/dumps is missing")
    result = unpack(dumps / "h100-jaxlib0.10.2-attn_heads-defaultdump.tar.xz", tmp_path)
    assert (result.files, result.skipped, result.notes) == (11, 3, [])
    assert len(list(tmp_path.rglob("*after_optimizations.txt"))) == 1
