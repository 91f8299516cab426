"""What a recompile needs of a module, taken from its report and its first text."""
from __future__ import annotations

import re
from dataclasses import dataclass, field

from triage.engine.ir import number

from .gpus import known_gpus, known_target

MAX_DEVICES = 512           # a program for more is not compiled again
#: For a TPU dump that does not say its own.
TPU_TOPOLOGIES = {1: "v5e:2x2", 2: "v5e:2x2", 4: "v5e:2x2", 8: "v5e:2x4", 16: "v5e:4x4"}
#: What libtpu writes into its dumps -> what it is asked for, as read from dumps of libtpu 0.0.42 made for each.
_TPUS = {"VIPERFISH lite": "v5e", "VIPERFISH": "v5p", "GHOSTLITE": "v6e", "PUFFERFISH": "v4", "DRAGONFISH": "v3",
         "JELLYFISH": "v2", "6acc60406": "tpu7x"}
_FLAT = ("v5e", "v6e", "v3", "v2")      # their topologies have two dimensions
#: Flags that say where things are, or what is dumped, not how a module is compiled; and those of a machine with a GPU.
_NOT_GIVEN = re.compile(r"xla_dump_|xla_gpu_dump_|xla_gpu_\w*autotun|\w*_(path|dir|file|filename|from|to|directory)$")
#: Truth values, numbers and names of enums. Nothing that could be a path.
_PLAIN = re.compile(r"true|false|-?\d{1,18}|-?\d{1,9}\.\d{1,9}|[A-Z][A-Z0-9_]{0,60}")
_DISABLED = "xla_disable_hlo_passes"
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
    topology_options: dict = field(default_factory=dict)     # of a TPU: how its chips are distributed
    flags: dict[str, str] = field(default_factory=dict)      # that the dump was compiled with
    disabled: list[str] = field(default_factory=list)        # passes that were disabled in it

    def job(self, path: str) -> dict:
        """The part of a compiler's job that is the same for all variants."""
        return {"module": path, "platform": self.platform, "target": self.target, "topology": self.topology,
                "topology_options": self.topology_options, "partitions": self.partitions, "replicas": self.replicas,
                "given": self.flags, "disable": self.disabled}


def source_of(module: dict, text: str, target: str, gpu: str | None = None) -> Source:
    """`module` of a report, its earliest text, and its dump's own target ("" for none). Raises NoReplay.

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
    topology, options = _topology(target, partitions * replicas) if platform == "tpu" else ("", {})
    flags, disabled = _flags(module.get("flags") or {}, platform)
    return Source(module["name"], text, platform, _device(platform, module, target, topology),
                  target if platform == "cuda" else "", topology, partitions, replicas, options, flags, disabled)


def _topology(target: str, devices: int) -> tuple[str, dict]:
    """The name of a TPU topology and what is said besides: those of the dump, or a v5e large enough."""
    version = re.search(r"\bversion: TPU_VERSION_(\w+)(?:\s+variant: \"(\w*)\")?", target)
    name = _TPUS.get(" ".join(part for part in version.groups() if part)) if version else None
    host, hosts = _bounds(target, "chips_per_host_bounds"), _bounds(target, "host_bounds")
    if name is None or not host or not hosts:
        return next((name for size, name in TPU_TOPOLOGIES.items() if size >= devices), "v5e:16x16"), {}
    chips = [chip * count for chip, count in zip(host, hosts)]
    config = re.search(r'\bchip_config_name: "(\w{1,40})"', target)
    options = {"chips_per_host_bounds": host, **({"chip_config_name": config[1]} if config else {})}
    wrap = re.search(r"\bwrap \{([^}]*)\}", target)
    if wrap and "true" in wrap[1]:
        options["wrap"] = [f"{axis}: true" in wrap[1] for axis in "xyz"]
    return f"{name}:{'x'.join(map(str, chips[:2] if name in _FLAT else chips))}", options


def _bounds(target: str, name: str) -> list[int]:
    found = re.search(rf"\b{name} \{{\s*x: (\d{{1,4}})\s+y: (\d{{1,4}})\s+z: (\d{{1,4}})\s*\}}", target)
    return [int(size) for size in found.groups()] if found else []


def _flags(told: dict[str, str], platform: str) -> tuple[dict[str, str], list[str]]:
    """(flags, disabled passes) of the dump's own debug options that say how it was compiled for this platform."""
    others = tuple(f"xla_{name}_" for name in _PLATFORMS if _PLATFORMS[name] != platform)
    flags = {name: value for name, value in sorted(told.items())
             if name.startswith("xla_") and not name.startswith(others) and name != _DISABLED
             and not _NOT_GIVEN.match(name) and _PLAIN.fullmatch(value)}
    return flags, disabled_passes(told)


def disabled_passes(told: dict[str, str]) -> list[str]:
    """Those that the dump's own debug options disabled."""
    return [name for name in re.split(r"[,\s]+", told.get(_DISABLED, "")) if re.fullmatch(r"[\w.\-]{1,100}", name)]


def _device(platform: str, module: dict, target: str, topology: str) -> str:
    described = re.search(r'device_description_str: "([^"]+)"', target)
    if platform == "cuda":
        return described[1] if described else module["target"] or "an NVIDIA GPU"
    return f"TPU {topology}" if platform == "tpu" else "this machine's CPU"
