"""`python -m triage.replays.child`: one trial in a process of its own, without settings or database.

The job comes as JSON on standard input; `row.json` and, where `keep` is set, the files of the analysis of the recompile's
dump are written to the directory `result`. The compile itself is a further process, see replay.process.
"""
from __future__ import annotations

import json
import resource
import sys
import tempfile
from pathlib import Path

from triage.dumps import pack
from triage.replay.measure import measure
from triage.replay.process import Limits
from triage.replay.reduce import NoReproducer, reproduce
from triage.replay.source import NoReplay, Source
from triage.replay.toolchains import Toolchain
from triage.replay.variants import Variant

REPRODUCE = "reproduce"     # the action of a trial that cuts the module down instead of measuring a variant


def main() -> None:
    job = json.load(sys.stdin)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)       # the compile sets its own
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"], hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    toolchain = Toolchain(**{**job["toolchain"], "python": Path(job["toolchain"]["python"])})
    if job["variant"]["action"] == REPRODUCE:
        _write_row(job, _reproduced(job, toolchain))
        return
    with tempfile.TemporaryDirectory(prefix="replay-", dir=job["scratch"]) as folder:
        found = measure(Source(**job["source"]), Variant(**job["variant"]), toolchain, Path(folder), job["min_bytes"],
                        Limits(**job["limits"]), every_pass=job["keep"])
    if job["keep"] and found.analysis is not None:
        pack.write_analysis(found.analysis, lambda name, content: Path(job["result"], name).write_bytes(content))
    _write_row(job, found.row)


def _reproduced(job: dict, toolchain: Toolchain) -> dict:
    """The row of a reduction: status, message, toolchain, and `reproducer` where there is one."""
    row = {"variant": job["variant"]["key"], "action": REPRODUCE, "toolchain": toolchain.name}
    tempfile.tempdir = job["scratch"]
    try:
        found = reproduce(job["module"], job["copy"], Source(**job["source"]), toolchain, limits=Limits(**job["limits"]))
    except (NoReproducer, NoReplay) as reason:
        return {**row, "status": "error", "message": str(reason)}
    return {**row, "status": "ok", "message": "", "reproducer": found.as_dict()}


def _write_row(job: dict, row: dict) -> None:
    Path(job["result"]).with_name("row.json").write_text(pack.storable(json.dumps(row)), "utf-8")


if __name__ == "__main__":
    main()
