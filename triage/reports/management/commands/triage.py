"""`manage.py triage PATH`: the analysis on the command line, without server, broker or database."""
from __future__ import annotations

import json
import os
import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import NoReturn

from django.core.management.base import BaseCommand

from triage.engine.analysis import Analysis, InputError
from triage.engine.archive import unpack
from triage.engine.ir import number
from triage.engine.printable import one_line
from triage.engine.report import analyse
from triage.engine.sentences import plural
from triage.replay.command import replay_all, table
from triage.reports.draft import draft
from triage.reports.excerpt import copy_lines
from triage.reports.markdown import plain, sentence

EXIT_NOTHING_ANALYSED = 2


class Command(BaseCommand):
    help = "Analyse an XLA dump: a directory, an archive of one, or a single HLO text."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", help="dump directory, .zip, .tar, .tar.gz, .tar.xz, .tar.zst, or one HLO text")
        parser.add_argument("--json", metavar="FILE", help="write the report, schema hlo-triage/1, to FILE or - (stdout)")
        parser.add_argument("--markdown", metavar="FILE", help="write the issue drafts to FILE or -, standard output")
        parser.add_argument("--min-bytes", type=_positive, metavar="N",
                            help="smallest copy that counts (default: 1 MiB or 1%% of the largest parameter, the smaller)")

        parser.add_argument("--replay", action="store_true",
                            help="compile each module that has copies again, with one thing changed at a time, and measure it")
        parser.add_argument("--toolchain", metavar="NAME",
                            help="of `manage.py toolchain list` (default: the one nearest to the dump's version)")
        parser.add_argument("--versions", action="store_true",
                            help="with --replay: compile them as they are with every toolchain, too")
        parser.add_argument("--gpu", metavar="NAME", help="the GPU to compile for where the dump does not say it")

    def handle(self, *, path: str, json: str | None, markdown: str | None, min_bytes: int | None, replay: bool,
               toolchain: str | None, versions: bool, gpu: str | None, **options: object) -> None:
        try:
            if not path:
                raise InputError("The path is empty: name a dump directory, an archive or an HLO text.")
            analysis, notes = _analyse(Path(path), min_bytes)
            analysis.report["notes"] += notes
            if replay or toolchain or versions:
                replay_all(analysis, toolchain, gpu, versions, _progress() or _silent)
            if json:
                _write(json, _report(analysis))
            if markdown:
                _write(markdown, _drafts(analysis))
            if "-" not in (json, markdown):
                _write("-", _verdicts(analysis) + "\n")
        except InputError as error:
            _give_up(str(error))
        except OSError as error:
            _give_up(f"{error.filename or path}: {error.strerror}.")
        except KeyboardInterrupt:
            _give_up("Interrupted.")


def _positive(text: str) -> int:
    value = number(text)
    if not value:
        raise ArgumentTypeError(f"{text[:40]!r} is no positive number of bytes")
    return value


def _analyse(path: Path, min_bytes: int | None) -> tuple[Analysis, list[str]]:
    """(analysis, notes on the archive). Raises InputError or OSError."""
    if not path.exists():
        raise InputError(f"{path} does not exist.")
    if not path.is_dir() and not path.is_file():
        raise InputError(f"{path} is neither a directory nor a file.")
    if path.is_dir():
        return analyse(path, min_bytes=min_bytes, progress=_progress()), []
    with tempfile.TemporaryDirectory(prefix="triage-") as folder:
        unpacked = unpack(path, Path(folder))
        return analyse(folder, min_bytes=min_bytes, progress=_progress()), unpacked.notes


def _progress():
    """One line on the terminal that is overwritten; nothing where nobody looks."""
    if not sys.stderr.isatty():
        return None

    def tell(phase: str, done: int, total: int) -> None:
        sys.stderr.write(f"\r\x1b[K{one_line(phase)} {done}/{total}" if done + 1 < total else "\r\x1b[K")
        sys.stderr.flush()
    return tell


def _silent(phase: str, done: int, total: int) -> None:
    """Progress for nobody."""


def _report(analysis: Analysis) -> str:
    return json.dumps(analysis.report, indent=1) + "\n"


def _drafts(analysis: Analysis) -> str:
    """The drafts of all modules that have copies, worst module first."""
    drafts = []
    for module, texts in zip(analysis.report["modules"], analysis.modules):
        found = draft(module, analysis.report["generator"], lambda stage, copy, texts=texts: copy_lines(
            texts.stages[stage], copy, lambda keys: {key: texts.texts[key] for key in keys}))
        drafts.append(found.text if found else f"# {plain(module['name'])}\n\n{sentence(module['verdict'])}\n")
    return "\n\n".join(drafts)


def _write(target: str, text: str) -> None:
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


def _verdicts(analysis: Analysis) -> str:
    lines = []
    for module in analysis.report["modules"]:
        target = module["target"] or module["platform"] or "unknown target"
        lines += [f"{module['name']} ({target}, {plural(len(module['stages']), 'stage')})", f"  {module['verdict']}"]
        lines += [f"  {line}" for line in table(module)]
        lines += [f"  note: {note}" for note in module["notes"]]
        lines += [f"  damaged: {file['file']}: {file['reason']}" for file in module["files"]["unparsed"]]
    # Names are the dump's: a terminal would obey what is in them.
    return "\n".join(one_line(line) for line in [*lines, *(f"note: {note}" for note in analysis.report["notes"])])


def _give_up(reason: str) -> NoReturn:
    print(one_line(reason), file=sys.stderr)
    sys.exit(EXIT_NOTHING_ANALYSED)
