"""An uploaded archive -> the useful files of a dump in a directory. Archives come from anybody and may be hostile.

What an archive is, is read from its content. Everything streams: memory stays flat whatever the archive claims, and
the limits are on what comes out of it. Ratios are no sign of an attack: a hundred nearly equal stages compress 1000
to 1. Paths that leave the directory, links and devices refuse the whole archive; damage costs the damaged part.
"""
from __future__ import annotations

import contextlib
import io
import stat
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import BinaryIO

from .analysis import InputError
from .cost import human_bytes
from .streams import BLOCK, HEAD_BYTES, Forward, decompressed, is_tar_header, sniff
from .unpacked import DROP, KEEP, Limits, Target, UnpackResult, is_useful, refuse, safe_parts, show, text_name
from .zips import Content, HonestNames

__all__ = ["DROP", "KEEP", "Limits", "UnpackResult", "is_useful", "not_an_archive", "sniff", "unpack"]

#: What zipfile raises on a damaged archive or one that asks for what it cannot do.
_ZIP_DAMAGE = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OverflowError, EOFError, OSError,
               struct.error)
RUBBISH = "What follows the end of the archive could not be read and was left out."
MAX_ZIP_DIRECTORY = 64 * 1024 * 1024            # bytes of a zip's table of contents, which is read at once


def unpack(path: str | Path, into: Path, limits: Limits | None = None, name: str = "") -> UnpackResult:
    """Unpacks the useful files of an archive, or the one HLO text it is, below `into`, an empty directory.

    `name` is what the user called the file. Raises InputError, one sentence, for what is no archive, holds nothing
    useful, breaks a limit or would write or point outside `into`; part of it may be unpacked by then.
    """
    target = Target(into, limits or Limits())
    with open(path, "rb") as file:
        kind = sniff(file.read(HEAD_BYTES))
        file.seek(0)
        if kind is None:
            raise InputError(not_an_archive(name or Path(path).name))
        if kind == "zip":
            _unzip(file, target)
        else:
            _unpack_stream(kind, file, target, name or Path(path).name)
    return target.finish()


def not_an_archive(name: str) -> str:
    return (f"{show(name)} is no archive and no HLO text: send the dump directory as .zip, .tar, .tar.gz, .tar.xz, "
            ".tar.bz2 or .tar.zst.")


# -- zip -----------------------------------------------------------------------------------------------------------


def _unzip(file: BinaryIO, target: Target) -> None:
    _check_directory_size(file)
    try:
        archive = zipfile.ZipFile(HonestNames(file))
    except _ZIP_DAMAGE as error:
        raise InputError("The zip archive is cut short or damaged: its table of contents, at the end, cannot be read. "
                         "Make it again, or send a .tar.gz, of which the readable part can be used.") from error
    with archive:
        for info in archive.infolist():
            _unzip_one(archive, info, target)


def _check_directory_size(file: BinaryIO) -> None:
    """zipfile holds the whole table of contents in memory; a hostile one is refused before."""
    file.seek(max(0, file.seek(0, io.SEEK_END) - 66_000))
    tail = file.read()
    file.seek(0)
    end, end64 = tail.rfind(b"PK\x05\x06"), tail.rfind(b"PK\x06\x06")
    size = int.from_bytes(tail[end + 12:end + 16], "little") if end >= 0 else 0
    if size == 0xFFFFFFFF:
        size = int.from_bytes(tail[end64 + 40:end64 + 48], "little")
    if size > MAX_ZIP_DIRECTORY:
        limit = human_bytes(MAX_ZIP_DIRECTORY)
        raise InputError(f"The zip archive's table of contents is larger than {limit}, the limit.")


def _unzip_one(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Target) -> None:
    target.count_member()
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        refuse("link", info.filename)
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        refuse("device", info.filename)
    if info.filename.endswith("/"):
        safe_parts(info.filename, target.limits.depth)
        return
    path = target.place(info.filename)
    if path is None:
        return
    if info.flag_bits & 1:
        raise InputError("The zip archive is encrypted: send it without a password.")
    try:
        content = Content(archive, info)
    except _ZIP_DAMAGE:
        target.note(f"{show(info.filename)} could not be unpacked: it is damaged or packed in an unknown way.")
        return
    with contextlib.closing(content):
        target.write(path, Forward(content))


# -- tar, compressed or not, and single texts ------------------------------------------------------------------------


def _unpack_stream(kind: str, file: BinaryIO, target: Target, name: str) -> None:
    limit = target.limits.stream_bytes
    too_large = f"The archive unpacks to more than {human_bytes(limit)}, the limit."
    stream = Forward(decompressed(kind, file), limit, too_large)
    head = stream.read(HEAD_BYTES)
    damage = stream.damage
    stream.push_back(head)
    content = sniff(head)
    if content == "tar":
        _untar(stream, target)
    elif content == "hlo":
        target.write(target.place(text_name(name, kind)), stream)
        if stream.rubbish:
            target.note(RUBBISH)
    elif damage:
        raise InputError(f"The file is damaged: nothing in it could be read ({damage}).")
    elif not head:
        raise InputError(f"{show(name)} is empty: it is packed with {kind}, and there is nothing in it.")
    else:
        raise InputError(f"{show(name)} is packed with {kind} but holds neither a tar archive nor an HLO text.")


def _untar(stream: Forward, target: Target) -> None:
    """All archives of the stream: `cat a.tar b.tar` is one upload."""
    files = -1
    while files != target.members:      # every round reads at least one member
        files = target.members
        _untar_one(stream, target)
        if not _find_next(stream, target):
            return


def _untar_one(stream: Forward, target: Target) -> None:
    try:
        archive = tarfile.TarFile(fileobj=stream, errors="surrogateescape", encoding="utf-8")
        while (member := archive.next()) is not None:
            archive.members.clear()     # tarfile remembers every member; a million of them is a lot of memory
            _untar_member(member, stream, target)
    except (tarfile.TarError, ValueError, EOFError, OverflowError, IndexError, RecursionError) as error:
        stream.damage = stream.damage or str(error) or type(error).__name__


def _untar_member(member: tarfile.TarInfo, stream: Forward, target: Target) -> None:
    target.count_member()
    if member.issym() or member.islnk():
        refuse("link", member.name)
    if member.isdev():
        refuse("device", member.name)
    if member.isdir():
        safe_parts(member.name, target.limits.depth)
        return
    path = target.place(member.name)
    if path is None:
        return
    if member.issparse() or not member.isreg():
        target.note(f"{show(member.name)} was left out: it is stored as a sparse file or in an unknown way.")
        return
    stream.seek(member.offset_data)
    target.write(path, stream, member.size)


def _find_next(stream: Forward, target: Target) -> bool:
    """After one archive: whether another follows. Notes an end that is no proper one."""
    cut = "The archive is cut short or damaged after {0} useful files; what came before was used."
    if stream.damage or len(stream.last) < BLOCK or any(stream.last):
        target.note(cut.format(target.result.files) + (f" ({stream.damage})" if stream.damage else ""))
        return False
    while (block := stream.read(BLOCK)) and not any(block):
        pass
    if block and is_tar_header(block):
        stream.push_back(block)
        return True
    if stream.damage:
        target.note(f"The archive is whole up to its end, which is damaged ({stream.damage}): its files were used, but "
                    "could not be checked.")
    elif block or stream.rubbish:
        target.note(RUBBISH)
    return False
