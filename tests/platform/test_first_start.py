"""A first start hands in the example, and the worker triages it; a second one adds none."""
from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Callable

from tests.conftest import ROOT
from triage.serve import Service

SECONDS = 120
SHOW = """
import json
from triage.dumps.models import Dump
print(json.dumps([[dump.status, dump.error, [module.hoisted_bytes for module in dump.modules.all()]]
                  for dump in Dump.objects.filter(is_example=True)]))
"""


def manage(service: Service, *arguments: str) -> str:
    return subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, env=service.environ, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=SECONDS).stdout


def examples(service: Service) -> list:
    return json.loads(manage(service, "shell", "--no-imports", "-c", SHOW))


def test_the_first_start_triages_the_example_once(start_service: Callable[..., Service]) -> None:
    service = start_service(example=True)
    deadline = time.monotonic() + SECONDS
    while not (found := examples(service)) or found[0][0] in ("queued", "running"):
        assert time.monotonic() < deadline, (service.options.data / "service.log").read_text()
        time.sleep(0.5)
    [(status, error, hoisted)] = found
    assert (status, error) == ("done", "")
    assert max(hoisted) == 8 * 2**20, "eight weights of 512 x 8 x 64, in float32"
    assert manage(service, "example") == ""
    assert len(examples(service)) == 1
