"""Reading compressed files forward, in bounded memory, up to where they are damaged."""
from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from pathlib import Path
from typing import BinaryIO, Protocol

from .analysis import InputError

HEAD_BYTES = 65536                          # enough to tell what a file is
BLOCK = 512                                 # of a tar archive
MAX_READ = 1024 * 1024                      # of one read; tar headers that ask for more are an attack
XZ_MEMORY = 512 * 1024 * 1024               # `xz -9` needs 65 MiB
ZSTD_WINDOW = 128 * 1024 * 1024             # what the zstd program accepts by default
_INPUT_BYTES = 256 * 1024
_MAGIC = ((b"PK\x03\x04", "zip"), (b"PK\x05\x06", "zip"), (b"\x1f\x8b", "gzip"), (b"\xfd7zXZ\x00", "xz"),
          (b"BZh", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd"))
_HLO = re.compile(rb"^(HloModule\s|ENTRY\s)", re.M)
#: What decompressors raise on damaged input.
_DAMAGE = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError)


class _Source(Protocol):
    def read1(self, size: int, /) -> bytes: ...


def sniff(head: bytes) -> str | None:
    """What a file is by its first HEAD_BYTES: zip, gzip, xz, bzip2, zstd, tar, hlo (a text) or None."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if is_tar_header(head[:BLOCK]):
        return "tar"
    return "hlo" if b"\0" not in head and _HLO.search(head) else None


def is_tar_header(block: bytes) -> bool:
    """Whether a block is a tar header or, as in an empty archive, zeros."""
    if len(block) < BLOCK:
        return False
    if not any(block):
        return True
    try:
        checksum = int(block[148:156].strip(b" \0"), 8)
    except ValueError:
        return False
    return checksum == sum(block[:148]) + sum(block[156:]) + 8 * ord(" ")


class Forward:
    """A source read from front to end, counting. Where it is damaged it ends, and `damage` says so.

    `tell` and `seek` are what tarfile needs; seeking back is refused. `limit` bounds the bytes that come out of it
    (InputError with `limit_message`).
    """

    def __init__(self, source: _Source, limit: int | None = None, limit_message: str = "") -> None:
        self._source, self._limit, self._limit_message = source, limit, limit_message
        self._pushed = b""
        self._position = 0
        self.damage = ""
        self.last = b""             # what the last read returned: tells how a tar archive ended

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_READ:
            raise InputError("The archive is damaged: one of its headers is larger than any real one.")
        pieces, wanted = [], size
        while wanted and (piece := self._piece(wanted)):
            pieces.append(piece)
            wanted -= len(piece)
        self.last = b"".join(pieces)
        self._position += len(self.last)
        if self._limit is not None and self._position > self._limit:
            raise InputError(self._limit_message)
        return self.last

    def _piece(self, size: int) -> bytes:
        if self._pushed:
            piece, self._pushed = self._pushed[:size], self._pushed[size:]
            return piece
        if self.damage:
            return b""
        try:
            return self._source.read1(size)
        except _DAMAGE as error:
            self.damage = str(error) or type(error).__name__
            return b""

    def push_back(self, data: bytes) -> None:
        """Puts back what was just read."""
        self._pushed = data + self._pushed
        self._position -= len(data)

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        if position < self._position:
            raise ValueError("seeks back")
        while self._position < position and self.read(min(MAX_READ, position - self._position)):
            pass


def decompressed(kind: str, file: BinaryIO) -> _Source:
    """The content of a file of this kind. Raises InputError where the package for it is missing."""
    if kind == "gzip":
        return gzip.GzipFile(fileobj=file)
    if kind == "bzip2":
        return bz2.BZ2File(file)
    if kind == "xz":
        return _Xz(file)
    if kind == "zstd":
        return _Zstd(file)
    return file


def plain_name(name: str, kind: str) -> str:
    """The name of what a compressed file holds: without its `.gz`."""
    endings = {"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz", "zstd": ".zst"}
    return Path(name).name.removesuffix(endings.get(kind, ""))


class _Xz:
    """LZMAFile with a bound on memory, which the standard one has no argument for."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = self._new()

    @staticmethod
    def _new() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)

    def read1(self, size: int) -> bytes:
        while True:
            data = b""
            if self._decoder.eof:
                data = self._next_stream()
                if not data:
                    return b""
                self._decoder = self._new()
            elif self._decoder.needs_input:
                data = self._file.read(_INPUT_BYTES)
                if not data:
                    raise EOFError("the compressed data ends in the middle")
            if (out := self._decoder.decompress(data, size)):
                return out

    def _next_stream(self) -> bytes:
        """The beginning of a stream that follows this one, behind any padding; b"" at the end."""
        data = self._decoder.unused_data or self._file.read(_INPUT_BYTES)
        while data and not (rest := data.lstrip(b"\0")):
            data = self._file.read(_INPUT_BYTES)
        return rest if data else b""


class _Zstd:
    def __init__(self, file: BinaryIO) -> None:
        try:
            import zstandard  # not in the standard library: needed for .zst alone
        except ImportError:
            raise InputError("Reading .zst needs the Python package zstandard.") from None
        self._error = zstandard.ZstdError
        decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
        self._reader = decompressor.stream_reader(file, read_across_frames=True)

    def read1(self, size: int) -> bytes:
        try:
            return self._reader.read1(size)
        except self._error as error:
            raise ValueError(str(error)) from None
