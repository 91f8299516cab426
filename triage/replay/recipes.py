"""A measured remedy as lines to write: JAX code, flags, and which parameters it is about."""
from __future__ import annotations

from triage.engine.knowledge import Releases, key
from triage.engine.knowledge.advice import auto_layout

from .source import disabled_passes
from .variants import major_to_minor

MAX_PARAMETERS = 200        # listed
#: The first release that was seen to take a list of passes as a function's own option; 0.4.38 does not.
DISABLES_IN_JIT = (0, 6, 2)


def recipe(row: dict, module: dict) -> dict:
    """{"code": lines to write, "parameters": [{number, name, order}]}; the order is that of the dimensions in memory, the
    slowest varying first, for parameters that are stored otherwise than now."""
    version = row["toolchain"].partition("-")[2]
    makers = {"auto_layout": _auto, "store_transposed": _stored, "disable_pass": _flag, "flag": _flag,
              "loop_attribute": _attribute}
    return makers[row["action"]](row, module, version)


def _auto(row: dict, module: dict, version: str) -> dict:
    names = auto_layout(Releases(version, version))
    if names is None:
        return {"code": "", "parameters": []}
    classes = sorted({part for part in ("Format", "Layout", "DeviceLocalLayout") if f"{part}(" in names.ask
                      or f"{part}." in names.ask})
    only = "" if row["scope"] == "all" else "# give it only to the arguments below; None for the others\n"
    asked = f"in_shardings={names.ask}"
    if returned := row.get("returned"):
        only += ("# add your donate_argnums: JAX then demands the same of the results that take those buffers,\n"
                 f"# which are {_listed(returned)}; None for the others\n")
        asked += f", out_shardings={names.ask}"
    code = (f"import jax\nfrom jax.experimental.layout import {', '.join(classes)}\n\n"
            f"{only}compiled = jax.jit(step, {asked}).lower(*args).compile()\n"
            f"formats, _ = {names.read}\n"
            f"args = jax.tree.map(jax.device_put, args, formats)     # once, after loading\n"
            f"compiled(*args)\n")
    return {"code": code, "parameters": _parameters(module, {
        number: major_to_minor(layout) for number, layout in enumerate(row["layouts"] or [])})}


def _listed(numbers: list[int]) -> str:
    """`0 to 8, 10`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join([" to ".join(map(str, run)) for run in runs])


def _stored(row: dict, module: dict, version: str) -> dict:
    orders = {int(number): order for number, order in row["transposed"].items()}
    code = ("# store the array with its dimensions in the order below, and transpose it back where the program reads it:\n"
            "stored = jnp.transpose(parameter, order)              # once, when the parameters are loaded\n"
            "parameter = jnp.transpose(stored, np.argsort(order))  # first thing in the jitted function\n")
    return {"code": code, "parameters": _parameters(module, orders)}


def _flag(row: dict, module: dict, version: str) -> dict:
    name, equals, value = row["flag"].lstrip("-").partition("=")
    if row["action"] == "disable_pass":         # without those that the dump disabled it was not measured
        value = ",".join(dict.fromkeys([*disabled_passes(module.get("flags") or {}), value]))
    code = f'XLA_FLAGS="$XLA_FLAGS --{name}{equals}{value}" python ...     # for the whole process\n'
    if row["action"] != "disable_pass" or key(version) >= DISABLES_IN_JIT:
        options = f'{{"{name}": "{value if equals else "true"}"}}'
        code += f"jax.jit(step, compiler_options={options})     # or for this function alone\n"
    return {"code": code, "parameters": []}


def _attribute(row: dict, module: dict, version: str) -> dict:
    attribute = row["variant"].removeprefix("attribute-")
    code = (f"from jax.experimental.xla_metadata import set_xla_metadata\n\n"
            f"with set_xla_metadata({attribute}=\"true\"):\n"
            f"    result = jax.lax.scan(body, carry, xs)\n")
    return {"code": code, "parameters": []}


def _parameters(module: dict, orders: dict[int, list[int]]) -> list[dict]:
    """Those whose order differs from the one they have now."""
    found = []
    for parameter in module["parameters"]:
        order = orders.get(parameter["number"])
        if order and order != (major_to_minor(parameter["shape"]) or sorted(order)):
            found.append({"number": parameter["number"], "name": parameter["op_name"] or parameter["name"], "order": order})
    return found[:MAX_PARAMETERS]
