"""One compile of one HLO module, for a machine that need not be there. Runs in a toolchain's Python, not in the service's.

`python compiler.py` reads a job as JSON from standard input and writes {"status": "ok", ...} or {"status": "error",
"message"} to the job's `result` file. Nothing is executed, only compiled. XLA may abort this process, or never end: its
parent sets limits and takes every end of it for an answer. It stands alone: no import but jax and the standard library.

The job: `module` (file with HLO text), `platform` (cpu, cuda, tpu), `target` (GPU target config text) or `topology` (TPU),
`partitions`, `replicas`, `disable` (passes), `options` (XLA flags without dashes -> value), `auto` ("all" or parameter
numbers whose layout XLA chooses), `transposed` (parameter number -> dimensions in their new order), `dump` (directory),
`every_pass` (whether each pass is dumped), `result`.
"""
from __future__ import annotations

import json
import os
import re
import sys
import time

MAX_MESSAGE = 2000
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


def main() -> None:
    job = json.load(sys.stdin)
    os.environ.update(JAX_SKIP_CUDA_CONSTRAINTS_CHECK="1", TPU_SKIP_MDS_QUERY="1", TF_CPP_MIN_LOG_LEVEL="3",
                      JAX_PLATFORMS="cpu", JAX_ENABLE_COMPILATION_CACHE="false")
    flags = [f"--xla_force_host_platform_device_count={job['partitions'] * job['replicas']}"]
    if job.get("no_autotuning"):
        flags.append("--xla_gpu_autotune_level=0")
    os.environ["XLA_FLAGS"] = " ".join(flags)
    try:
        result = Compile(job).run()
    except Exception as error:
        result = {"status": "error", "message": f"{error}"[:MAX_MESSAGE] or type(error).__name__}
    with open(job["result"], "w", encoding="utf-8") as file:
        json.dump(result, file)


class Compile:
    """The steps of one job."""

    def __init__(self, job: dict) -> None:
        self.job = job

    def run(self) -> dict:
        from jax._src.interpreters import mlir as jax_mlir
        from jax._src.lib.mlir import ir

        self.devices = self._devices()
        text = self._text()
        started = time.monotonic()
        with jax_mlir.make_ir_context(), ir.Location.unknown():
            module = ir.Module.parse(_stablehlo(text))
            self._change_parameters(module)
            executable = self._compile(module)
            seconds = time.monotonic() - started
        return {"status": "ok", "seconds": round(seconds, 2), **_memory(executable), **_cost(executable)}

    def _devices(self) -> list:
        """The devices to compile for. Their number is partitions times replicas."""
        import jax
        from jax.experimental import topologies

        platform, count = self.job["platform"], self.job["partitions"] * self.job["replicas"]
        if platform == "cpu":
            return list(jax.devices("cpu"))[:count]
        if platform == "tpu":
            found = topologies.get_topology_desc(platform="tpu", topology_name=self.job["topology"]).devices
            return list(found)[:count]
        for target in _targets(self.job["target"]):
            try:
                found = topologies.get_topology_desc(platform="cuda", topology_name="target", target_config=target,
                                                     topology=f"1x1x{count}").devices
                return list(found)[:count]
            except Exception as error:
                if "GpuTargetConfigProto" not in str(error):
                    raise
                refused = error
        raise refused

    def _text(self) -> str:
        with open(self.job["module"], encoding="utf-8", errors="backslashreplace") as file:
            text = file.read()
        if "xla.sdy." in text:
            for pattern, replacement in _SHARDY:
                text = pattern.sub(replacement, text)
        return text

    def _change_parameters(self, module: object) -> None:
        """Leaves layouts to XLA, or stores parameters in another order of their dimensions."""
        from jax._src.lib.mlir import ir

        auto, transposed = self.job.get("auto"), self.job.get("transposed") or {}
        if not auto and not transposed:
            return
        main = next(op for op in module.body.operations if op.operation.name == "func.func"
                    and ir.StringAttr(op.operation.attributes["sym_name"]).value == "main")
        if auto:
            given = main.arg_attrs if "arg_attrs" in main.operation.attributes else [{}] * len(main.arguments)
            mode = {"mhlo.layout_mode": ir.StringAttr.get("auto")}
            main.arg_attrs = ir.ArrayAttr.get([
                ir.DictAttr.get({**{named.name: named.attr for named in attributes},
                                 **(mode if auto == "all" or number in auto else {})})
                for number, attributes in enumerate(given)])
        for number, order in transposed.items():
            _store_transposed(main, int(number), order)

    def _compile(self, module: object) -> object:
        import numpy as np
        from jax._src import lib
        from jax._src.lib import xla_client

        job, client = self.job, self.devices[0].client
        options = xla_client.CompileOptions()
        build = options.executable_build_options
        options.num_replicas = build.num_replicas = job["replicas"]
        options.num_partitions = build.num_partitions = job["partitions"]
        build.use_spmd_partitioning = job["partitions"] > 1
        ids = np.array([device.id for device in self.devices]).reshape(job["replicas"], job["partitions"])
        options.device_assignment = xla_client.DeviceAssignment.create(ids)
        debug = build.debug_options
        debug.xla_disable_hlo_passes = ",".join(job.get("disable", []))
        debug.xla_dump_to, debug.xla_dump_hlo_as_text = job["dump"], True
        if cuda := getattr(lib, "cuda_path", None):     # the toolchain's own ptxas, not one that the machine has
            debug.xla_gpu_cuda_data_dir = str(cuda)
        if job.get("every_pass"):
            debug.xla_dump_hlo_pass_re = ".*"
        # An unknown name is an error here; in XLA_FLAGS it would abort the process.
        options.env_option_overrides = [(name, _value(value)) for name, value in job.get("options", {}).items()]
        return _compiled(client, module, tuple(self.devices), options)


def _xla() -> object:
    """jaxlib's extension module, under the name it has in this release."""
    try:
        from jaxlib import _jax
    except ImportError:
        from jaxlib import xla_extension as _jax  # before 0.5.1
    return _jax


def _compiled(client: object, module: object, devices: tuple, options: object) -> object:
    """What the client makes of an MLIR module. Releases differ in the method's name and in what it takes."""
    from jax._src.interpreters import mlir as jax_mlir

    compile_only = type(client).__name__ == "CompileOnlyPyClient"
    compile_ = client.compile if compile_only or not hasattr(client, "compile_and_load") else client.compile_and_load
    if _release() >= (0, 7, 0):
        return compile_(module, _xla().DeviceList(devices), options)
    code = jax_mlir.module_to_bytecode(module)
    if _release() >= (0, 5, 1):
        return compile_(code, _xla().DeviceList(devices), options)
    return compile_(code, options)


def _release() -> tuple[int, ...]:
    import jaxlib.version

    return tuple(int(part) for part in jaxlib.version.__version__.split(".")[:3])


def _stablehlo(text: str) -> object:
    xla = _xla()
    try:
        from jaxlib import _hlo as parser
    except ImportError:
        parser = xla
    try:
        proto = parser.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    except Exception:
        plain = _without_tables(text)
        if plain == text:
            raise
        proto = parser.hlo_module_from_text(plain).as_serialized_hlo_module_proto()
    if hasattr(xla.mlir, "hlo_to_stablehlo"):
        return xla.mlir.hlo_to_stablehlo(proto)
    return xla.mlir.mhlo_to_stablehlo(xla.mlir.xla_computation_to_mlir_module(xla.XlaComputation(proto)).encode())


def _without_tables(text: str) -> str:
    """The module without the tables of source lines, which older parsers do not know."""
    header, table, rest = text.partition("\nFileNames\n")
    if not table:
        return text
    start = re.search(r"^(?:ENTRY\s+)?%?[\w.\-]+[^\n]*\{[ \t]*$", rest, re.M)
    return re.sub(r" ?\bstack_frame_id=\d+", "", header + "\n\n" + rest[start.start():]) if start else text


def _memory(executable: object) -> dict:
    """What the executable says it needs, in bytes; None where this release does not tell."""
    try:
        stats = executable.get_compiled_memory_stats()
    except Exception:
        return dict.fromkeys(("temp_bytes", "argument_bytes", "output_bytes"))
    return {"temp_bytes": stats.temp_size_in_bytes, "argument_bytes": stats.argument_size_in_bytes,
            "output_bytes": stats.output_size_in_bytes}


def _cost(executable: object) -> dict:
    """XLA's own estimate for the optimised module, where this release can make one."""
    import jax

    try:
        found = _xla().hlo_module_cost_analysis(jax.devices("cpu")[0].client, executable.hlo_modules()[0])
        return {"flops": found.get("flops"), "bytes_accessed": found.get("bytes accessed")}
    except Exception:
        return {"flops": None, "bytes_accessed": None}


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
    kind = ir.FunctionType(ir.TypeAttr(main.operation.attributes["function_type"]).value)
    inputs = [stored if position == number else type_ for position, type_ in enumerate(kind.inputs)]
    main.operation.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, kind.results))


def _targets(target: str) -> list[str]:
    """A GPU's target config, and then with ever fewer of the fields that not every release knows."""
    found = [target]
    for name in _TARGET_FIELDS:
        shorter = re.sub(rf"\b{name}\s*(?:\{{[^{{}}]*\}}|:[^\n}}]*)", "", found[-1])
        if shorter != found[-1]:
            found.append(shorter)
    return found


def _value(text: str) -> object:
    """A flag's value with its type."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


if __name__ == "__main__":
    main()
