"""How the arguments of a module are passed: as its text says, in layouts that XLA chooses, or in another order of axes."""
from __future__ import annotations

import re

MODE = "mhlo.layout_mode"
_SHARDING = "mhlo.sharding"
#: The layouts with which the entry's arguments come and its results go. A tuple among the arguments is left alone.
_ENTRY = re.compile(r"entry_computation_layout=\{\((?P<arguments>(?:[^{}()]|\{[^{}]*\})*)\)"
                    r"->(?P<results>(?:[^{}]|\{[^{}]*\})*)\}")
_ARRAY = re.compile(r"\b[a-z]\w*\[(?P<sizes>[^\]]*)\](?P<layout>\{[^{}]*\})?")
_SPACE = re.compile(r":?S\((\d+)\)")
_DONORS = re.compile(r"\bbuffer_donor=\{(?P<pairs>(?:[^{}]|\{[^{}]*\})*)\}")
_ALIASES = re.compile(r"\binput_output_alias=\{(?P<pairs>(?:[^{}]|\{[^{}]*\})*)\}")
_ALIAS = re.compile(r"\{(\d{0,9})\}: \((\d{1,9}), \{\}")
#: Which devices hold which tile: one list of devices, or the numbers from 0 on in another order.
_TILES = re.compile(r"\{devices=\[(?P<tiles>[\d,]+)\](?:<=\[(?P<sizes>[\d,]+)\](?:T\((?P<turned>[\d,]+)\))?|(?P<listed>[\d,]+))"
                    r"(?P<rest>[^}]*(?:\{[^}]*\})?)\}")
#: Memory spaces that have a name of their own.
_MEMORY = {"5": "pinned_host"}


def change(module: object, header: str, job: dict) -> tuple[bool, list[int]]:
    """Keeps the layouts and the donated buffers of the text, leaves layouts to XLA, or stores parameters in another order.

    Returns whether the text has layouts that are not the default, and the numbers of the arguments whose layout XLA chooses.
    """
    from jax._src.lib.mlir import ir

    auto, transposed = job.get("auto"), job.get("transposed") or {}
    main = next(op for op in module.body.operations if op.operation.name == "func.func"
                and ir.StringAttr(op.operation.attributes["sym_name"]).value == "main")
    arguments, results = _layout_modes(header, job["platform"])
    explicit = any(modes.get(MODE, "auto") != "auto" for modes in arguments + results)
    if len(arguments) != len(main.arguments):
        arguments = [{} for _ in main.arguments]
    for number, modes in enumerate(arguments):
        if str(number) in transposed:
            modes.pop(MODE, None)
        elif auto and (auto == "all" or number in auto):
            modes[MODE] = "auto"
    donors = _DONORS.search(header)
    for number in map(int, re.findall(r"\((\d{1,9}), \{\}", donors["pairs"] if donors else "")):
        if number < len(arguments):
            arguments[number]["jax.buffer_donor"] = True
    _put_modes(main, "arg_attrs", arguments)
    if len(results) != len(main.type.results):
        results = [{} for _ in main.type.results]
    for number, result in aliased(header):      # JAX takes no other layout for what takes the buffer of such an argument
        if number < len(arguments) and result < len(results) and arguments[number].get(MODE) == "auto":
            results[result][MODE] = "auto"
    _put_modes(main, "res_attrs", results)
    for number, order in transposed.items():
        _store_transposed(main, int(number), order)
    return explicit, [number for number, modes in enumerate(arguments) if modes.get(MODE) == "auto"]


def aliased(header: str) -> list[tuple[int, int]]:
    """(argument, result) for each result that takes the buffer of a donated argument."""
    told = _ALIASES.search(header)
    return [(int(argument), int(result or 0)) for result, argument in _ALIAS.findall(told["pairs"] if told else "")]


def _layout_modes(header: str, platform: str) -> tuple[list[dict], list[dict]]:
    """Attributes, for every argument and result, that ask for what the module's header says and the way over StableHLO
    loses: a layout that is not the default, a layout that XLA was to choose, host memory. Empty lists: it says nothing."""
    arguments, results = arrays(header)
    told = any(array["layout"] for array in arguments + results)
    return tuple([_modes(array, mode, platform, told) for array, mode in zip(arrays, _asked(header, kind, len(arrays)))]
                 for arrays, kind in ((arguments, "arg"), (results, "out")))


def arrays(header: str) -> tuple[list[re.Match], list[re.Match]]:
    """The arguments and results that a header tells of."""
    entry = _ENTRY.search(header)
    return tuple(list(_ARRAY.finditer(entry[part])) if entry else [] for part in ("arguments", "results"))


def _asked(header: str, kind: str, count: int) -> list[str]:
    """What libtpu notes of the layouts that JAX asked for; elsewhere nothing is noted."""
    noted = re.search(kind + r'_layout_modes="([^"]*)"', header)
    modes = noted[1].split(";") if noted else []
    return modes if len(modes) == count else [""] * count


def _modes(array: re.Match, asked: str, platform: str, told: bool) -> dict[str, str]:
    layout, space = array["layout"] or "", _SPACE.search(array["layout"] or "")
    found = {"mhlo.memory_kind": _MEMORY[space[1]]} if space and space[1] in _MEMORY else {}
    order = [int(part) for part in re.findall(r"\d+", layout.partition(":")[0])]
    if asked or platform == "tpu":      # a TPU's default is not the descending order
        mode = asked if asked != "default" else ""
    elif not layout and array["sizes"] and told:
        mode = "auto"
    else:
        mode = layout if order != sorted(order, reverse=True) else ""
    return {**found, MODE: _SPACE.sub("", mode)} if mode else found


def _put_modes(main: object, kind: str, modes: list[dict]) -> None:
    from jax._src.lib.mlir import ir

    def attribute(value: str | bool) -> ir.Attribute:
        return ir.BoolAttr.get(value) if isinstance(value, bool) else ir.StringAttr.get(value)

    if any(modes):
        given = ir.ArrayAttr(main.operation.attributes[kind]) if kind in main.operation.attributes else [None] * len(modes)
        kept = [{named.name: named.attr for named in ir.DictAttr(attributes)} if attributes else {} for attributes in given]
        main.operation.attributes[kind] = ir.ArrayAttr.get([
            ir.DictAttr.get({**old, **{name: attribute(value) for name, value in new.items()}})
            for old, new in zip(kept, modes)])


def sharded_transposed(sharding: str, order: list[int]) -> str:
    """The sharding of an array whose dimensions come in another order: each device keeps what it has."""
    import numpy as np

    tiles = _TILES.fullmatch(sharding)
    if tiles is None:       # replicated, or all on one device
        return sharding
    sizes, listed, turned = ([int(part) for part in (tiles[name] or "").split(",") if part]
                             for name in ("sizes", "listed", "turned"))
    devices = np.arange(np.prod(sizes)).reshape(sizes) if sizes else np.array(listed)
    shape = [int(part) for part in tiles["tiles"].split(",")]
    devices = (devices.transpose(turned) if turned else devices).reshape(shape)
    new = devices.transpose([*order, *range(len(order), len(shape))])      # subgroups stay behind
    return f"{{devices=[{','.join(map(str, new.shape))}]{','.join(map(str, new.flatten()))}{tiles['rest']}}}"


def _shard_transposed(main: object, number: int, order: list[int]) -> None:
    """Turns the sharding of an argument that is stored in another order."""
    from jax._src.lib.mlir import ir

    attributes = main.operation.attributes
    given = ir.ArrayAttr(attributes["arg_attrs"]) if "arg_attrs" in attributes else ()
    if number >= len(given) or _SHARDING not in ir.DictAttr(given[number]):
        return
    kept = {named.name: named.attr for named in ir.DictAttr(given[number])}
    kept[_SHARDING] = ir.StringAttr.get(sharded_transposed(ir.StringAttr(kept[_SHARDING]).value, order))
    attributes["arg_attrs"] = ir.ArrayAttr.get([
        ir.DictAttr.get(kept) if position == number else old for position, old in enumerate(given)])


def _store_transposed(main: object, number: int, order: list[int]) -> None:
    """Parameter `number` comes with its dimensions in this order; the program transposes it back where it begins."""
    from jax._src.lib.mlir import ir
    from jax._src.lib.mlir.dialects import hlo

    block = main.body.blocks[0]
    argument = block.arguments[number]
    before = ir.RankedTensorType(argument.type)
    stored = ir.RankedTensorType.get([before.shape[dimension] for dimension in order], before.element_type)
    argument.set_type(stored)
    with ir.InsertionPoint.at_block_begin(block):
        back = hlo.TransposeOp(argument, ir.DenseI64ArrayAttr.get([order.index(d) for d in range(len(order))]))
    argument.replace_all_uses_with(back.result)
    back.operation.operands[0] = argument
    _shard_transposed(main, number, order)
    kind = ir.FunctionType(ir.TypeAttr(main.operation.attributes["function_type"]).value)
    inputs = [stored if position == number else type_ for position, type_ in enumerate(kind.inputs)]
    main.operation.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, kind.results))
