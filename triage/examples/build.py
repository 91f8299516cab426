"""The example of a fresh installation: a small program compiled here, dumped, and handed in like any other dump."""
from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from triage.dumps.intake import receive
from triage.dumps.models import Dump
from triage.tether import tethered

_PROGRAM = Path(__file__).with_name("decode.py")
_NAME = "example-decode"
_COMPILE_SECONDS = 300


class ExampleError(Exception):
    """The example could not be made; `str()` says why, with the compiler's last words."""


def make_example() -> Dump | None:
    """Compile, pack and hand in the example. None when there is one already. Raises ExampleError."""
    if Dump.objects.filter(is_example=True).exists():
        return None
    with tempfile.TemporaryDirectory(prefix="example-") as folder:
        archive = Path(folder, f"{_NAME}.tar.gz")
        dump = Path(folder, _NAME)
        compile_example(dump)
        with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
            tar.add(dump, arcname=_NAME)
        with archive.open("rb") as stream:
            return receive(stream, archive.name, is_example=True)


def compile_example(dump: Path) -> None:
    """Have XLA dump the program's compilation into the directory. Raises ExampleError."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    environment = {
        **ours,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # what comes out of a cache is not compiled, and so not dumped
        "XLA_FLAGS": f"--xla_dump_to={dump} --xla_dump_hlo_pass_re=.*",
    }
    try:
        done = subprocess.run(tethered([sys.executable, str(_PROGRAM)]), env=environment, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=_COMPILE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ExampleError(f"compiling it took longer than {_COMPILE_SECONDS} seconds") from None
    if done.returncode or not dump.is_dir():
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ExampleError(f"compiling it failed ({done.returncode}): {reason}")
