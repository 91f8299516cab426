"""Where a dump's files are: the uploaded archive, the report and the texts, all in Django's default storage.

    dumps/<id>/archive                  what was uploaded
    dumps/<id>/<generation>/...         report and texts, see pack.py

A result is written under a new generation, then `Dump.generation` is switched, then the old one is deleted: nobody
reads half a result, whenever the writer dies.
"""
from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.core.files import File
from django.core.files.storage import Storage, storages
from django.db import transaction

from triage.dumps import pack
from triage.dumps.models import Dump, DumpModule
from triage.engine.analysis import Analysis, StageText


class Superseded(Exception):
    """Another attempt has taken over this dump: this one's result is not wanted."""


@dataclass(frozen=True)
class StageView:
    record: StageText       # file, chunks and marks; the texts come from load_texts


def archive_name(dump: Dump) -> str:
    return f"dumps/{dump.id}/archive"


def save_analysis(dump: Dump, analysis: Analysis) -> None:
    """Stores report, texts and summary rows, replacing what was there. Raises Superseded as save_packed does."""
    with tempfile.TemporaryDirectory(prefix="triage-") as folder:
        pack.write_analysis(analysis, lambda name, content: Path(folder, name).write_bytes(content))
        save_packed(dump, Path(folder))


def save_packed(dump: Dump, folder: Path, live: Callable[[], None] = lambda: None) -> None:
    """Stores the files that pack.write_analysis wrote to `folder`, and the summary rows, replacing what was there.

    `live` is called after every file: storing many of them takes a while.
    Raises Superseded, and leaves everything as it was, where the row's lease is no longer the one in `dump`.
    """
    before, generation = dump.generation, secrets.token_hex(8)
    rows = json.loads((folder / "summary").read_bytes())
    try:
        for path in sorted(folder.iterdir()):
            with open(path, "rb") as file:
                _storage().save(f"dumps/{dump.id}/{generation}/{path.name}", File(file))
            live()
        _switch(dump, generation, rows)
    except BaseException:
        _delete_folder(f"dumps/{dump.id}/{generation}")
        raise
    if before:
        _delete_folder(f"dumps/{dump.id}/{before}")


def load_report(dump: Dump) -> dict:
    """The report, schema `hlo-triage/1`. Raises FileNotFoundError where the dump has no result."""
    return json.loads(load_report_json(dump))


def load_report_json(dump: Dump) -> bytes:
    """The same as JSON text."""
    return pack.decompress(_read(_name(dump, "report")))


def load_stage(dump: Dump, module: int, stage: int) -> StageView:
    """One stage without its texts. Raises IndexError or FileNotFoundError where there is none."""
    prefix, index = _index(dump, module)
    return StageView(pack.read_stage(prefix, index, stage, _read))


def load_texts(dump: Dump, module: int, keys: Iterable[str]) -> dict[str, str]:
    """The texts of these chunks by key. Raises KeyError for a key that is not there."""
    prefix, index = _index(dump, module)
    return pack.read_texts(prefix, index, keys, _read)


def load_gpu_target(dump: Dump, module: int) -> str:
    """Text of the GPU's target config; "" where the dump has none."""
    try:
        return _read(_name(dump, f"m{module}.target")).decode()
    except FileNotFoundError:
        return ""


def text_bytes(dump: Dump, module: int, key: str) -> int:
    """Size of a text, which is not read for it. Raises KeyError for a key that is not there."""
    return _index(dump, module)[1].by_key[key][2]


def stream_text(dump: Dump, module: int, key: str) -> Iterator[str]:
    """One text piece by piece, for those too large to be held. Raises KeyError for a key that is not there."""
    prefix, index = _index(dump, module)
    return pack.stream_text(prefix, index, key, _read)


def stored_bytes(dump: Dump) -> int:
    """Size of the stored result, without the uploaded archive."""
    folder = _name(dump, "")
    return sum(_storage().size(folder + name) for name in _storage().listdir(folder)[1])


def delete_files(dump: Dump) -> None:
    """Deletes everything stored for this dump."""
    _delete_folder(f"dumps/{dump.id}")


def delete_leftovers(dump: Dump) -> None:
    """Deletes what killed attempts left behind. For the start of an attempt: no other may be writing."""
    folders, _ = _storage().listdir(f"dumps/{dump.id}")
    for folder in folders:
        if folder != dump.generation:
            _delete_folder(f"dumps/{dump.id}/{folder}")


def _storage() -> Storage:
    return storages["default"]


def _name(dump: Dump, file: str) -> str:
    if not dump.generation:
        raise FileNotFoundError(f"dump {dump.id} has no result")
    return f"dumps/{dump.id}/{dump.generation}/{file}"


def _switch(dump: Dump, generation: str, rows: list[dict]) -> None:
    with transaction.atomic():
        if not Dump.objects.filter(pk=dump.pk, lease=dump.lease).update(generation=generation):
            raise Superseded
        dump.modules.all().delete()
        DumpModule.objects.bulk_create(DumpModule(dump=dump, index=index, **row) for index, row in enumerate(rows))
    dump.generation = generation


def _read(name: str, offset: int = 0, length: int = -1) -> bytes:
    with _storage().open(name, "rb") as file:
        file.seek(offset)
        return file.read(length) if length >= 0 else file.read()


def _index(dump: Dump, module: int) -> tuple[str, pack.Index]:
    prefix = _name(dump, f"m{module}")
    return prefix, _cached_index(prefix)


@lru_cache(maxsize=8)
def _cached_index(prefix: str) -> pack.Index:
    """A stored index never changes: its generation is part of the name."""
    return pack.read_index(_read(f"{prefix}.index"))


def _delete_folder(folder: str) -> None:
    storage = _storage()
    try:
        folders, files = storage.listdir(folder)
    except FileNotFoundError:
        return
    for name in folders:
        _delete_folder(f"{folder}/{name}")
    for name in files:
        storage.delete(f"{folder}/{name}")
    storage.delete(folder)      # an empty directory on disk; nothing on object storage
