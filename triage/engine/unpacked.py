"""The directory an archive is unpacked into: which files are useful, which paths are refused, what the limits are."""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NoReturn

from .analysis import InputError
from .cost import human_bytes
from .streams import Forward

#: Which files of a dump are worth reading, by base name: one of KEEP matches and none of DROP. The same expressions
#: run in the browser, so they keep to what Python and JavaScript share.
KEEP = (r"\.(txt|hlo|debug_options|flagfile|metadata\.textproto)$", r"^flagfile$",
        r"\.(config|gpu_target_config|autotune_results)\.pbtxt$")
DROP = (r"\.thunk_(sequence|metadata)", r"\.mlir-trace\.txt$", r"\.ttir\.txt$", r"priority_fusion_dump\.txt$",
        r"\.schedule\.txt$", r"^autotuner_\d+\.",
        r"hlo_(unoptimized_)?snapshot",         # the model's input data: nobody's business
        r"^\._")                                # what macOS adds to archives
_KEEP, _DROP = re.compile("|".join(KEEP)), re.compile("|".join(DROP))

PACKED = {"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz", "zstd": ".zst"}       # endings by kind
MAX_NAME = 255                                  # bytes of one part of a path, as file systems have it
MAX_NOTES = 20
_COPY_BYTES = 256 * 1024


@dataclass(frozen=True)
class Limits:
    """What one archive may hold. Sizes in bytes, unpacked."""
    files: int = 100_000                        # useful ones
    bytes: int = 8 * 1024 ** 3                  # of useful files
    members: int = 1_000_000                    # files and folders of any kind
    stream_bytes: int = 64 * 1024 ** 3          # of all files of a tar: even a skipped one must be read past
    depth: int = 16                             # folders inside folders


@dataclass
class UnpackResult:
    files: int = 0
    bytes: int = 0
    skipped: int = 0                            # files that are of no use
    notes: list[str] = field(default_factory=list)      # sentences for the user: what was damaged or left out


def is_useful(name: str) -> bool:
    """Whether a file of a dump is worth reading, by its name or path."""
    base = name.replace("\\", "/").rsplit("/", 1)[-1]
    return bool(_KEEP.search(base)) and not _DROP.search(base)


def text_name(name: str, kind: str) -> str:
    """What to call the one text that somebody uploaded as `name`, packed with `kind`: any name will do for that."""
    base = _printable(name.replace("\\", "/").rsplit("/", 1)[-1]).removesuffix(PACKED.get(kind, ""))
    if len(base.encode()) > MAX_NAME - len(".txt"):
        base = base.encode()[:MAX_NAME // 2].decode("utf-8", "ignore")
    return next(candidate for candidate in (base, f"{base or 'module'}.txt", "module.txt") if is_useful(candidate))


class Target:
    """The directory unpacked into: checks names, counts, writes."""

    def __init__(self, into: Path, limits: Limits) -> None:
        self._into, self.limits, self.result = into, limits, UnpackResult()
        self.members = 0
        self._notes_left_out = 0
        self._written: set[Path] = set()
        self._skipped_names: list[str] = []

    def place(self, name: str) -> Path | None:
        """Where the archive's file `name` goes; None where it is to be skipped. Raises InputError for a bad path."""
        parts = safe_parts(name, self.limits.depth)
        if not parts or not is_useful(parts[-1]):
            self.result.skipped += 1
            self._skipped_names = [*self._skipped_names, name][-50:]
            return None
        if any(len(part.encode()) > MAX_NAME for part in parts):
            return self.note(f"{show(name)} was left out: its name is longer than {MAX_NAME} bytes.")
        return self._into.joinpath(*parts)

    def count_member(self) -> None:
        self.members += 1
        if self.members > self.limits.members:
            raise InputError(f"The archive holds more than {self.limits.members:,} files and folders, the limit.")

    def write(self, path: Path, stream: Forward, size: int | None = None) -> None:
        """Copies `size` bytes, or all, of the stream. The later of two files of one name counts, as tar has it."""
        file = self._open(path)
        if file is None:
            return
        start = stream.tell()
        with file:
            while data := stream.read(_COPY_BYTES if size is None else min(_COPY_BYTES, size - stream.tell() + start)):
                self.result.bytes += len(data)
                if self.result.bytes > self.limits.bytes:
                    raise InputError(f"The archive unpacks to more than {human_bytes(self.limits.bytes)}, the limit.")
                file.write(data)
        if stream.damage or size not in (None, stream.tell() - start):
            self.note(f"{show(path.name)} is cut short or damaged; its readable part was used.")

    def _open(self, path: Path) -> BinaryIO | None:
        again = path in self._written
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(path, "wb" if again else "xb")
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            # a file and a folder of one name, or names that this file system holds for equal (case, Unicode form)
            return self.note(f"{show(path.name)} was left out: the archive holds something else of that name.")
        if again:
            self.note(f"{show(path.name)} is in the archive twice; the later one was used.")
        else:
            self._written.add(path)
            self.result.files += 1
        if self.result.files > self.limits.files:
            file.close()
            raise InputError(f"The archive holds more than {self.limits.files:,} HLO files, the limit.")
        return file

    def note(self, sentence: str) -> None:
        if len(self.result.notes) < MAX_NOTES:
            self.result.notes.append(sentence)
        else:
            self._notes_left_out += 1

    def finish(self) -> UnpackResult:
        """The result. Raises InputError where nothing useful was found, saying what was there instead."""
        if self._notes_left_out:
            self.result.notes.append(f"{self._notes_left_out} more such notes about the archive were left out.")
        if not self.result.files:
            raise InputError(self._nothing())
        return self.result

    def _nothing(self) -> str:
        if self.result.notes:
            return f"Nothing in the archive could be read. {self.result.notes[0]}"
        if not self.result.skipped:
            return "The archive is empty: it holds no file."
        names = self._skipped_names
        if any(".hlo.pb" in name for name in names):
            return ("The archive holds HLO as .hlo.pb only: dump again without --xla_dump_hlo_as_proto or with "
                    "--xla_dump_hlo_as_text as well.")
        if any(re.search(r"\.(zip|tar|tgz|gz|xz|zst|bz2)$", name) for name in names):
            return f"The archive holds another archive, {show(names[-1])}, and no HLO text: send that one itself."
        return (f"None of the {self.result.skipped:,} files in the archive is an HLO text: is it the directory given "
                "to --xla_dump_to?")


def safe_parts(name: str, depth: int) -> list[str]:
    """The parts of a path inside the archive, printable. Raises InputError where it leads out of the directory."""
    path = name.replace("\\", "/")
    if path.startswith("/") or re.match(r"[A-Za-z]:/", path):
        raise InputError(f"The archive holds the absolute path {show(name)}: pack with `tar cz -C DIR .` instead.")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InputError(f"The archive holds the path {show(name)}, which leads out of its directory.")
    if len(parts) > depth + 1:
        raise InputError(f"The archive holds folders more than {depth} deep, the limit.")
    return [_printable(part) for part in parts]


def _printable(text: str) -> str:
    """Control characters, text direction marks and bytes that are no UTF-8 become `_`."""
    return "".join(c if c.isprintable() else "_" for c in text)


def show(name: str) -> str:
    """A hostile name for a sentence."""
    name = _printable(name)
    return f"`{name}`" if len(name) <= 120 else f"`{name[:60]}…{name[-50:]}`"


def refuse(what: str, name: str) -> NoReturn:
    raise InputError(f"The archive holds a {what}, {show(name)}: pack plain files only (tar -h follows links).")
