"""A reproducer in sentences."""
from __future__ import annotations

from triage.engine.cost import human_bytes

from .commands import TARGET
from .reproducer import Reproducer


def said(found: Reproducer) -> list[str]:
    """What a reproducer shows and how it is compiled, one line each."""
    shown = found.shown
    by = f"introduced by `{shown['introduced_by']['pass']}`" if shown["introduced_by"] else "in the program itself"
    because = f", probably because of `{shown['trigger']['pass']}`" if shown["trigger"] else ""
    where = {"before_loop": "before a loop", "in_loop": "in a loop"}.get(shown["where"], "outside any loop")
    lines = [f"{found.instructions} instructions, found in {found.seconds:g} s and {found.tries} compiles.",
             f"{found.toolchain} for {found.device} confirms: {shown['kind']}, {human_bytes(shown['bytes'])}, "
             f"`{shown['from_shape']}` to `{shown['to_shape']}`, {where}, {by}{because}."]
    if not found.same_trigger:
        lines.append("In the module itself, another pass than that is suspected as the cause.")
    if not found.same_order:
        lines.append("In the module itself, the parameter is transposed into another order.")
    if found.stopped:
        lines.append(f"Stopped because {found.stopped}.")
    if any(TARGET in command for command in found.commands):
        lines.append(f"`{TARGET}` is the dump's own `*.gpu_target_config.pbtxt`.")
    return [*lines, *found.commands]
