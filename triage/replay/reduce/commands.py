"""Lines that compile a reproducer with XLA's own tools."""
from __future__ import annotations

from triage.replay.source import Source

FILE = "repro.hlo"
TARGET = "target.pbtxt"         # the GPU's target config, as every GPU dump holds it
_PASSES = "--xla_dump_to=dump --xla_dump_hlo_pass_re=.*"


def commands(source: Source) -> tuple[str, ...]:
    """For a shell: the compile, with all passes dumped, and a run where the device is there. XLA has no public tool that
    compiles for a TPU."""
    if source.platform == "cuda":
        compiled = (f"hlo-opt --platform=CUDA --stage=buffer-assignment --xla_gpu_target_config_filename={TARGET} "
                    f"{_PASSES} {FILE}")
        run = f"XLA_FLAGS='{_PASSES}' run_hlo_module --platform=CUDA {FILE}"
        return (compiled, run) if source.partitions * source.replicas == 1 else (compiled,)
    if source.platform == "cpu":
        return (f"hlo-opt --platform=cpu --stage=hlo {_PASSES} {FILE}",)
    return ()
