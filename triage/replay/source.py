"""What a recompile needs of a module, taken from its report and its first text."""
from __future__ import annotations

import re
from dataclasses import dataclass

from triage.engine.ir import number

from .gpus import known_gpus, known_target

MAX_DEVICES = 512           # a program for more is not compiled again
TPU_TOPOLOGIES = {1: "v5e:2x2", 2: "v5e:2x2", 4: "v5e:2x2", 8: "v5e:2x4", 16: "v5e:4x4"}
_PLATFORMS = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
_COUNT = re.compile(r"\b(num_partitions|replica_count)=(\d{1,9})\b")
_HEADER = 200_000           # characters of the header that are looked at


class NoReplay(Exception):
    """Why a module cannot be compiled again; `str()` is one sentence for the user."""


@dataclass(frozen=True)
class Source:
    """`text` is HLO; `platform` a toolchain's; `target` the text of a GPU's target config; `topology` a TPU's."""
    name: str
    text: str
    platform: str
    device: str             # for the reader: "NVIDIA H100 80GB HBM3"
    target: str
    topology: str
    partitions: int
    replicas: int

    def job(self, path: str) -> dict:
        """The part of a compiler's job that is the same for all variants."""
        return {"module": path, "platform": self.platform, "target": self.target, "topology": self.topology,
                "partitions": self.partitions, "replicas": self.replicas}


def source_of(module: dict, text: str, target: str, gpu: str | None = None) -> Source:
    """`module` of a report, its earliest text, and its dump's own GPU target ("" for none). Raises NoReplay.

    `gpu` names one of `known_gpus` for a dump that has no target.
    """
    platform = _PLATFORMS.get(module["platform"] or "")
    if platform is None:
        raise NoReplay("The dump does not show for which platform it was compiled.")
    if platform == "cuda" and not target:
        if gpu not in known_gpus():
            raise NoReplay("The dump has no gpu_target_config.pbtxt: name the GPU it was compiled for "
                           f"({', '.join(known_gpus())}).")
        target = known_target(gpu)
    if platform == "cuda" and 'platform_name: "ROCM"' in target:
        raise NoReplay("The module was compiled for an AMD GPU; toolchains are for CPU, NVIDIA GPU and TPU.")
    counts = {name: number(value) or 1 for name, value in _COUNT.findall(text[:_HEADER].partition("\n\n")[0])}
    partitions, replicas = counts.get("num_partitions", 1), counts.get("replica_count", 1)
    if partitions * replicas > MAX_DEVICES:
        raise NoReplay(f"The module is for {partitions * replicas} devices; at most {MAX_DEVICES} are tried.")
    topology = next((name for size, name in TPU_TOPOLOGIES.items() if size >= partitions * replicas), "v5e:16x16")
    return Source(module["name"], text, platform, _device(platform, module, target, topology), target, topology,
                  partitions, replicas)


def _device(platform: str, module: dict, target: str, topology: str) -> str:
    described = re.search(r'device_description_str: "([^"]+)"', target)
    if platform == "cuda":
        return described[1] if described else module["target"] or "an NVIDIA GPU"
    return f"TPU {topology}" if platform == "tpu" else "this machine's CPU"
