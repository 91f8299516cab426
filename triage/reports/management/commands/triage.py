"""`manage.py triage PATH`: the analysis on the command line, without server, broker or database."""
from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError

from django.core.management.base import BaseCommand

from triage.engine.analysis import Analysis, InputError, ModuleTexts
from triage.engine.ir import number
from triage.engine.printable import one_line
from triage.engine.sentences import plural
from triage.replay.command import replay_all, table
from triage.reports.draft import Subject, draft
from triage.reports.excerpt import Line, copy_lines
from triage.reports.markdown import plain, sentence
from triage.reports.terminal import analyse_path, give_up, progress, write


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
            analysis, notes = analyse_path(path, min_bytes)
            analysis.report["notes"] += notes
            if replay or toolchain or versions:
                replay_all(analysis, toolchain, gpu, versions, progress())
            if json:
                write(json, _report(analysis))
            if markdown:
                write(markdown, _drafts(analysis))
            if "-" not in (json, markdown):
                write("-", _verdicts(analysis) + "\n")
        except InputError as error:
            give_up(str(error))
        except OSError as error:
            give_up(f"{error.filename or path}: {error.strerror}.")
        except KeyboardInterrupt:
            give_up("Interrupted.")


def _positive(text: str) -> int:
    value = number(text)
    if not value:
        raise ArgumentTypeError(f"{text[:40]!r} is no positive number of bytes")
    return value


def _report(analysis: Analysis) -> str:
    return json.dumps(analysis.report, indent=1) + "\n"


def _drafts(analysis: Analysis) -> str:
    """The drafts of all patterns of all modules, worst module first."""
    found = []
    for module, texts in zip(analysis.report["modules"], analysis.modules):
        def excerpt(stage: int, copy: str, texts: ModuleTexts = texts) -> list[Line]:
            return copy_lines(texts.stages[stage], copy, lambda keys: {key: texts.texts[key] for key in keys})
        generator = analysis.report["generator"]
        found += [draft(Subject(module, number, excerpt, generator)).text for number in range(len(module["patterns"]))] or [
            f"# {plain(module['name'])}\n\n{sentence(module['verdict'])}\n"]
    return "\n\n".join(found)


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
