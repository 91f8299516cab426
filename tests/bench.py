"""`make bench`: how long the engine takes for a dump, next to XLA's own parser merely parsing the same files.

Every measurement runs in a process of its own, one after another, and counts that process's CPU seconds. Machines differ
and are disturbed; what is worth comparing are the ratios of one run.
"""
from __future__ import annotations

import json
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from itertools import pairwise
from pathlib import Path

NAME = "h100-jaxlib0.10.2-attn_160_layers"
ROUNDS = 3              # of which the fastest one counts
SIZES = (25, 50, 125)   # stages
MB = 1e6


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] in MEASURES:
        started = time.process_time()
        facts = MEASURES[sys.argv[1]](Path(sys.argv[2]), started)
        print(json.dumps({**facts, "seconds": time.process_time() - started,
                          "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
        return
    with tempfile.TemporaryDirectory(prefix="triage-bench-") as scratch:
        folder = Path(sys.argv[1]) if len(sys.argv) == 2 else _unpacked(Path(scratch))
        _compare(folder, Path(scratch))


def _unpacked(scratch: Path) -> Path:
    archive = Path(__file__).resolve().parents[2] / "shared" / "dumps" / f"{NAME}.tar.xz"
    if not archive.exists():
        sys.exit(f"There is no {archive.name} beside the checkout: name a dump directory, make bench DUMP=DIR.")
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(scratch)
    return scratch / NAME


def _compare(folder: Path, scratch: Path) -> None:
    whole = [(_measure("engine", folder), _measure("xla", folder)) for _ in range(ROUNDS)]
    engine, xla = (min(runs, key=lambda run: run["seconds"]) for runs in zip(*whole))
    print(f"{folder.name}: {engine['stages']} stages, {engine['text'] / MB:.0f} MB, "
          f"{engine['distinct'] / MB:.0f} MB of it distinct")
    print(f"  whole analysis        {engine['seconds']:6.1f} s, peak memory {engine['peak'] / 1e9:.2f} GB")
    print(f"  first verdict after   {engine['first']:6.1f} s")
    print(f"  XLA parses the texts  {xla['seconds']:6.1f} s  ({xla['files']} files)")
    print(f"  ratio                 {xla['seconds'] / engine['seconds']:6.1f}   (XLA's time over ours)")
    print("stages   text MB   distinct MB   seconds   seconds per distinct 100 MB")
    for count in SIZES:
        part = _measure("engine", _beginning(folder, scratch / f"{count}-stages", count))
        print(f"{part['stages']:6} {part['text'] / MB:9.0f} {part['distinct'] / MB:13.0f} {part['seconds']:9.1f} "
              f"{part['seconds'] / part['distinct'] * 100 * MB:12.1f}")


def _measure(what: str, folder: Path) -> dict:
    done = subprocess.run([sys.executable, "-m", "tests.bench", what, str(folder)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def _beginning(folder: Path, target: Path, count: int) -> Path:
    """A dump of the first `count` stages and the last one's memory reports."""
    from triage.engine.files import find_modules

    target.mkdir()
    for files in find_modules(folder):
        for path in [stage.path for stage in files.stages[:count]] + list(files.others.values()):
            (target / path.name).symlink_to(path.resolve())
    return target


def measure_engine(folder: Path, started: float) -> dict:
    """Read, parse, flow, copies, history, and for every stage the texts that its diff would read."""
    from triage.engine.diff import changed_keys
    from triage.engine.report import analyse

    first: list[float] = []
    analysis = analyse(folder, first=lambda modules: first.append(time.process_time() - started))
    diffs = [changed_keys(left.chunks, right.chunks) for module in analysis.modules for left, right in pairwise(module.stages)]
    texts = [module.texts for module in analysis.modules]
    return {"first": first[0], "stages": len(diffs) + len(analysis.modules),
            "text": sum(len(module.texts[c.key]) for module in analysis.modules for s in module.stages for c in s.chunks),
            "distinct": sum(len(text) for distinct in texts for text in distinct.values())}


def measure_xla(folder: Path, started: float) -> dict:
    """XLA's parser on every stage file, one after another."""
    from jaxlib import _hlo

    from triage.engine.files import find_modules

    files = [stage.path for module in find_modules(folder) for stage in module.stages]
    for path in files:
        _hlo.hlo_module_from_text(path.read_text())
    return {"files": len(files)}


MEASURES = {"engine": measure_engine, "xla": measure_xla}

if __name__ == "__main__":
    main()
