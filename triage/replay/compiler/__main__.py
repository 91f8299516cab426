"""One compile of one HLO module, for a machine that need not be there. Runs in a toolchain's Python, not in the service's.

`python DIRECTORY`, of this file, reads a job as JSON from standard input and writes {"status": "ok", ...} or {"status":
"error", "message"} to the job's `result` file. Nothing is executed, only compiled. XLA may abort this process, or never end:
its parent sets limits and takes every end of it for an answer. It stands alone: no import but jax, the standard library and
the files beside it.

The job: `module` (file with HLO text), `platform` (cpu, cuda, tpu), `target` (GPU target config text) or `topology` and
`topology_options` (TPU), `partitions`, `replicas`, `disable` (passes), `given` (XLA flags without dashes -> value, left out
where this release does not know them), `options` (flags that it must know), `auto` ("all" or parameter numbers whose layout
XLA chooses), `transposed` (parameter number -> dimensions in their new order), `dump` (directory), `every_pass` (whether
each pass is dumped), `result`.
"""
from __future__ import annotations

import glob
import json
import os
import re
import sys
import time

import parameters
import releases

MAX_MESSAGE = 2000
#: Whether the partitioner may choose how arguments and results are sharded: of the header, and of the compile's options.
_PROPAGATION = ("allow_spmd_sharding_propagation_to_parameters", "allow_spmd_sharding_propagation_to_output")
#: What a release says of a flag, or of a flag's value, that it does not know.
_UNKNOWN = re.compile(r"No such compile option: '(\w+)'|While setting option (\w+),")


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
        with open(self.job["module"], encoding="utf-8", errors="backslashreplace") as file:
            text = releases.without_shardy(file.read())
        self.header = text.partition("\n")[0]
        started = time.monotonic()
        with jax_mlir.make_ir_context(), ir.Location.unknown():
            code, self.shape = releases.stablehlo(text)
            module = ir.Module.parse(code)
            self.explicit, self.left_to_xla = parameters.change(module, self.header, self.job)
            executable, left_out = self._compile_with_known(module)
            seconds = time.monotonic() - started
            self._check_auto()
        return {"status": "ok", "seconds": round(seconds, 2), "left_out": left_out, **_memory(executable), **_cost(executable)}

    def _devices(self) -> list:
        """The devices to compile for. Their number is partitions times replicas."""
        import jax
        from jax.experimental import topologies

        platform, count = self.job["platform"], self.job["partitions"] * self.job["replicas"]
        if platform == "cpu":
            return list(jax.devices("cpu"))[:count]
        if platform == "tpu":
            found = topologies.get_topology_desc(platform="tpu", topology_name=self.job["topology"],
                                                 **self.job.get("topology_options", {})).devices
            return list(found)[:count]
        for target in releases.targets(self.job["target"]):
            try:
                found = topologies.get_topology_desc(platform="cuda", topology_name="target", target_config=target,
                                                     topology=f"1x1x{count}").devices
                return list(found)[:count]
            except Exception as error:
                if "GpuTargetConfigProto" not in str(error):
                    raise
                refused = error
        raise refused

    def _compile_with_known(self, module: object) -> tuple[object, list[str]]:
        """The executable, and which of the flags that were `given` this release does not know."""
        given, left_out = dict(self.job.get("given", {})), []
        while True:
            try:
                return self._compile(module, {**given, **self.job.get("options", {})}), left_out
            except Exception as error:
                found = _UNKNOWN.search(f"{error}")
                name = (found[1] or found[2]) if found else None
                if given.pop(name, None) is None or name in self.job.get("options", {}):
                    raise
                left_out.append(name)

    def _check_auto(self) -> None:
        """Raises where the release did not leave the layouts to XLA: it says nothing, and takes the default ones."""
        if self.job["platform"] != "cuda" or not self.left_to_xla:
            return
        for path in glob.glob(os.path.join(glob.escape(self.job["dump"]), "*before_optimizations.txt")):
            with open(path, encoding="utf-8", errors="replace") as file:
                arguments, _ = parameters.arrays(file.readline())
            if len(arguments) > max(self.left_to_xla) and not any(arguments[n]["layout"] for n in self.left_to_xla):
                return
        release = ".".join(map(str, releases.release()))
        raise RuntimeError(f"jaxlib {release} cannot leave layouts to XLA for a GPU that is not there; newer ones can "
                           "(0.10.2 was tried)")

    def _compile(self, module: object, flags: dict[str, str]) -> object:
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
        options.env_option_overrides = [(name, _value(value)) for name, value in flags.items()]
        if self._loses_layouts() and self.explicit and not self.left_to_xla and not job.get("transposed"):
            options.argument_layouts, build.result_layout = self.shape.parameter_shapes(), self.shape.result_shape()
        for name in _PROPAGATION:
            if told := re.search(name + r"=\{([truefals,]*)\}", self.header):
                setattr(build, name, [part == "true" for part in told[1].split(",")])
        return releases.compiled(client, module, tuple(self.devices), options)

    def _loses_layouts(self) -> bool:
        return self.job["platform"] == "cuda" and releases.release() < releases.KEEPS_LAYOUTS


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
        found = releases.xla().hlo_module_cost_analysis(jax.devices("cpu")[0].client, executable.hlo_modules()[0])
        return {"flops": found.get("flops"), "bytes_accessed": found.get("bytes accessed")}
    except Exception:
        return {"flops": None, "bytes_accessed": None}


def _value(text: str) -> object:
    """A flag's value with its type."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


if __name__ == "__main__":
    main()
