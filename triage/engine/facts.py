"""What a module's other files say: target, flags, versions, memory."""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .files import ModuleFiles
from .memory import put_copies, read_memory
from .version import Facts, guess_version, read_debug_options, read_target

MAX_SIDE_FILE = 64 * 1024 * 1024        # of a memory report or an option file; a larger one is left out, and named

MAX_GPU_TARGET = 65536                  # characters of a GPU's target config


@dataclass
class ModuleFacts:
    """`target` is the device's own name where the dump has one; `notes` are sentences for the user."""
    platform: str | None = None         # "gpu", "cpu", "tpu"
    target: str | None = None
    gpu_target: str = ""                # text of the GPU's target config, or of what libtpu says of the TPU
    partitions: int | None = None
    version: dict | None = None
    flags: dict[str, str] = field(default_factory=dict)
    readers: dict[str, Callable[[], str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def gather(files: ModuleFiles, header: str, sample: str) -> ModuleFacts:
    """Reads the small files of a module. `header` is the last stage's, `sample` a piece of its instruction text."""
    found = ModuleFacts()
    for name, path in sorted(files.others.items()):
        if _size(path) > MAX_SIDE_FILE:
            found.notes.append(f"{name} is larger than {MAX_SIDE_FILE // 1024 ** 2} MiB and was not read.")
        else:
            found.readers[name] = _reader(path)
    found.flags = {key: ", ".join(value) if isinstance(value, list) else value
                   for key, value in read_debug_options(_first(found, ".debug_options")).items()}
    names = [stage.path.name for stage in files.stages] + list(files.others)
    found.platform = _platform(names, header + sample)
    found.gpu_target = (_first(found, ".gpu_target_config.pbtxt") or _first(found, ".target_arguments.txt"))[:MAX_GPU_TARGET]
    target = read_target(found.gpu_target)
    found.target = target.get("name") or _compute_capability(names)
    match = re.search(r"num_partitions=(\d{1,9})\b", header[:200_000])
    found.partitions = int(match[1]) if match else None
    found.version = guess_version(Facts(names, header[:65536] + sample, found.flags, sample,
                                        _first(found, "-memory-usage-report.txt")[:100],
                                        _first(found, "-buffer-assignment.txt")))
    return found


def memory(found: ModuleFacts, copies: list[dict]) -> dict:
    """The report's `memory`; also fills in `live_at_peak` of the copies where the dump tells."""
    result = read_memory(found.readers)
    put_copies(result, copies)
    found.notes += result.pop("notes")
    return result


def _reader(path: Path) -> Callable[[], str]:
    return lambda: path.read_text("utf-8", "backslashreplace").replace("\0", "\\0")


def _first(found: ModuleFacts, ending: str) -> str:
    """The text of the first file with this ending; "" where there is none or it cannot be read."""
    for name, read in found.readers.items():
        if name.endswith(ending):
            try:
                return read()
            except OSError as error:
                found.notes.append(f"{name} cannot be read: {error.strerror}.")
    return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _platform(names: list[str], text: str) -> str | None:
    joined = " ".join(names)
    if "gpu_after_optimizations" in joined or ".gpu_target_config" in joined or ".ptx" in joined:
        return "gpu"
    if "cpu_after_optimizations" in joined:
        return "cpu"
    if "tpu_comp_env" in joined or re.search(r":T\(\d+,\d+\)", text):
        return "tpu"
    return None


def _compute_capability(names: list[str]) -> str | None:
    """`sm_9.0` or `gfx942` out of a file name."""
    match = re.search(r"\.(sm_[\d.]+\d[a-z]?|gfx\w+?)_gpu_after_optimizations", " ".join(names))
    return match[1] if match else None
