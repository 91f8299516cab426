"""Decompressors of single files that hand out all they can, in bounded memory, before they complain.

`read1` returns b"" at the end of the content; it raises Trailing where something that is no further part follows the
end, and one of streams._DAMAGE where the file is damaged.
"""
from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from .analysis import InputError

XZ_MEMORY = 512 * 1024 * 1024               # `xz -9` needs 65 MiB
ZSTD_WINDOW = 128 * 1024 * 1024             # what the zstd program accepts by default
_INPUT_BYTES = 256 * 1024
_XZ_MAGIC, _ZSTD_MAGIC = b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
_RUN = 1                                    # the kind of zstd block that is one byte, repeated


class Source(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class Trailing(Exception):
    """Rubbish behind the end of the compressed content."""


class Gzip:
    def __init__(self, file: BinaryIO) -> None:
        self._file = gzip.GzipFile(fileobj=file)

    def read1(self, size: int) -> bytes:
        try:
            return self._file.read1(size)
        except gzip.BadGzipFile as error:
            # What is at the very beginning was seen to be gzip: this is about another member.
            if str(error).startswith("Not a gzipped file"):
                raise Trailing from None
            raise


class Xz:
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
        if not data:
            return b""
        if len(rest) < len(_XZ_MAGIC):
            rest += self._file.read(_INPUT_BYTES)
        if not rest.startswith(_XZ_MAGIC):
            raise Trailing
        return rest


class Zstd:
    """Feeds the decompressor block by block: a block is 128 KiB unpacked at most, whatever the archive claims, and where
    the file is cut short or damaged the blocks before are not lost. See RFC 8878, section 3.1.1.
    """

    def __init__(self, file: BinaryIO) -> None:
        try:
            import zstandard  # not in the standard library: needed for .zst alone
        except ImportError:
            raise InputError("Reading .zst needs the Python package zstandard.") from None
        self._zstandard, self._file = zstandard, file
        self._pieces = self._frames()
        self._out = io.BytesIO()

    def read1(self, size: int) -> bytes:
        try:
            while not (out := self._out.read(size)):
                piece = next(self._pieces, None)
                if piece is None:
                    return b""
                self._out = io.BytesIO(self._decoder.decompress(piece))
        except self._zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
        return out

    def _frames(self) -> Iterator[bytes]:
        """Pieces of all frames, each to be given to the decompressor of its frame."""
        magic = self._file.read(4)
        while magic:
            if magic == _ZSTD_MAGIC:
                self._decoder = self._zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
                yield from self._frame()
            elif len(magic) == 4 and magic[0] & 0xF0 == 0x50 and magic[1:] == b"\x2a\x4d\x18":
                self._skip(int.from_bytes(self._exactly(4), "little"))
            else:
                raise Trailing
            magic = self._file.read(4)

    def _frame(self) -> Iterator[bytes]:
        """Its header, its blocks, its checksum."""
        descriptor = self._exactly(1)
        single, sum_follows = descriptor[0] & 32, descriptor[0] & 4
        rest = (0 if single else 1) + (0, 1, 2, 4)[descriptor[0] & 3] + (1 if single else 0, 2, 4, 8)[descriptor[0] >> 6]
        yield _ZSTD_MAGIC + descriptor + self._exactly(rest)
        last = False
        while not last:
            head = self._exactly(3)
            field = int.from_bytes(head, "little")
            last, kind, size = bool(field & 1), field >> 1 & 3, field >> 3
            yield head + self._exactly(1 if kind == _RUN else size)
        if sum_follows:
            yield self._exactly(4)

    def _exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise EOFError("the compressed data ends in the middle")
        return data

    def _skip(self, size: int) -> None:
        while size:
            size -= len(self._exactly(min(size, _INPUT_BYTES)))
