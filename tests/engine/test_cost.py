"""Bytes in words."""
from __future__ import annotations

import pytest

from triage.engine.cost import human_bytes


@pytest.mark.parametrize("count, words", [
    (None, "unknown"), (0, "0 B"), (96, "96 B"), (12800, "12.5 KiB"), (25165824, "24.0 MiB"), (28185722880, "28.2 GB")])
def test_words(count, words):
    assert human_bytes(count) == words


def test_no_number_is_too_large():
    assert human_bytes(10 ** 5000) == human_bytes(10 ** 24)
