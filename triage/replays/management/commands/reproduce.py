"""`manage.py reproduce PATH`: a module of a dump cut down to a small program that shows one of its copies."""
from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand

from triage.engine.analysis import Analysis, InputError, ModuleTexts
from triage.engine.printable import one_line
from triage.replay.command import configured_limits
from triage.replay.reduce import NoReproducer, Reproducer, reproduce
from triage.replay.reduce.told import said
from triage.replay.source import NoReplay, source_of
from triage.replay.toolchains import choose, installed
from triage.reports.terminal import analyse_path, give_up, progress, write


class Command(BaseCommand):
    help = "Cut a module down to a small program that still shows one parameter copy, as recompiling it confirms."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", help="dump directory, or an archive of one")
        parser.add_argument("--module", metavar="NAME", help="module of the dump (default: the one with the largest copies)")
        parser.add_argument("--copy", metavar="ID", default="c1", help="copy of the report (default: %(default)s)")
        parser.add_argument("--toolchain", metavar="NAME",
                            help="of `manage.py toolchain list` (default: the one nearest to the dump's version)")
        parser.add_argument("--gpu", metavar="NAME", help="the GPU to compile for where the dump does not say it")
        parser.add_argument("--output", metavar="FILE", help="write the HLO to FILE (default: standard output)")

    def handle(self, *, path: str, module: str | None, copy: str, toolchain: str | None, gpu: str | None,
               output: str | None, **options: object) -> None:
        try:
            analysis, _ = analyse_path(path)
            found = _reproduced(*_module(analysis, module), copy, toolchain, gpu)
            write(output or "-", found.text)
            write("-", "\n".join([f"// {one_line(line)}" for line in said(found)]) + "\n")
        except (InputError, NoReplay, NoReproducer) as reason:
            give_up(str(reason))
        except OSError as error:
            give_up(f"{error.filename or path}: {error.strerror}.")
        except KeyboardInterrupt:
            give_up("Interrupted.")


def _module(analysis: Analysis, name: str | None) -> tuple[dict, ModuleTexts]:
    """The report and the texts of the module with this name, or of the worst one."""
    for module, texts in zip(analysis.report["modules"], analysis.modules):
        if name in (None, module["name"]):
            return module, texts
    names = ", ".join([module["name"] for module in analysis.report["modules"][:20]])
    raise InputError(f"There is no module {name}; there are {names}.")


def _reproduced(module: dict, texts: ModuleTexts, copy: str, name: str | None, gpu: str | None) -> Reproducer:
    if not module["copies"]:
        raise InputError(f"{module['name']} has no copies of parameters.")
    source = source_of(module, texts.text(0), texts.gpu_target, gpu)
    toolchains = [found for found in installed(Path(settings.TRIAGE_TOOLCHAINS)) if name in (None, found.name)]
    version = module["version"] or {"jaxlib_first": None, "jaxlib_last": None}
    chosen = choose(toolchains, source.platform, version["jaxlib_first"], version["jaxlib_last"])
    if chosen is None:
        raise InputError(f"There is no toolchain {name or ''} for {source.platform}; "
                         f"`manage.py toolchain add {source.platform}` makes one.".replace("  ", " "))
    return reproduce(module, copy, source, chosen, limits=configured_limits(), progress=progress())
