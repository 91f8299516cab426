"""A measured remedy as lines to write: JAX code, flags, and which parameters it is about."""
from __future__ import annotations

from triage.engine.knowledge import Releases, key
from triage.engine.knowledge.advice import auto_layout

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
    only = "" if row["scope"] == "all" else "    # give it only to the arguments below; None for the others\n"
    code = (f"import jax\nfrom jax.experimental.layout import {', '.join(classes)}\n\n"
            f"{only.lstrip()}compiled = jax.jit(step, in_shardings={names.ask}).lower(*args).compile()\n"
            f"formats, _ = {names.read}\n"
            f"args = jax.tree.map(jax.device_put, args, formats)     # once, after loading\n"
            f"compiled(*args)\n")
    return {"code": code, "parameters": _parameters(module, {
        number: major_to_minor(layout) for number, layout in enumerate(row["layouts"] or [])})}


def _stored(row: dict, module: dict, version: str) -> dict:
    orders = {int(number): order for number, order in row["transposed"].items()}
    code = ("# store the array with its dimensions in the order below, and transpose it back where the program reads it:\n"
            "stored = jnp.transpose(parameter, order)              # once, when the parameters are loaded\n"
            "parameter = jnp.transpose(stored, np.argsort(order))  # first thing in the jitted function\n")
    return {"code": code, "parameters": _parameters(module, orders)}


def _flag(row: dict, module: dict, version: str) -> dict:
    name, equals, value = row["flag"].lstrip("-").partition("=")
    code = f"XLA_FLAGS={row['flag']} python ...                     # for the whole process\n"
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
