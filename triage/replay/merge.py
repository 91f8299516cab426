"""What replays add to the module of a report: `replays`, measured `remedies`, and a history where the dump has none."""
from __future__ import annotations

from collections import Counter

from triage.engine import sentences
from triage.engine.cost import human_bytes
from triage.engine.history import CONFIRMED, REFUTED
from triage.engine.module import NO_PASSES
from triage.engine.remedies import cannot_disable, remedies
from triage.engine.sentences import plural

from .compare import NOT, doubt, headline, helps
from .recipes import recipe

#: `history` of a module, and of a copy, whose passes its recompile has shown.
REPLAYED = "replayed"
#: Of a measurement, what the report's `replays` do not repeat for every variant.
_INNER = ("copies", "layouts")
#: What a copy of the dump takes over from the same one of the recompile.
_HISTORY = ("introduced_by", "between", "trigger", "reason", "origin", "free_until", "stage", "previous_stage")


def put_replays(module: dict, rows: list[dict]) -> None:
    """`rows`: the baseline and its variants, as measured and compared."""
    baseline = rows[0]
    _judge_triggers(module, rows)
    module["replays"] = [{key: value for key, value in row.items() if key not in _INNER} for row in rows]
    module["replay_says"] = _summary(module, rows)
    tried = {_identity(row): row for row in rows[1:]}
    known = {_identity(remedy): remedy for remedy in module["remedies"]}
    found = []
    for identity, row in tried.items():
        remedy = known.pop(identity, None) or _remedy(row, module)
        found.append({**remedy, **_measured(row, baseline, module)})
    found.sort(key=lambda remedy: (not remedy["helps"], remedy["temp_bytes"] is None, remedy["temp_bytes"] or 0,
                                   remedy["copied_bytes"] or 0))
    module["remedies"] = found + list(known.values())


def _judge_triggers(module: dict, rows: list[dict]) -> None:
    """A suspected trigger that was disabled is one, or is none: the copy is gone, or still there."""
    baseline = rows[0]
    if baseline["status"] != "ok" or baseline["matches_upload"] == NOT:
        return
    disabled = {row["pass"]: row for row in rows if row["action"] == "disable_pass" and row["status"] == "ok"}
    judged = [copy for copy in module["copies"] if copy["trigger"] and copy["trigger"]["pass"] in disabled]
    for copy in judged:
        gone = copy["id"] in disabled[copy["trigger"]["pass"]]["gone"]
        copy["trigger"] = {**copy["trigger"], "confidence": CONFIRMED if gone else REFUTED}
    if judged:
        _tell_again(module)


def _tell_again(module: dict) -> None:
    """The sentences on copies of which more is known now."""
    copies = module["copies"]
    module["patterns"] = sentences.patterns(copies)
    module["verdict"] = sentences.verdict(copies, module["totals"]["min_bytes"], module["memory"],
                                          sentences.CUT_NOTE in module["notes"])


def _identity(remedy: dict) -> tuple:
    return remedy["action"], remedy["pass"], remedy["flag"], remedy["scope"]


def _remedy(row: dict, module: dict) -> dict:
    return {"action": row["action"], "pass": row["pass"], "flag": row["flag"], "scope": row["scope"], "valid_for": None,
            "certain": False, "reason": "", "copies": [copy["id"] for copy in module["copies"]], "sentence": row["says"]}


def _measured(row: dict, baseline: dict, module: dict) -> dict:
    """`verified`: it compiled, and the recompile of the module as it is showed what the dump shows."""
    ok = row["status"] == "ok"
    return {"verified": ok and baseline["matches_upload"] != NOT, "helps": helps(row, baseline),
            "says": row["says"], "toolchain": row["toolchain"], "failed": "" if ok else row["message"],
            "temp_bytes": row["temp_bytes"] if ok else None, "copied_bytes": row["copied_bytes"] if ok else None,
            "gone": row["gone"], "moved": row["moved"],
            "recipe": recipe(row, module) if ok and helps(row, baseline) else None}


def put_versions(module: dict, baselines: list[dict]) -> None:
    """`versions`: what each release makes of the module as it is, the newest first. `baselines`: rows of `measure`."""
    rows = sorted(baselines, key=lambda row: version_of(row["toolchain"]), reverse=True)
    module["versions"] = [_version(row, module) for row in rows]


def version_of(toolchain: str) -> tuple[int, ...]:
    return tuple(int(part) for part in toolchain.partition("-")[2].split("."))


def _version(row: dict, module: dict) -> dict:
    """`there`: how many of the dump's copies this release makes too."""
    found = {"toolchain": row["toolchain"], "status": row["status"], "message": row["message"], "temp_bytes": None,
             "copied_bytes": None, "copies": None, "there": None}
    if row["status"] != "ok":
        return found
    both = Counter(map(_same, module["copies"])) & Counter(map(_same, row["copies"]))
    return {**found, "temp_bytes": row["temp_bytes"], "copied_bytes": row["copied_bytes"], "copies": len(row["copies"]),
            "there": both.total()}


def _summary(module: dict, rows: list[dict]) -> list[str]:
    """Sentences: how well the dump was reproduced, what helps most, whether a single pass does."""
    baseline = rows[0]
    found = [f"{headline(baseline)[0].upper()}{headline(baseline)[1:]}."]
    if not module["copies"] or baseline["status"] != "ok":
        return found
    useful = [row for row in rows[1:] if helps(row, baseline)]
    disabled = [row for row in rows if row["action"] == "disable_pass"]
    if disabled and not any(row in useful for row in disabled):
        found.append(_no_pass(disabled))
    if useful:
        best = min(useful, key=lambda row: (row["temp_bytes"] is None, row["temp_bytes"] or 0, row["copied_bytes"]))
        measure = "temp_bytes" if best["temp_bytes"] is not None and baseline["temp_bytes"] is not None else "copied_bytes"
        found.append(f"With {best['says']}, {'temp' if measure == 'temp_bytes' else 'the copied bytes'} "
                     f"{'goes' if measure == 'temp_bytes' else 'go'} from {human_bytes(baseline[measure])} to "
                     f"{human_bytes(best[measure])}.")
    elif len(rows) > 1:
        found.append("Nothing that was tried makes it need less memory.")
    return found


def _no_pass(disabled: list[dict]) -> str:
    """That none of these helps. One that must run and compiled all the same is not said to need as much memory."""
    broken = sum(row["status"] != "ok" for row in disabled)
    needed = sum(row["status"] == "ok" and bool(doubt(row)["must_run"]) for row in disabled)
    parts = [f"{broken} {'does' if broken == 1 else 'do'} not compile"] if broken else []
    parts += [f"{needed} must run"] if needed else []
    if broken + needed < len(disabled):
        parts.append(f"none{' of the others' if parts else ''} makes it need clearly less memory")
    listed = ", and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
    return f"No single pass helps: of {plural(len(disabled), 'pass')} disabled one at a time, {listed}."


def has_history(module: dict) -> bool:
    """Whether the dump itself has files of single passes."""
    return any(stage["step"] is not None for stage in module["stages"])


def put_history(module: dict, replayed: dict, baseline: dict) -> None:
    """Gives a module whose dump has no per-pass files the stages of its recompile, and its copies what they tell."""
    if has_history(module) or baseline["matches_upload"] == NOT:
        return
    module["history"], module["uploaded_stages"] = REPLAYED, module["stages"]
    module["stages"] = [{**stage, "replayed": True} for stage in replayed["stages"]]
    free: dict[tuple, list[dict]] = {}
    for copy in replayed["copies"]:
        free.setdefault(_same(copy), []).append(copy)
    for copy in module["copies"]:
        if options := free.get(_same(copy)):
            twin = options.pop(0)
            copy.update({key: twin[key] for key in _HISTORY}, history=REPLAYED, history_id=twin["id"])
    copies = module["copies"]
    _tell_again(module)
    module["remedies"] = remedies(copies, module["version"], module["platform"])
    module["cannot_disable"] = cannot_disable(copies)
    module["notes"] = [note for note in module["notes"] if note != NO_PASSES]
    module["notes"].append("The dump has no per-pass files. Its passes were seen by compiling the module again: "
                           f"{headline(baseline)}.")


def _same(copy: dict) -> tuple:
    return tuple(copy["parameters"]), copy["where"], copy["kind"], copy["bytes"]
