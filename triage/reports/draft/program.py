"""Sections for the program's owner: the program itself makes the copy."""
from __future__ import annotations

from triage.reports.draft.document import Subject
from triage.reports.draft.words import capital, change, source_place
from triage.reports.markdown import code, sentence, table

MAX_PLACES = 8

FIXES = {
    "transpose": "Store these parameters in the order in which the loop reads them, so that nothing has to be transposed.",
    "convert": "Store these parameters in the element type that is computed with, or let the operation take the stored type "
               "(`preferred_element_type` of `lax.dot_general` keeps the precision of the result).",
    "copy": "Pass these parameters on as they are.",
    "gather": "Shard these parameters as the operation reads them.",
    "concat": "Store these parameters joined.",
    "computed": "Compute this once, when the parameters are loaded, and pass the result; or inside the loop, where it is used.",
}


def opening(s: Subject) -> list[str]:
    """The fix comes before everything else."""
    where = source_place(s.sample["source"])
    return ["> **To be fixed in the program first.** The operation is the program's own"
            + (f" ({where})" if where else "") + f". {FIXES[s.pattern['kind']]} " + _measured(s)]


def _measured(s: Subject) -> str:
    stored = next((remedy for remedy in s.verified if remedy["action"] in ("store_transposed", "auto_layout")), None)
    if stored is None or s.baseline is None or stored["temp_bytes"] is None:
        return "What that saves is not measured."
    return f"Measured, with {change(stored)}: temp bytes go from {s.baseline['temp_bytes']:,} to {stored['temp_bytes']:,}."


def place(s: Subject) -> list[str]:
    """File, line and operation of each place, and from what to what the parameter goes."""
    rows: dict[tuple[str, str], list[str]] = {}
    for copy in sorted(s.copies, key=lambda copy: -copy["bytes"]):
        source = copy["source"] or {}
        where = source_place(source) or "not told", code(source["op_name"]) if source.get("op_name") else ""
        rows.setdefault(where, [*where, f"{code(copy['from_shape'])} to {code(copy['to_shape'])}"])
    lines = table(["line", "operation", "parameter, and what is made of it"], list(rows.values())[:MAX_PLACES])
    if len(rows) > MAX_PLACES:
        lines += ["", f"and {len(rows) - MAX_PLACES} more places."]
    if s.pattern["reason"]:
        lines += ["", f"{sentence(capital(s.pattern['reason']))}."]
    if s.sample["free_until"]:
        lines += ["", f"It costs nothing until {code(s.sample['free_until'])}, which gives every array its order in memory."]
    return lines
