"""GPUs whose target is known here, for dumps that do not say theirs. Figures in bytes, bytes per second, GHz."""
from __future__ import annotations

import json
from functools import cache
from pathlib import Path

#: A GpuTargetConfigProto as text; what is the same for all of them is written out.
_TARGET = """gpu_device_info {{
  cuda_compute_capability {{
    major: {major}
    minor: {minor}
    feature_extension: {extension}
  }}
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared_memory_per_core}
  shared_memory_per_block_optin: {shared_memory_per_block_optin}
  core_count: {cores}
  fpus_per_core: {fpus_per_core}
  memory_bandwidth: {memory_bandwidth}
  l2_cache_size: {l2_cache_size}
  clock_rate_ghz: {clock_rate_ghz}
  device_memory_size: {device_memory_size}
}}
platform_name: "CUDA"
dnn_version_info {{
  major: 9
  minor: 8
}}
runtime_version {{
  major: 12
  minor: 9
}}
device_description_str: "{name}"
"""


@cache
def _table() -> dict[str, dict]:
    data = json.loads(Path(__file__).with_name("gpus.json").read_text("utf-8"))
    return {name: dict(zip(data["columns"], figures, strict=True)) for name, figures in data["gpus"].items()}


def known_gpus() -> list[str]:
    """Names, the most common first."""
    return list(_table())


def known_target(name: str) -> str:
    """The target config of one of `known_gpus`, as a dump would hold it."""
    figures = _table()[name]
    major, minor = figures["capability"].split(".")
    return _TARGET.format(name=name, major=major, minor=minor, **figures,
                          extension="ACCELERATED_FEATURES" if figures["accelerated"] else "NONE")
