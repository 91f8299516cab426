"""`manage.py toolchain list|add`: what modules can be compiled again with."""
from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import NoReturn

from django.conf import settings
from django.core.management.base import BaseCommand

from triage.engine.printable import one_line
from triage.replay.gpus import known_gpus, known_target
from triage.replay.toolchains import PLATFORMS, ToolchainError, add, installed, works

EXIT_FAILED = 2


class Command(BaseCommand):
    help = "List the toolchains that compile modules again, or add one: a jaxlib release for a platform."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True)
        commands.add_parser("list", help="what is there, and whether it works")
        adding = commands.add_parser("add", help="make a virtual environment with the wheels for a platform")
        adding.add_argument("platform", choices=PLATFORMS)
        adding.add_argument("version", nargs="?", help="of jaxlib, such as 0.6.2 (default: the one of this service)")

    def handle(self, *args: object, command: str, platform: str = "", version: str | None = None, **options: object) -> None:
        folder = Path(settings.TRIAGE_TOOLCHAINS)
        try:
            if command == "add":
                self.stdout.write(f"{add(folder, platform, version).name} is ready.")
            else:
                self._list(folder)
        except ToolchainError as error:
            _give_up(str(error))
        except OSError as error:
            _give_up(f"{error.filename or folder}: {error.strerror}.")
        except KeyboardInterrupt:
            _give_up("Interrupted.")

    def _list(self, folder: Path) -> None:
        gpus = known_gpus()
        for toolchain in installed(folder):
            problem = works(toolchain, known_target(gpus[0]))
            self.stdout.write(f"{toolchain.name:<14} {one_line(problem) or 'works'}")
        self.stdout.write(f"GPUs known for dumps that do not say theirs: {', '.join(gpus)}")


def _give_up(reason: str) -> NoReturn:
    print(one_line(reason), file=sys.stderr)
    sys.exit(EXIT_FAILED)
