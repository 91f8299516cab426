"""What a measurement says next to the dump, and next to the baseline."""
from __future__ import annotations

from collections import Counter, defaultdict

from triage.engine.cost import human_bytes
from triage.engine.knowledge import pass_facts
from triage.engine.sentences import plural

REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not reproduced"
MAX_LISTED = 20
LEAST_SAVING = 0.01         # of the baseline's temp bytes, and of what it copies: what saves less does not help


def _print_of(copy: dict) -> tuple:
    """What makes two copies of different compiles the same."""
    return tuple(copy["parameters"]), copy["where"], copy["kind"], copy["bytes"]


def against_upload(row: dict, module: dict) -> dict:
    """For the baseline: `matches_upload` (REPRODUCED: the same copies and temp bytes; PARTLY: one of both; NOT) and
    `difference`, a sentence, "" where there is none."""
    if row["status"] != "ok":
        return {"matches_upload": NOT, "difference": f"it does not compile: {row['message']}"}
    ours, theirs = Counter(map(_print_of, row["copies"])), Counter(map(_print_of, module["copies"]))
    temp = module["memory"]["temp_bytes"]
    differences = []
    if ours != theirs:
        differences.append(f"{_amount(module['copies'])} in the dump, {_amount(row['copies'])} in the recompile")
    if temp is not None and row["temp_bytes"] is not None and temp != row["temp_bytes"]:
        differences.append(f"{temp:,} temp bytes in the dump, {row['temp_bytes']:,} in the recompile")
    # Temp bytes that differ say little where there is no copy to compare, and none at all are as many in any program.
    partly = (ours == theirs and bool(theirs)) or (bool(temp) and temp == row["temp_bytes"])
    matches = REPRODUCED if not differences else PARTLY if partly else NOT
    return {"matches_upload": matches, "difference": "; ".join(differences)}


def _amount(copies: list[dict]) -> str:
    return f"{plural(len(copies), 'copy')} of {human_bytes(sum(copy['bytes'] for copy in copies))}"


def against_baseline(row: dict, baseline: dict, module: dict) -> dict:
    """For a variant that compiled, ids of the report's copies: `gone`, which it does not make, and `moved`, which it makes
    in another place or way; `came`, copies that it makes besides (MAX_LISTED at most), and `came_count`, how many there
    are; `temp_change` (bytes, or None), `fired` (of a disabled pass: [runs, lines] in the baseline), and `doubt`."""
    if row["status"] != "ok" or baseline["status"] != "ok":
        return {"gone": [], "moved": [], "came": [], "came_count": 0, "temp_change": None, "fired": None, **doubt(row)}
    before, after = Counter(map(_print_of, baseline["copies"])), Counter(map(_print_of, row["copies"]))
    lost = _lost(module["copies"], before, after)
    came, left = [], after - before
    for copy in row["copies"]:
        if left[_print_of(copy)] > 0:
            left[_print_of(copy)] -= 1
            came.append(copy)
    moved = _moved(lost, came)
    both = row["temp_bytes"] is not None and baseline["temp_bytes"] is not None
    return {"gone": [copy["id"] for copy in lost if copy["id"] not in moved], "moved": [*moved], "came": came[:MAX_LISTED],
            "came_count": len(came), "temp_change": row["temp_bytes"] - baseline["temp_bytes"] if both else None,
            "fired": baseline.get("fired", {}).get(row["pass"]) if row["action"] == "disable_pass" else None, **doubt(row)}


def _lost(copies: list[dict], before: Counter, after: Counter) -> list[dict]:
    """Those of the report's copies that the baseline makes and the variant does not, in the report's order."""
    same = defaultdict(list)
    for copy in copies:
        same[_print_of(copy)].append(copy["id"])
    lost = {identity for found, ids in same.items()
            for identity in ids[after[found]:][:max(0, before[found] - after[found])]}
    return [copy for copy in copies if copy["id"] in lost]


def _moved(lost: list[dict], came: list[dict]) -> dict[str, None]:
    """Ids of lost copies that came back: each takes from `came` one of the same parameters that is no smaller."""
    found = {}
    for copy in lost:
        twin = next((position for position, other in enumerate(came) if other["parameters"] == copy["parameters"]
                     and other["bytes"] >= copy["bytes"]), None)
        if twin is not None:
            del came[twin]
            found[copy["id"]] = None
    return found


def helps(row: dict, baseline: dict) -> bool:
    """Whether a variant needs clearly less memory: temp bytes where both are known, bytes of copies otherwise."""
    if row["status"] != "ok" or baseline["status"] != "ok" or doubt(row)["must_run"]:
        return False
    known = row["temp_bytes"] is not None and baseline["temp_bytes"] is not None
    measure = "temp_bytes" if known else "copied_bytes"
    # A few kilobytes of small temp bytes are nothing beside the copies (those of a TPU may lie in other memory than temp).
    return baseline[measure] - row[measure] > LEAST_SAVING * max(baseline[measure], baseline["copied_bytes"])


def doubt(row: dict) -> dict:
    """Of a disabled pass: `must_run`, why the program is not the same or not sound without it, though it compiled; `unsure`,
    whether nothing is known of that. Both empty for everything else."""
    if row["action"] != "disable_pass":
        return {"must_run": "", "unsure": False}
    facts = pass_facts(row["pass"])
    return {"must_run": facts.why_not if facts is not None and facts.disable == "no" else "",
            "unsure": facts is None or facts.disable == "unknown"}


def headline(row: dict) -> str:
    """Of a baseline: "reproduced with jaxlib 0.10.2 for NVIDIA H100 80GB HBM3"; with the difference where there is one."""
    how = {REPRODUCED: "reproduced", PARTLY: "partly reproduced", NOT: "not reproduced"}[row["matches_upload"]]
    said = f"{how} with jaxlib {row['toolchain'].partition('-')[2]} for {row['device']}"
    if left_out := row.get("left_out"):
        said += f" without {', '.join(f'`--{name}`' for name in left_out)}, which that release does not know"
    return f"{said}: {row['difference']}" if row["difference"] else said
