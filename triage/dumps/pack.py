"""The stored form of an analysis. No Django here: a child process without settings or database writes it.

    report              the report, zstd-compressed JSON
    summary             what a list of modules needs of it, JSON
    m<n>.pack<k>        the texts of module n: parts of zstd frames
    m<n>.index          where in them each text is
    m<n>.target         the GPU's target config, where the dump has one

Consecutive stages are nearly the same text, so every distinct chunk is stored once. Chunks are ordered by computation
name: versions of one computation lie in one frame and compress against each other, and a diff of two stages finds both
sides in the frames it reads anyway. The stages themselves (which chunks, which marks) are frames of their own.
A part is a file of bounded size, so that a reader on object storage fetches a few megabytes, never the whole.
"""
from __future__ import annotations

import codecs
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import zstandard

from triage.engine.analysis import Analysis, Chunk, Mark, ModuleTexts, StageText

FRAME_BYTES = 1024 * 1024       # of text in one frame; a chunk larger than that is a frame of its own
PART_BYTES = 4 * 1024 * 1024    # compressed; the frame that passes it is the part's last
PIECE_BYTES = 1024 * 1024       # of a text that is streamed
LEVEL = 9
MAX_COLUMN = 2 ** 63 - 1         # of a database

Write = Callable[[str, bytes], object]              # (file name, content)
Read = Callable[[str, int, int], bytes]             # (file name, offset, length) -> content


@dataclass(frozen=True)
class Frame:
    part: int
    offset: int
    length: int


@dataclass(frozen=True)
class Index:
    """`chunks[i]` is stored at `places[i]` = (frame number, offset, length), both in bytes of the unpacked frame."""
    chunks: tuple[Chunk, ...]
    places: tuple[tuple[int, int, int], ...]
    stages: tuple[int, ...]                         # frame number of each stage
    frames: tuple[Frame, ...]

    @cached_property
    def by_key(self) -> dict[str, tuple[int, int, int]]:
        """The place of each text."""
        return {chunk.key: place for chunk, place in zip(self.chunks, self.places, strict=True)}


class _Parts:
    """Collects frames and writes a part whenever it is full."""

    def __init__(self, prefix: str, write: Write) -> None:
        self._prefix, self._write = prefix, write
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self._part = 0
        self._buffer = bytearray()
        self.frames: list[Frame] = []

    def add(self, raw: bytes) -> int:
        """Stores one frame; its number."""
        data = self._compressor.compress(raw)
        self.frames.append(Frame(self._part, len(self._buffer), len(data)))
        self._buffer += data
        if len(self._buffer) >= PART_BYTES:
            self.flush()
        return len(self.frames) - 1

    def flush(self) -> None:
        if self._buffer:
            self._write(_part_name(self._prefix, self._part), bytes(self._buffer))
            self._part += 1
            self._buffer.clear()


def _part_name(prefix: str, part: int) -> str:
    return f"{prefix}.pack{part}"


def write_analysis(analysis: Analysis, write: Write) -> None:
    """Hands every file of the stored form to `write`."""
    for number, module in enumerate(analysis.modules):
        write_module(f"m{number}", module, write)
        if module.gpu_target:
            write(f"m{number}.target", module.gpu_target.encode("utf-8", "replace"))
    write("report", compress(analysis.report))
    write("summary", json.dumps([_summary(module) for module in analysis.report["modules"]]).encode())


def storable(text: str) -> str:
    """The text as every database takes it: PostgreSQL has no NUL, and half of a surrogate pair is no UTF-8."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _summary(module: dict) -> dict:
    """The fields of a DumpModule row. Sums of a hostile module may be larger than any column."""
    sums = {name: module["totals"][name] for name in ("copied_bytes", "hoisted_bytes", "in_loop_bytes")}
    sums |= {"temp_bytes": module["memory"].get("temp_bytes"), "copies": len(module["copies"])}
    return {"name": storable(module["name"]), "platform": storable(module["platform"] or "")[:100],
            "target": storable(module["target"] or "")[:200], "verdict": storable(module["verdict"])[:400],
            **{name: count if count is None else min(count, MAX_COLUMN) for name, count in sums.items()}}


def write_module(prefix: str, module: ModuleTexts, write: Write) -> None:
    """Writes `<prefix>.pack0`, `.pack1`, ... and `<prefix>.index`; the index last."""
    chunks = sorted({chunk: None for stage in module.stages for chunk in stage.chunks}, key=lambda chunk: chunk.name)
    numbers = {chunk: number for number, chunk in enumerate(chunks)}
    parts = _Parts(prefix, write)
    places = _write_texts(chunks, module.texts, parts)
    stages = [parts.add(_stage_record(stage, numbers)) for stage in module.stages]
    parts.flush()
    rows = [[c.key, c.name, c.lines, c.entry, *place] for c, place in zip(chunks, places, strict=True)]
    frames = [[frame.part, frame.offset, frame.length] for frame in parts.frames]
    write(f"{prefix}.index", compress({"chunks": rows, "stages": stages, "frames": frames}))


def _write_texts(chunks: list[Chunk], texts: dict[str, str], parts: _Parts) -> list[tuple[int, int, int]]:
    places: list[tuple[int, int, int]] = []
    frame = bytearray()
    for chunk in chunks:
        text = texts[chunk.key].encode()
        if frame and len(frame) + len(text) > FRAME_BYTES:
            parts.add(bytes(frame))
            frame.clear()
        places.append((len(parts.frames), len(frame), len(text)))
        frame += text
    if frame:
        parts.add(bytes(frame))
    return places


def _stage_record(stage: StageText, numbers: dict[Chunk, int]) -> bytes:
    marks = [[m.computation, m.instruction, m.role, m.copies, m.kind, m.where, m.bytes] for m in stage.marks]
    record = {"index": stage.index, "file": stage.file, "chunks": [numbers[c] for c in stage.chunks], "marks": marks}
    return json.dumps(record, separators=(",", ":")).encode()


def read_index(data: bytes) -> Index:
    """`data` is the content of a `.index` file."""
    raw = json.loads(decompress(data))
    rows = raw["chunks"]
    return Index(tuple(Chunk(*row[:4]) for row in rows), tuple(tuple(row[4:]) for row in rows), tuple(raw["stages"]),
                 tuple(Frame(*frame) for frame in raw["frames"]))


def read_stage(prefix: str, index: Index, stage: int, read: Read) -> StageText:
    """Raises IndexError for a stage that is not there."""
    if stage < 0:
        raise IndexError(stage)
    record = json.loads(_read_frame(prefix, index.frames[index.stages[stage]], read))
    marks = tuple(Mark(*mark[:3], tuple(mark[3]), *mark[4:]) for mark in record["marks"])
    return StageText(record["index"], record["file"], tuple(index.chunks[n] for n in record["chunks"]), marks)


def read_texts(prefix: str, index: Index, keys: Iterable[str], read: Read) -> dict[str, str]:
    """Texts by chunk key, reading only the frames that hold them. Raises KeyError for a key that is not there."""
    texts, number, frame = {}, -1, b""
    for key in sorted(set(keys), key=lambda key: index.by_key[key]):
        at, offset, length = index.by_key[key]
        if at != number:
            number, frame = at, _read_frame(prefix, index.frames[at], read)
        texts[key] = frame[offset:offset + length].decode()
    return texts


def stream_text(prefix: str, index: Index, key: str, read: Read) -> Iterator[str]:
    """One text piece by piece: a text that is large is never unpacked whole. Raises KeyError where there is none."""
    number, offset, left = index.by_key[key]
    frame = index.frames[number]
    packed = io.BytesIO(read(_part_name(prefix, frame.part), frame.offset, frame.length))
    decoder = codecs.getincrementaldecoder("utf-8")()
    with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
        while offset and (skipped := reader.read(min(offset, PIECE_BYTES))):
            offset -= len(skipped)
        while left and (piece := reader.read(min(left, PIECE_BYTES))):
            left -= len(piece)
            yield decoder.decode(piece)


def _read_frame(prefix: str, frame: Frame, read: Read) -> bytes:
    return decompress(read(_part_name(prefix, frame.part), frame.offset, frame.length))


def compress(value: dict) -> bytes:
    """JSON, packed."""
    return zstandard.compress(json.dumps(value, separators=(",", ":")).encode(), LEVEL)


def decompress(data: bytes) -> bytes:
    return zstandard.decompress(data)
