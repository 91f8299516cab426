"""The list of stages as pages show it: grouped by pipeline, unchanged ones folded, neighbours to go to."""
from __future__ import annotations


def title(stage: dict) -> str:
    """What a stage is called: its pass, or the name of its dump."""
    return stage["pass"] or stage["label"]


def groups(stages: list[dict], current: int = -1) -> list[dict]:
    """Stages in order as groups of one pipeline: {"name", "iteration", "named", "rows", "folded", "quiet"}.

    A row is {"stage", "title", "instructions", "copied", "size", "current"}, with the differences to the stage before;
    `folded` are the stages of the group that changed nothing. A run of pipelines that changed nothing is one group,
    {"quiet": its groups}.
    """
    result: list[dict] = []
    for group in _pipelines(stages, current):
        if group["rows"]:
            result.append(group)
        elif result and "quiet" in result[-1]:
            result[-1]["quiet"].append(group)
        else:
            result.append({"quiet": [group]})
    return result


def _pipelines(stages: list[dict], current: int) -> list[dict]:
    result: list[dict] = []
    for position, stage in enumerate(stages):
        name = "" if stage["named"] else stage["pipeline"] or ""
        if not result or stage["named"] or (result[-1]["name"], result[-1]["iteration"]) != (name, stage["iteration"]):
            result.append({"name": name, "iteration": stage["iteration"], "named": stage["named"], "rows": [],
                           "folded": []})
        if not (stage["changed"] or position == current or stage["named"]):
            result[-1]["folded"].append(stage)
            continue
        before = stages[position - 1] if position else None
        copied = stage["copied_bytes"] - (before["copied_bytes"] if before else 0)
        result[-1]["rows"].append({
            "stage": stage, "title": title(stage), "current": position == current, "copied": copied,
            "size": abs(copied), "instructions": stage["instructions"] - before["instructions"] if before else 0})
    return result


def neighbours(stages: list[dict], current: int) -> dict:
    """The stages before and after, and the nearest ones that changed something; None where there is none."""
    before, after = stages[:current][::-1], stages[current + 1:]
    return {"previous": before[0] if before else None, "following_stage": after[0] if after else None,
            "previous_changed": next((stage for stage in before if stage["changed"]), None),
            "next_changed": next((stage for stage in after if stage["changed"]), None),
            "before": before[0] if before else None}
