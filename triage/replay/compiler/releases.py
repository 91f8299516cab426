"""What differs between releases of jaxlib: names, signatures, and what their parsers understand."""
from __future__ import annotations

import re

#: Shardy's attributes do not survive the way over StableHLO; the GSPMD shardings beside them say the same.
_SHARDY = (
    (re.compile(r',? ?xla\.sdy\.(?:sharding|sharding_rule|meshes|in_shardings|out_shardings)='
                r'(?:"(?:[^"\\]|\\.)*"|\{[^{}]*\})'), ""),
    (re.compile(r'custom-call\((?P<operand>%?[\w.\-]+)\), custom_call_target="xla\.sdy\.[^\n]*'), r"reshape(\g<operand>)"),
    (re.compile(r", frontend_attributes=\{[, ]*\}"), ""),
    (re.compile(r"frontend_attributes=\{[, ]+"), "frontend_attributes={"),
)
#: Fields of a GPU's target that a release may not know, the newest first. A text with an unknown one is refused whole.
_TARGET_FIELDS = ("feature_extension", "dnn_version", "runtime_version", "registers_per_core_limit",
                  "registers_per_block_limit", "name", "device_description_str")
#: Before this release the layouts must be told once more where a GPU is not there (needed in 0.6.2, not in 0.10.2).
KEEPS_LAYOUTS = (0, 10, 2)


def without_shardy(text: str) -> str:
    if "xla.sdy." in text:
        for pattern, replacement in _SHARDY:
            text = pattern.sub(replacement, text)
    return text


def xla() -> object:
    """jaxlib's extension module, under the name it has in this release."""
    try:
        from jaxlib import _jax
    except ImportError:
        from jaxlib import xla_extension as _jax  # before 0.5.1
    return _jax


def compiled(client: object, module: object, devices: tuple, options: object) -> object:
    """What the client makes of an MLIR module. Releases differ in the method's name and in what it takes."""
    from jax._src.interpreters import mlir as jax_mlir

    compile_only = type(client).__name__ == "CompileOnlyPyClient"
    compile_ = client.compile if compile_only or not hasattr(client, "compile_and_load") else client.compile_and_load
    if release() >= (0, 7, 0):
        return compile_(module, xla().DeviceList(devices), options)
    code = jax_mlir.module_to_bytecode(module)
    if release() >= (0, 5, 1):
        return compile_(code, xla().DeviceList(devices), options)
    return compile_(code, options)


def release() -> tuple[int, ...]:
    import jaxlib.version

    return tuple(int(part) for part in jaxlib.version.__version__.split(".")[:3])


def stablehlo(text: str) -> tuple[bytes, object]:
    """The module as StableHLO, and the shape of its entry with the layouts that the text gives."""
    library = xla()
    try:
        from jaxlib import _hlo as parser
    except ImportError:
        parser = library
    try:
        proto = parser.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    except Exception:
        plain = _without_tables(text)
        if plain == text:
            raise
        proto = parser.hlo_module_from_text(plain).as_serialized_hlo_module_proto()
    computation = getattr(parser, "XlaComputation", None) or library.XlaComputation
    shape = computation(proto).program_shape()
    if hasattr(library.mlir, "hlo_to_stablehlo"):
        return library.mlir.hlo_to_stablehlo(proto), shape
    return library.mlir.mhlo_to_stablehlo(library.mlir.xla_computation_to_mlir_module(computation(proto)).encode()), shape


def _without_tables(text: str) -> str:
    """The module without the tables of source lines, which older parsers do not know."""
    header, table, rest = text.partition("\nFileNames\n")
    if not table:
        return text
    start = re.search(r"^(?:ENTRY\s+)?%?[\w.\-]+[^\n]*\{[ \t]*$", rest, re.M)
    return re.sub(r" ?\bstack_frame_id=\d+", "", header + "\n\n" + rest[start.start():]) if start else text


def targets(target: str) -> list[str]:
    """A GPU's target config, and then with ever fewer of the fields that not every release knows."""
    found = [target]
    for name in _TARGET_FIELDS:
        shorter = re.sub(rf"\b{name}\s*(?:\{{[^{{}}]*\}}|:[^\n}}]*)", "", found[-1])
        if shorter != found[-1]:
            found.append(shorter)
    return found
