"""Child processes that end when their parent does, even if the parent is killed with SIGKILL.

`python -m triage.tether PARENT COMMAND...` ties itself to the process PARENT, then becomes COMMAND. Standard library
only: it is started for every part of the service. The tie is SIGKILL: a process can ignore any other signal, or be too
stuck to follow it, and whoever is left without a parent has nobody to kill it after a while.
"""
from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread of the process `parent` that made it ends; Linux alone can.

    Where the parent has ended already, this process does so at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)     # the parent ended before the kernel was told


def tethered(command: list[str]) -> list[str]:
    """`command`, to be started by this process's main thread, so that it is killed when this process ends."""
    return [sys.executable, "-m", "triage.tether", str(os.getpid()), *command]


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    die_with_parent(parent)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
