"""Toolchains for the tests that compile, and dumps analysed once."""
from __future__ import annotations

import copy
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings

from triage.engine.analysis import Analysis
from triage.engine.report import analyse
from triage.replay.replay import replay
from triage.replay.source import source_of
from triage.replay.toolchains import Toolchain, installed

H100 = "NVIDIA H100 80GB HBM3"
MAKE = {"cuda": "make toolchain-gpu", "tpu": "make toolchain-tpu"}


@pytest.fixture(scope="session")
def toolchain() -> Callable[..., Toolchain]:
    """`toolchain("cuda")`: the newest one; the test skips where there is none, or fails with TRIAGE_REQUIRE_TOOLCHAINS=1."""
    def find(platform: str, version: str = "") -> Toolchain:
        for found in installed(Path(settings.TRIAGE_TOOLCHAINS)):
            if found.platform == platform and version in ("", found.version):
                return found
        required = os.environ.get("TRIAGE_REQUIRE_TOOLCHAINS") == "1" and not version
        (pytest.fail if required else pytest.skip)(f"no toolchain {platform} {version}: {MAKE.get(platform, '')}")
    return find


@pytest.fixture(scope="session")
def analysed(unpack_dump) -> Callable[[str], Analysis]:
    @cache
    def once(name: str) -> Analysis:
        return analyse(unpack_dump(name))
    return once


@pytest.fixture(scope="session")
def replayed(analysed, toolchain) -> Callable[..., dict]:
    """The first module of a dump's report with what recompiles measured; to be read, not changed."""
    @cache
    def run(name: str, platform: str, version: str = "") -> dict:
        analysis = analysed(name)
        module = copy.deepcopy(analysis.report["modules"][0])
        texts = analysis.modules[0]
        source = source_of(module, texts.text(0), texts.gpu_target, H100)
        assert source.platform == platform
        replay(module, source, toolchain(platform, version), lambda *progress: None)
        return module
    return run
