"""One compile in a process of its own, with limits. Whatever happens to it is an answer, never an exception here."""
from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from triage.tether import die_with_parent

COMPILER = Path(__file__).with_name("compiler")
POLL_SECONDS = 0.1
SIZE_SECONDS = 1.0      # how often the size of the dump is looked at
#: What a process that ended by a signal says, where XLA itself says nothing.
_SIGNALS = {signal.SIGABRT: "XLA aborted", signal.SIGSEGV: "XLA crashed (segmentation fault)", signal.SIGFPE: "XLA crashed",
            signal.SIGILL: "XLA crashed (illegal instruction)", signal.SIGBUS: "XLA crashed (bus error)",
            signal.SIGKILL: "it was killed, most likely because the machine ran out of memory"}
_FIGURES = ("seconds", "temp_bytes", "argument_bytes", "output_bytes", "flops", "bytes_accessed")
SAID_BYTES = 65536      # of what a compile printed: the end is looked at for the reason of an abort


@dataclass(frozen=True)
class Limits:
    """Of one compile."""
    memory_bytes: int = 16 * 1024**3        # address space
    seconds: int = 300                      # on the clock; the processor may be used for as long on each of its cores
    dump_bytes: int = 2 * 1024**3


DEFAULT_LIMITS = Limits()


def run_compiler(python: Path, job: dict, scratch: Path, limits: Limits,
                 cancelled: Callable[[], bool] = lambda: False) -> dict:
    """What the program `compiler` says of a job, run by a toolchain's Python in the empty directory `scratch`.

    `status`: "ok", "error" (XLA refuses), "crash", "timeout", "memory", "size" (of its dump) or "cancelled"; all but the
    first with `message`, one sentence. The dump is in `scratch / "dump"`.
    """
    result, dump = scratch / "result.json", scratch / "dump"
    dump.mkdir()
    with (scratch / "said").open("w+b") as said:
        try:
            child = subprocess.Popen([str(python), "-I", str(COMPILER)], stdin=subprocess.PIPE, stdout=said,
                                     stderr=said, cwd=scratch, env=_environment(scratch), start_new_session=True,
                                     preexec_fn=_limiter(limits))
        except OSError as error:
            return _failure("crash", f"the toolchain's Python cannot be started: {error.strerror}")
        try:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(json.dumps({**job, "dump": str(dump), "result": str(result)}).encode())
                child.stdin.close()
            stopped = _watch(child, dump, limits, cancelled) or _too_large(dump, limits)
        finally:
            _end(child)
    if stopped is not None:
        return stopped
    said = _read(result)
    return said if said is not None else _died(child.returncode, scratch / "said", limits)


def _read(path: Path) -> dict | None:
    """The compiler's own word; None where it left none that can be understood."""
    try:
        result = json.loads(path.read_text("utf-8"))
        if result["status"] == "ok":
            return {"status": "ok", "left_out": [str(name) for name in result["left_out"]],
                    **{name: result[name] for name in _FIGURES}}
        message = str(result["message"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if "out of memory" in message.lower():
        return _failure("memory", "the compile ran out of memory")
    return _failure("error", message)


def _watch(child: subprocess.Popen, dump: Path, limits: Limits, cancelled: Callable[[], bool]) -> dict | None:
    """Waits for the child; the outcome where it had to be stopped."""
    started = measured = time.monotonic()
    while child.poll() is None:
        now = time.monotonic()
        if now - started > limits.seconds:
            return _failure("timeout", f"the compile took longer than {limits.seconds} seconds")
        if cancelled():
            return _failure("cancelled", "cancelled")
        if now - measured > SIZE_SECONDS:
            measured = now
            if too_large := _too_large(dump, limits):
                return too_large
        time.sleep(POLL_SECONDS)
    return None


def _too_large(dump: Path, limits: Limits) -> dict | None:
    """The outcome where the dump reached its limit: XLA goes on without what it could not write."""
    if _size(dump) < limits.dump_bytes:
        return None
    return _failure("size", f"the compile's own dump grew beyond {limits.dump_bytes / 1024**2:.3g} MiB")


def _died(code: int, said: Path, limits: Limits) -> dict:
    with said.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - SAID_BYTES))
        text = file.read().decode("utf-8", "replace")
    if "bad_alloc" in text or "MemoryError" in text or "Cannot allocate memory" in text:
        return _failure("memory", f"the compile needs more than {limits.memory_bytes // 1024**2} MiB of memory")
    # `F0000 ... file.cc:12] Check failed: ...` is how a CHECK failure ends.
    fatal = [line.split("] ", 1)[-1] for line in text.splitlines() if line.startswith("F") and "] " in line]
    how = _SIGNALS.get(-code, f"the compiler ended with exit code {code}") if code else "the compiler said nothing"
    return _failure("crash", f"{how}: {fatal[0]}" if fatal else how)


def _failure(status: str, message: str) -> dict:
    return {"status": status, "message": message}


def _limiter(limits: Limits) -> Callable[[], None]:
    cores, parent = os.cpu_count() or 1, os.getpid()

    def limit() -> None:
        die_with_parent(parent)
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, ((limits.seconds + 1) * cores, (limits.seconds + 1) * cores))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.dump_bytes, limits.dump_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return limit


def _environment(scratch: Path) -> dict[str, str]:
    """Nothing of the service's: no address, no password, and nothing that would change the result: no flag, no other ptxas.

    libtpu takes a lock of the whole machine unless it is told that several may be loaded; no TPU is driven here.
    """
    return {"PATH": "/usr/bin:/bin", "HOME": str(scratch), "TMPDIR": str(scratch), "LANG": "C.UTF-8",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}


def _end(child: subprocess.Popen) -> None:
    """Kills what is left of the child and of its children (ptxas), which are in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.wait()


def _size(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                total += entry.stat().st_size
    return total
