"""Reading compressed files forward, in bounded memory, up to where they are damaged."""
from __future__ import annotations

import bz2
import lzma
import re
import zlib
from typing import BinaryIO

from .analysis import InputError
from .decoders import Gzip, Source, Trailing, Xz, Zstd

HEAD_BYTES = 65536                          # enough to tell what a file is
BLOCK = 512                                 # of a tar archive
MAX_READ = 1024 * 1024                      # of one read; tar headers that ask for more are an attack
_MAGIC = ((b"PK\x03\x04", "zip"), (b"PK\x05\x06", "zip"), (b"\x1f\x8b", "gzip"), (b"\xfd7zXZ\x00", "xz"),
          (b"BZh", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd"))
_HLO = re.compile(rb"^(HloModule\s|ENTRY\s)", re.M)
#: What decompressors raise on damaged input.
_DAMAGE = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError)


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
    """A source read from front to end, counting. Where it is damaged it ends, and `damage` says so, once reading has come
    that far: what was read ahead and put back is whole. Rubbish behind the content is no damage, but `rubbish`.

    `tell` and `seek` are what tarfile needs; seeking back is refused. `limit` bounds the bytes that come out of it
    (InputError with `limit_message`).
    """

    def __init__(self, source: Source, limit: int | None = None, limit_message: str = "") -> None:
        self._source, self._limit, self._limit_message = source, limit, limit_message
        self._pushed = b""
        self._position = 0
        self._failure = ""          # where the source ends
        self.damage = ""
        self.rubbish = False
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
        if not self._failure and not self.rubbish:
            try:
                return self._source.read1(size)
            except Trailing:
                self.rubbish = True
            except _DAMAGE as error:
                self._failure = str(error) or type(error).__name__
        self.damage = self.damage or self._failure
        return b""

    def push_back(self, data: bytes) -> None:
        """Puts back what was just read."""
        if data:
            self.damage = ""
        self._pushed = data + self._pushed
        self._position -= len(data)

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        if position < self._position:
            raise ValueError("seeks back")
        while self._position < position and self.read(min(MAX_READ, position - self._position)):
            pass


def decompressed(kind: str, file: BinaryIO) -> Source:
    """The content of a file of this kind. Raises InputError where the package for it is missing."""
    if kind == "gzip":
        return Gzip(file)
    if kind == "bzip2":
        return bz2.BZ2File(file)
    if kind == "xz":
        return Xz(file)
    if kind == "zstd":
        return Zstd(file)
    return file
