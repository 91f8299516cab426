"""What a module's page shows of replays: remedies with bars, what is being measured, what can be asked for."""
from __future__ import annotations

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.replay.gpus import known_gpus
from triage.replay.reduce import Reproducer
from triage.replay.reduce.told import said
from triage.replay.source import NoReplay, source_of
from triage.replay.toolchains import Toolchain
from triage.replays import runs
from triage.replays.child import REPRODUCE
from triage.replays.models import Run, Trial

SMALL_CHANGE = 0.005        # as a share: less would read "+0%"
MAX_PARAMETERS = 40         # of one recipe that are listed; all are in report.json


def replay_context(dump: Dump, report: dict) -> dict:
    """`report`: the module with its replays, see runs.with_replays."""
    run = runs.best_run(dump, report["index"])
    trials = list(run.trials.all()) if run is not None else []
    history = run.history if run is not None and report.get("history") == "replayed" else None
    rows = {row["variant"]: row for row in report["replays"]}
    return {
        "run": run, "trials": trials, "open_trials": [trial for trial in trials if trial.is_open],
        "cancelled": any(trial.status == Trial.Status.CANCELLED for trial in trials),
        "passes": {"id": history.id, "module": 0} if history else {"id": dump.id, "module": report["index"]},
        "reproducer": _reproducer(trials), "bars": _bars(report), "baseline": rows.get("baseline"), "untried": _untried(report),
        "offer": _offer(dump, report, run)}


def _reproducer(trials: list[Trial]) -> dict | None:
    """The small program that was found, or why there is none; None where nobody asked for one."""
    row = next((trial.row for trial in trials if trial.key == REPRODUCE and trial.row), None)
    if row is None or row["status"] != "ok":
        return row
    found = Reproducer(**{**row["reproducer"], "commands": tuple(row["reproducer"]["commands"])})
    lines = said(found)
    return {**row, "found": found, "said": lines[:len(lines) - len(found.commands)]}


def _bars(report: dict) -> list[dict]:
    """One per measured variant: the baseline, then the remedies best first; lengths in per cent of the longest bar."""
    if not report["replays"]:
        return []
    baseline, *rows = report["replays"]
    order = {_identity(remedy): place for place, remedy in enumerate(report["remedies"])}
    recipes = {_identity(remedy): remedy for remedy in report["remedies"]}
    rows.sort(key=lambda row: order.get(_identity(row), len(order)))
    longest = max((row["temp_bytes"] or 0 for row in report["replays"] if row["status"] == "ok"), default=0)
    return [_bar(row, baseline, recipes.get(_identity(row)), longest) for row in (baseline, *rows)]


def _identity(remedy: dict) -> tuple:
    return remedy["action"], remedy["pass"], remedy["flag"], remedy["scope"]


def _bar(row: dict, baseline: dict, remedy: dict | None, longest: int) -> dict:
    temp = row.get("temp_bytes")
    recipe = (remedy or {}).get("recipe")
    return {**row, "is_baseline": row is baseline, "length": f"{100 * temp / longest:.2f}" if temp and longest else "0",
            "helps": bool(remedy and remedy.get("helps")), "recipe": recipe,
            "listed": recipe["parameters"][:MAX_PARAMETERS] if recipe else [],
            "more_listed": max(0, len(recipe["parameters"]) - MAX_PARAMETERS) if recipe else 0,
            "cost": _cost(row, baseline)}


def _cost(row: dict, baseline: dict) -> list[str]:
    """What a remedy changes besides memory, by XLA's estimate; only where it is not nearly the same."""
    if row is baseline or row["status"] != "ok" or baseline["status"] != "ok":
        return []
    found = []
    for name, words in (("flops", "floating-point operations"), ("bytes_accessed", "bytes accessed")):
        now, then = row.get(name), baseline.get(name)
        if now is not None and then and abs(now - then) >= SMALL_CHANGE * then:
            found.append(f"{words} {_short(then)} → {_short(now)} ({_signed(100 * (now - then) / then)}%)")
    return found


def _signed(value: float) -> str:
    return f"{value:+.0f}".replace("-", "−")


def _short(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f}"


def _untried(report: dict) -> list[dict]:
    return [remedy for remedy in report["remedies"] if "toolchain" not in remedy]


def _offer(dump: Dump, report: dict, run: Run | None) -> dict | None:
    """What the page offers: toolchains that may be chosen, GPUs where the dump says none, or why there is nothing."""
    if not report["copies"]:
        return None
    target = storage.load_gpu_target(dump, report["index"])
    gpus = known_gpus() if runs.needs_gpu(dump, report) else []
    try:
        platform = source_of(report, "", target, gpus[0] if gpus else None).platform
    except NoReplay as reason:
        return {"refused": str(reason)}
    fitting: list[Toolchain] = [toolchain for toolchain in runs.toolchains() if toolchain.platform == platform]
    if not fitting:
        return {"refused": f"This service has no toolchain for {platform}; its operator can add one: "
                           f"`manage.py toolchain add {platform}`."}
    return {"toolchains": fitting, "chosen": runs.default_toolchain(report, platform), "gpus": gpus,
            "more": run is not None and len(fitting) > 1}
