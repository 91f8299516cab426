"""What the commands that read a dump share: reading it, telling how far they are, writing, giving up."""
from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from triage.engine.analysis import Analysis, InputError, Progress
from triage.engine.archive import unpack
from triage.engine.printable import one_line
from triage.engine.report import analyse

EXIT_NOTHING_ANALYSED = 2


def analyse_path(path: str, min_bytes: int | None = None) -> tuple[Analysis, list[str]]:
    """(analysis, notes on the archive) of a directory, an archive or an HLO text. Raises InputError or OSError."""
    if not path:
        raise InputError("The path is empty: name a dump directory, an archive or an HLO text.")
    found = Path(path)
    if not found.exists():
        raise InputError(f"{found} does not exist.")
    if not found.is_dir() and not found.is_file():
        raise InputError(f"{found} is neither a directory nor a file.")
    if found.is_dir():
        return analyse(found, min_bytes=min_bytes, progress=progress()), []
    with tempfile.TemporaryDirectory(prefix="triage-") as folder:
        unpacked = unpack(found, Path(folder))
        return analyse(folder, min_bytes=min_bytes, progress=progress()), unpacked.notes


def progress() -> Progress:
    """One line on the terminal that is overwritten; nothing where nobody looks."""
    def tell(phase: str, done: int, total: int) -> None:
        sys.stderr.write(f"\r\x1b[K{one_line(phase)} {done}/{total}" if done + 1 < total else "\r\x1b[K")
        sys.stderr.flush()

    def silent(phase: str, done: int, total: int) -> None:
        """For nobody."""
    return tell if sys.stderr.isatty() else silent


def write(target: str, text: str) -> None:
    """To a file, or to standard output for "-". Raises InputError where that cannot be written."""
    try:
        if target != "-":
            Path(target).write_text(text, "utf-8", "backslashreplace")
            return
        if sys.stdout is None:      # started with it closed
            raise InputError("Standard output is closed.")
        encoding = sys.stdout.encoding or "utf-8"       # of a terminal in the C locale: ASCII
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        if target == "-":       # what is left in its buffer cannot be written at exit either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise InputError(f"{'Standard output' if target == '-' else target} cannot be written: {error.strerror}.") from error


def give_up(reason: str) -> NoReturn:
    print(one_line(reason), file=sys.stderr)
    sys.exit(EXIT_NOTHING_ANALYSED)
