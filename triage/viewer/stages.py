"""The list of stages as pages show it: grouped by pipeline, unchanged ones folded, neighbours to go to."""
from __future__ import annotations


def title(stage: dict) -> str:
    """What a stage is called: its pass, or the name of its dump."""
    return stage["pass"] or stage["label"]


def groups(stages: list[dict], current: int = -1, everything: bool = False) -> list[dict]:
    """Stages in order as groups of one pipeline: {"name", "iteration", "rows"}.

    A row is {"stage", "title", "instructions", "copied", "size", "current"} with the differences to the stage before, or
    {"folded": [stages], "first", "last"} for a run of stages that changed nothing, unless `everything`.
    """
    result: list[dict] = []
    for position, stage in enumerate(stages):
        name = "named dumps" if stage["named"] else stage["pipeline"] or ""
        if not result or result[-1]["name"] != name or result[-1]["iteration"] != stage["iteration"]:
            result.append({"name": name, "iteration": stage["iteration"], "rows": []})
        rows = result[-1]["rows"]
        before = stages[position - 1] if position else None
        if stage["changed"] or everything or position == current or stage["named"]:
            copied = stage["copied_bytes"] - (before["copied_bytes"] if before else 0)
            rows.append({
                "stage": stage, "title": title(stage), "current": position == current, "copied": copied,
                "size": abs(copied), "instructions": stage["instructions"] - before["instructions"] if before else 0})
        elif rows and "folded" in rows[-1]:
            rows[-1]["folded"].append(stage)
        else:
            rows.append({"folded": [stage]})
    for group in result:
        group["quiet"] = all("folded" in row for row in group["rows"])
    return result


def neighbours(stages: list[dict], current: int) -> dict:
    """The stages before and after, and the nearest ones that changed something; None where there is none."""
    before, after = stages[:current][::-1], stages[current + 1:]
    return {"previous": before[0] if before else None, "following_stage": after[0] if after else None,
            "previous_changed": next((stage for stage in before if stage["changed"]), None),
            "next_changed": next((stage for stage in after if stage["changed"]), None),
            "before": before[0] if before else None}
