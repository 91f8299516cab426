"""Child processes that end when their parent does, even if the parent is killed with SIGKILL.

`python -m triage.tether PARENT SIGNAL COMMAND...` ties itself to the process PARENT, then becomes COMMAND. Standard
library only: it is started for every part of the service.
"""
from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this process the signal when the parent thread ends. Does nothing outside Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)


def tethered(command: list[str], signal_number: int = signal.SIGTERM) -> list[str]:
    """`command`, to be started by this process's main thread, so that it gets the signal when this process ends."""
    return [sys.executable, "-m", "triage.tether", str(os.getpid()), str(int(signal_number)), *command]


def main() -> None:
    parent, signal_number, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    die_with_parent(signal_number)
    if os.getppid() != parent:
        sys.exit(1)  # the parent ended before the kernel was told
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
