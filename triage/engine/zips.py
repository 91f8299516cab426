"""What zipfile gives up on, made to cost one file at most."""
from __future__ import annotations

import io
import zipfile
import zlib
from typing import BinaryIO

_ENTRY, _ENTRY_BYTES = b"PK\x01\x02", 46     # of the table of contents
_HEADER, _HEADER_BYTES = b"PK\x03\x04", 30   # before each file
_UTF8_FLAG = 0x08                           # of the second byte of the flags of either


class HonestNames:
    """A zip file that calls no name UTF-8 which is none: for one such name zipfile would refuse the whole archive.

    The name is read as code page 437 then, as names without the flag are. zipfile reads the table of contents at once,
    and of a file's header the part before the name.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        if data.startswith(_ENTRY):
            return _honest_table(data)
        return self._honest_header(data) if size == _HEADER_BYTES and data.startswith(_HEADER) else data

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def _honest_header(self, data: bytes) -> bytes:
        place = self._file.tell()
        name = self._file.read(int.from_bytes(data[26:28], "little"))
        self._file.seek(place)
        return data if _is_utf8(name) else data[:7] + bytes([data[7] & ~_UTF8_FLAG]) + data[8:]


def _honest_table(table: bytes) -> bytes:
    result, place = bytearray(table), 0
    while table.startswith(_ENTRY, place) and place + _ENTRY_BYTES <= len(table):
        name, extra, comment = (int.from_bytes(table[place + at:place + at + 2], "little") for at in (28, 30, 32))
        if not _is_utf8(table[place + _ENTRY_BYTES:place + _ENTRY_BYTES + name]):
            result[place + 9] &= ~_UTF8_FLAG
        place += _ENTRY_BYTES + name + extra + comment
    return bytes(result)


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


class Content:
    """One file of an archive. Its checksum is looked at here, at its end: zipfile keeps back what it read before it.

    Raises what zipfile raises for a file that cannot be read at all.
    """

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
        self._expected = info.CRC, info.file_size
        del info.CRC        # then zipfile does not check
        self._content: io.BufferedIOBase = archive.open(info)
        self._found = 0, 0

    def read1(self, size: int) -> bytes:
        try:
            data = self._content.read1(size)
        except zipfile.BadZipFile as error:
            raise ValueError(str(error)) from None
        if not data and size and self._found != self._expected:
            raise ValueError("the checksum is wrong")
        self._found = zlib.crc32(data, self._found[0]), self._found[1] + len(data)
        return data

    def close(self) -> None:
        self._content.close()
