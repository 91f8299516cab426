"""Toolchains: Python environments with a jaxlib and, for a GPU or a TPU, the compiler plugin that needs neither.

The service's own jaxlib compiles for CPUs. Others lie in folders `<platform>-<version>` below one directory, each a virtual
environment; `.ready` in it is written last. Sizes and the sets of wheels were tried: see `WHEELS`.
"""
from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from .process import DEFAULT_LIMITS, run_compiler

PLATFORMS = ("cpu", "cuda", "tpu")
#: What pip is asked for, one call after the other. The CUDA plugin's own dependencies (5 GB of libraries that only a real
#: GPU needs) are left out: of them the compiler uses nvcc's tools alone.
WHEELS = {
    "cpu": (("jax=={v}", "jaxlib=={v}"),),
    "cuda": (("jax=={v}", "jaxlib=={v}"),
             ("--no-deps", "jax-cuda12-plugin=={v}", "jax-cuda12-pjrt=={v}", "nvidia-cuda-nvcc-cu12")),
    "tpu": (("jax[tpu]=={v}",),),
}
#: The first release that can compile for a target without having it.
FIRST = {"cpu": (0, 4, 38), "cuda": (0, 4, 38), "tpu": (0, 4, 38)}
INSTALL_SECONDS = 1800
_READY = ".ready"
_VERSION = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}")
#: The smallest module that any backend compiles.
_TRIAL = """HloModule trial, entry_computation_layout={(f32[8,128]{1,0})->f32[8,128]{1,0}}

ENTRY %main (p: f32[8,128]) -> f32[8,128] {
  %p = f32[8,128]{1,0} parameter(0)
  ROOT %negate = f32[8,128]{1,0} negate(%p)
}
"""


class ToolchainError(Exception):
    """`str()` is one sentence for the operator."""


@dataclass(frozen=True)
class Toolchain:
    platform: str       # of PLATFORMS
    version: str        # of jaxlib
    python: Path

    @property
    def name(self) -> str:
        return f"{self.platform}-{self.version}"


def own() -> Toolchain:
    """The service's own jaxlib, for CPUs."""
    return Toolchain("cpu", metadata.version("jaxlib"), Path(sys.executable))


def installed(folder: Path) -> list[Toolchain]:
    """The own one and those in the folder, per platform the newest first."""
    found = [own()]
    for path in sorted(folder.glob("*-*")) if folder.is_dir() else ():
        platform, _, version = path.name.partition("-")
        if platform in PLATFORMS and _VERSION.fullmatch(version) and (path / _READY).exists():
            found.append(Toolchain(platform, version, path / "bin" / "python"))
    unique = {toolchain.name: toolchain for toolchain in reversed(found)}
    return sorted(unique.values(), key=lambda toolchain: (toolchain.platform, [-part for part in key(toolchain.version)]))


def key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def choose(toolchains: list[Toolchain], platform: str, first: str | None, last: str | None) -> Toolchain | None:
    """The newest one for the platform that may be the release which wrote the dump, or else the newest of all."""
    fitting = [toolchain for toolchain in toolchains if toolchain.platform == platform]
    same = [toolchain for toolchain in fitting if (first is None or key(first) <= key(toolchain.version))
            and (last is None or key(toolchain.version) <= key(last))]
    return next(iter(same or fitting), None)


def add(folder: Path, platform: str, version: str | None = None) -> Toolchain:
    """Makes a virtual environment with the wheels for a platform; what is there already stays. Raises ToolchainError."""
    version = version or own().version
    if platform not in PLATFORMS:
        raise ToolchainError(f"There are toolchains for {', '.join(PLATFORMS)}, not for {platform[:40]!r}.")
    if not _VERSION.fullmatch(version):
        raise ToolchainError(f"{version[:40]!r} is no jaxlib release, such as 0.10.2.")
    if key(version) < FIRST[platform]:
        raise ToolchainError(f"jaxlib {version} cannot compile for a {platform} target that is not there; "
                             f"{'.'.join(map(str, FIRST[platform]))} is the first that can.")
    home = folder / f"{platform}-{version}"
    if not (home / _READY).exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            _install(home, platform, version)
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise
    return Toolchain(platform, version, home / "bin" / "python")


def _install(home: Path, platform: str, version: str) -> None:
    shutil.rmtree(home, ignore_errors=True)     # of an attempt that was killed
    _call([sys.executable, "-m", "venv", str(home)], "No virtual environment could be made")
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    for wheels in WHEELS[platform]:
        _call([*pip, *(wheel.format(v=version) for wheel in wheels)],
              f"The wheels of {platform}-{version} could not be installed")
    (home / _READY).touch()


def _call(command: list[str], failed: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"{failed}: it took longer than {INSTALL_SECONDS // 60} minutes.") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()[-1:] or [""]
        raise ToolchainError(f"{failed}: {said[-1].removeprefix('ERROR: ')[:300]}")


def works(toolchain: Toolchain, target: str) -> str:
    """"" where a small module compiles; otherwise what went wrong. `target` is a GPU's target config, for cuda."""
    with tempfile.TemporaryDirectory(prefix="triage-replay-") as scratch:
        module = Path(scratch, "module.txt")
        module.write_text(_TRIAL)
        job = {"module": str(module), "platform": toolchain.platform, "target": target, "topology": "v5e:2x2",
               "partitions": 1, "replicas": 1}
        outcome = run_compiler(toolchain.python, job, Path(scratch), DEFAULT_LIMITS)
    return "" if outcome["status"] == "ok" else json.dumps(outcome.get("message", outcome["status"]))[:300]
