"""What is saved comes back to the letter, in little space, and is never half there."""
from __future__ import annotations

import pytest
from django.core.files.storage import storages

from triage.dumps import pack, storage
from triage.dumps.models import Dump
from triage.engine.analysis import Analysis, Chunk, Mark, ModuleTexts, StageText
from triage.engine.report import analyse

pytestmark = pytest.mark.django_db(transaction=True)


def module_report(name: str, **changes: object) -> dict:
    return {"name": name, "platform": "gpu", "target": None, "copies": [{}, {}], "verdict": "v" * 500,
            "totals": {"copied_bytes": 3, "hoisted_bytes": 2, "in_loop_bytes": 1}, "memory": {}, **changes}


def small(text: str = "a {\n}\n", **changes: object) -> Analysis:
    header, body = Chunk("00", "", 1), Chunk("01", "a", 2, True)
    mark = Mark("a", "t.1", "copy", ("c1", "c2"), "transpose", "in_loop", 8)
    stages = [StageText(0, "d/x.txt", (header, body), (mark,)), StageText(1, "d/y.txt", (header, body, body))]
    texts = {"00": "HloModule \u00fc\n", "01": text}
    return Analysis({"schema": "hlo-triage/1", "notes": [], "modules": [module_report("m", **changes)]},
                    [ModuleTexts("m", stages, texts)])


def files(dump: Dump) -> list[str]:
    folders, names = storages["default"].listdir(f"dumps/{dump.id}")
    return sorted([*folders, *names])


def test_everything_comes_back():
    dump, analysis = Dump.objects.create(name="x"), small()
    storage.save_analysis(dump, analysis)
    dump = Dump.objects.get(pk=dump.pk)
    assert storage.load_report(dump) == analysis.report
    for number, stage in enumerate(analysis.modules[0].stages):
        assert storage.load_stage(dump, 0, number).record == stage
    assert storage.load_texts(dump, 0, ["01"]) == {"01": "a {\n}\n"}
    assert storage.load_texts(dump, 0, []) == {}
    row = dump.modules.get()
    assert (row.index, row.name, row.target, row.copies, row.copied_bytes, row.hoisted_bytes, row.in_loop_bytes,
            row.temp_bytes, len(row.verdict)) == (0, "m", "", 2, 3, 2, 1, None, 400)


def test_what_is_not_there_is_an_error_of_its_own():
    dump = Dump.objects.create(name="x")
    with pytest.raises(FileNotFoundError):
        storage.load_report(dump)
    storage.save_analysis(dump, small())
    for module, stage, error in [(0, 2, IndexError), (0, -1, IndexError), (1, 0, FileNotFoundError)]:
        with pytest.raises(error):
            storage.load_stage(dump, module, stage)
    with pytest.raises(KeyError):
        storage.load_texts(dump, 0, ["ff"])


def test_saving_again_replaces_and_leaves_one_generation():
    dump = Dump.objects.create(name="x")
    storage.save_analysis(dump, small())
    storage.save_analysis(dump, small(text="b {\n}\n"))
    assert storage.load_texts(dump, 0, ["01"]) == {"01": "b {\n}\n"}
    assert files(dump) == [dump.generation]
    assert dump.modules.count() == 1


def test_a_save_that_fails_leaves_the_result_before(monkeypatch):
    dump = Dump.objects.create(name="x")
    storage.save_analysis(dump, small())
    with pytest.raises(KeyError):
        storage.save_analysis(dump, small(totals={}))           # while the files are written
    with pytest.raises(TypeError):
        monkeypatch.setattr(pack, "_summary", lambda module: {"no_such_field": 1})
        storage.save_analysis(dump, small(text="b {\n}\n"))     # in the transaction
    dump = Dump.objects.get(pk=dump.pk)
    assert storage.load_texts(dump, 0, ["01"]) == {"01": "a {\n}\n"}
    assert files(dump) == [dump.generation]
    assert dump.modules.get().name == "m"


def test_an_attempt_without_the_lease_changes_nothing():
    dump = Dump.objects.create(name="x", lease="mine")
    storage.save_analysis(dump, small())
    Dump.objects.update(lease="another")
    with pytest.raises(storage.Superseded):
        storage.save_analysis(dump, small(text="b {\n}\n"))
    dump = Dump.objects.get(pk=dump.pk)
    assert storage.load_texts(dump, 0, ["01"]) == {"01": "a {\n}\n"}
    assert files(dump) == [dump.generation]


def test_sums_larger_than_a_column_do_not_lose_the_report():
    dump = Dump.objects.create(name="x")
    totals = {"copied_bytes": 2 ** 70, "hoisted_bytes": 2 ** 64, "in_loop_bytes": 0}
    storage.save_analysis(dump, small(totals=totals))
    assert dump.modules.get().copied_bytes == 2 ** 63 - 1
    assert storage.load_report(dump)["modules"][0]["totals"] == totals


def test_deleting_leaves_no_file():
    dump = Dump.objects.create(name="x")
    storage.save_analysis(dump, small())
    storage.delete_files(dump)
    assert not storages["default"].exists(f"dumps/{dump.id}")
    storage.delete_files(dump)      # a second time is no error


def test_large_texts_spread_over_frames_and_parts(monkeypatch):
    monkeypatch.setattr(pack, "FRAME_BYTES", 1000)
    monkeypatch.setattr(pack, "PART_BYTES", 200)
    texts = {f"{n:04x}": f"c{n} {{\n{chr(65 + n % 26) * n * 7}\n}}\n" for n in range(100)}
    chunks = tuple(Chunk(key, f"c{n % 10}", 3) for n, key in enumerate(texts))
    analysis = small()
    analysis.modules = [ModuleTexts("m", [StageText(0, "x.txt", chunks)], texts)]
    dump = Dump.objects.create(name="x")
    storage.save_analysis(dump, analysis)
    assert len([name for name in storages["default"].listdir(f"dumps/{dump.id}/{dump.generation}")[1] if "pack" in name]) > 5
    assert storage.load_texts(dump, 0, texts) == texts
    assert storage.load_texts(dump, 0, ["0063", "0001"]) == {"0063": texts["0063"], "0001": texts["0001"]}
    for key, text in texts.items():
        assert "".join(storage.stream_text(dump, 0, key)) == text
        assert storage.text_bytes(dump, 0, key) == len(text)


@pytest.mark.parametrize("piece", [1, 2, 3, 1000])
def test_a_streamed_text_comes_whole_wherever_its_pieces_end(monkeypatch, piece):
    monkeypatch.setattr(pack, "PIECE_BYTES", piece)
    texts = {"01": "a\n", "02": "b \u00e9\u2603\U0001f600 \\xff\n" * 20}
    analysis = small()
    analysis.modules = [ModuleTexts("m", [StageText(0, "x.txt", (Chunk("01", "a", 1), Chunk("02", "b", 20)))], texts)]
    dump = Dump.objects.create(name="x")
    storage.save_analysis(dump, analysis)
    assert {key: "".join(storage.stream_text(dump, 0, key)) for key in texts} == texts
    with pytest.raises(KeyError):
        list(storage.stream_text(dump, 0, "ff"))


@pytest.mark.parametrize(("name", "least"), [
    ("h100-jaxlib0.10.2-llama3_8b_generate", 80), ("h100-jaxlib0.10.2-attn_heads", 60)])
def test_a_real_dump_takes_a_small_part_of_its_size_and_comes_back(unpack_dump, name, least, monkeypatch):
    folder = unpack_dump(name)
    dump, analysis = Dump.objects.create(name=name), analyse(folder)
    storage.save_analysis(dump, analysis)
    stages = analysis.modules[0].stages
    raw = sum((folder / stage.file).stat().st_size for stage in stages)
    assert raw / storage.stored_bytes(dump) > least
    storage._cached_index.cache_clear()
    read: list[int] = []
    real = storage._read
    monkeypatch.setattr(storage, "_read", lambda *place: read.append(len(data := real(*place))) or data)
    for number in (0, len(stages) // 2, len(stages) - 1):
        stage = storage.load_stage(dump, 0, number).record
        texts = storage.load_texts(dump, 0, {chunk.key for chunk in stage.chunks})
        text = "".join(texts[chunk.key] for chunk in stage.chunks)
        assert text == (folder / stage.file).read_text(encoding="utf-8")
    assert sum(read) < 400_000
