"""What a reduction returns, and how it says that it cannot."""
from __future__ import annotations

from dataclasses import asdict, dataclass


class NoReproducer(Exception):
    """Why there is no small program that shows the copy; `str()` is one sentence for the user."""


@dataclass(frozen=True)
class Reproducer:
    """A small program that shows a copy, as a compile of it confirmed.

    No name, path or metadata of the user's is in `text`; what is in it of theirs are shapes, opcodes and small constants.
    """
    text: str                       # HLO, to be compiled as it is
    instructions: int               # lines of it that are instructions, those of reducers too
    copy: str                       # id, in the report, of the copy that was to be shown ("c1")
    shown: dict                     # of the copy in `text`: kind, where, bytes, from_shape, to_shape, introduced_by, trigger
    same_trigger: bool              # False: the same pass introduces it, but the pass suspected as the cause is not the same
    same_order: bool                # False: it is transposed, but into another order than in the module
    toolchain: str
    device: str
    seconds: float
    tries: int                      # compiles
    stopped: str                    # why it was not looked on for a smaller one; "" where nothing more could be left out
    commands: tuple[str, ...]       # lines that compile it, saved as `repro.hlo`

    def as_dict(self) -> dict:
        """Plain JSON."""
        return {**asdict(self), "commands": list(self.commands)}
