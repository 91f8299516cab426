"""For a module in whose text no parameter is copied before a loop: what its memory figures say, and where else to look."""
from __future__ import annotations

from triage.engine.sentences import percent
from triage.reports.draft.words import amount

LITTLE = 0.1        # temporary memory, as a share of the parameters, that is not worth a search


def elsewhere(module: dict) -> list[str]:
    """Sentences with `names` in backquotes, the most likely first; empty where copies before a loop were found."""
    if any(copy["where"] == "before_loop" for copy in module["copies"]):
        return []
    memory, parameters = module["memory"], module["totals"]["parameter_bytes"]
    temp, lines = memory.get("temp_bytes"), []
    if (module.get("uploaded_stages") or module["stages"])[-1]["label"].startswith("before_optimization"):
        lines.append("The dump ends before the passes: what the compiler adds to this module is in `after_optimizations`.")
    if temp is None:
        lines.append("The dump holds no memory figures of this module; `compiled.memory_analysis()` in JAX has them.")
    elif temp <= LITTLE * parameters:
        lines.append(f"This module needs {amount(temp)} beside its arguments, {percent(temp / parameters)} of its parameters: "
                     "what takes the memory is not in this program.")
    else:
        lines += _temporary(temp, module)
    return lines + [
        "Another module of the dump may be the one: every jitted function has its own.",
        "Arrays that are still referenced are no copies of the compiler's: `jax.live_arrays()` lists them, "
        "`jax.profiler.save_device_memory_profile` says which line made each.",
        "Arguments that are not donated live beside the result that replaces them: `donate_argnums`.",
        "On GPUs JAX reserves most of the memory at the start: `XLA_PYTHON_CLIENT_PREALLOCATE=false` shows what is in use."]


def _temporary(temp: int, module: dict) -> list[str]:
    copied = module["totals"]["copied_bytes"]
    lines = [f"The temporary memory, {amount(temp)}, holds something else than copies of parameters before a loop: mostly "
             "results that have to wait for their reader. The buffer assignment file lists them by size; `jax.checkpoint` "
             "computes them again instead."]
    if copied:
        lines.insert(0, f"Copies of parameters elsewhere take {amount(copied)} of it at most.")
    return lines
