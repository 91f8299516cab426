from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentParser
from typing import NoReturn

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from triage.serve import Options, ServeError, Service, join, web_command, worker_command

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Command(BaseCommand):
    help = "Start web server, worker and, without REDIS_URL, a Redis server; Ctrl-C stops all of it."
    requires_system_checks = []  # the parts make them

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--only", choices=["web", "worker", "replay"],
                            help="become this one part, for containers that run one part each")

    def handle(self, *args: object, only: str | None = None, **kwargs: object) -> None:
        options = Options(
            host=settings.HOST, port=settings.PORT, data=settings.DATA_DIR,
            web_processes=settings.TRIAGE_WEB_PROCESSES, web_threads=settings.TRIAGE_WEB_THREADS,
            worker_processes=settings.TRIAGE_WORKER_PROCESSES, replay_processes=settings.TRIAGE_REPLAY_PROCESSES,
            example=settings.TRIAGE_EXAMPLE)
        if only == "web":
            call_command("migrate", interactive=False, verbosity=1)
            _become(web_command(join(options.host, options.port), options))
        elif only == "worker":
            _become(worker_command("celery", options.worker_processes))
        elif only == "replay":
            _become(worker_command("replay", options.replay_processes))
        else:
            _run(Service(options, os.environ))


def _become(command: list[str]) -> NoReturn:
    if not settings.REDIS_URL:
        raise CommandError("REDIS_URL is not set; a part that runs alone needs the broker's address.")
    tmp = settings.DATA_DIR / "tmp"  # as under the supervisor: large uploads need the room of the data directory
    tmp.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(tmp)
    sys.stdout.flush()
    os.execv(command[0], command)


def _run(service: Service) -> None:
    for number in _STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # ignored: started under nohup
            signal.signal(number, _interrupt)
    try:
        service.start()
        service.say(f"\nHLO Triage is at {service.url} (Ctrl-C stops it)\n")
        service.watch()
    except KeyboardInterrupt:
        service.say("Stopping...")
    except ServeError as error:
        raise CommandError(str(error)) from None
    finally:
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        service.stop()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
