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
from triage.replay.source import Source
from triage.replay.toolchains import Toolchain
from triage.replay.variants import Variant


def main() -> None:
    job = json.load(sys.stdin)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)       # the compile sets its own
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"], hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    toolchain = Toolchain(**{**job["toolchain"], "python": Path(job["toolchain"]["python"])})
    with tempfile.TemporaryDirectory(prefix="replay-", dir=job["scratch"]) as folder:
        found = measure(Source(**job["source"]), Variant(**job["variant"]), toolchain, Path(folder), job["min_bytes"],
                        Limits(**job["limits"]), every_pass=job["keep"])
    result = Path(job["result"])
    if job["keep"] and found.analysis is not None:
        pack.write_analysis(found.analysis, lambda name, content: (result / name).write_bytes(content))
    (result.parent / "row.json").write_text(pack.storable(json.dumps(found.row)), "utf-8")


if __name__ == "__main__":
    main()
