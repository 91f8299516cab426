"""Bytes in words."""
from __future__ import annotations

KIB, MIB, GB = 1024, 1024 ** 2, 1_000_000_000
MOST = 10 ** 24     # hostile text may hold numbers that no float does


def human_bytes(count: int | None) -> str:
    """A byte count for a sentence: "28.2 GB" (decimal, as GPU memory is sold) from 1e9 on, "24.0 MiB", "12.5 KiB", "96 B"."""
    if count is None:
        return "unknown"
    count = min(count, MOST)
    if count >= GB:
        return f"{count / GB:.1f} GB"
    if count >= MIB:
        return f"{count / MIB:.1f} MiB"
    if count >= KIB:
        return f"{count / KIB:.1f} KiB"
    return f"{count} B"
