"""`python -m triage.jobs.child`: one archive -> the files of its stored analysis, in a process of its own.

A hostile dump may eat memory or time or crash an interpreter; then this process ends and the worker does not. It knows
neither settings nor database. The job comes as JSON on standard input; every line of output is one JSON message:
{"phase", "done", "total"}, {"files": n} after unpacking, {"first": modules} as soon as the last stages are read, and at
the end {"finished": true} or {"error": sentence}.
"""
from __future__ import annotations

import contextlib
import errno
import json
import resource
import sys
import tempfile
import traceback
from pathlib import Path

from triage.dumps import pack
from triage.engine.analysis import InputError
from triage.engine.archive import Limits, unpack
from triage.engine.cost import human_bytes
from triage.engine.report import analyse

MAX_FIRST = 20      # modules of which the first verdict is told


def main() -> None:
    job = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"], job["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):      # Linux: where memory runs out, this process goes first, not the worker
        Path("/proc/self/oom_score_adj").write_text("800")
    try:
        _analyse(job)
    except InputError as error:
        _tell(error=str(error))
    except MemoryError:
        _tell(error=f"The analysis needs more than {human_bytes(job['memory_bytes'])} of memory, the limit of this service.")
    except Exception as error:
        if not (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)):
            sys.exit(_where(error))
        _tell(error="The service has no room left to analyse this dump; tell its operator, then try again.")
    else:
        _tell(finished=True)


def _analyse(job: dict) -> None:
    """Unpacks `archive`, analyses it and writes the result's files to `result`, an empty directory."""
    _tell(phase="unpacking", done=0, total=1)
    with tempfile.TemporaryDirectory(prefix="unpacked-", dir=job["scratch"]) as folder:
        unpacked = unpack(job["archive"], Path(folder), Limits(files=job["files"], bytes=job["bytes"]), job["name"])
        _tell(files=unpacked.files)
        analysis = analyse(folder, progress=_tell_phase, first=_tell_first)
    analysis.report["notes"] += unpacked.notes
    _tell(phase="storing the result", done=0, total=1)
    pack.write_analysis(analysis, lambda name, content: Path(job["result"], name).write_bytes(content))


def _tell_phase(phase: str, done: int, total: int) -> None:
    _tell(phase=pack.storable(phase), done=done, total=total)


def _tell_first(modules: list[dict]) -> None:
    _tell(first=[{**module, "name": pack.storable(module["name"]), "verdict": pack.storable(module["verdict"])}
                 for module in modules[:MAX_FIRST]])


def _where(error: BaseException) -> str:
    """Kind and place of an error for the log. Its message may quote the dump and stays out."""
    places = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__} at " + ", ".join(places[-12:])


def _tell(**message: object) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
