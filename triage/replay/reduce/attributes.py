"""Which attributes of an instruction a reproducer keeps: those that decide what is computed, and nothing of the user's."""
from __future__ import annotations

from triage.engine.ir import Instruction

#: Keys whose values name computations.
COMPUTATIONS = frozenset("to_apply calls select scatter condition body branch_computations true_computation "
                         "false_computation called_computations".split())
MAX_CONFIG = 1000       # characters of a custom call's configuration: a longer one is a kernel, with its source lines
_DROPPED = frozenset("metadata frontend_attributes origin statistics control-predecessors parameter_replication "
                     "original_value origin_recovery_table".split())


def kept_attributes(instruction: Instruction, sharded: bool) -> tuple[tuple[str, str], ...]:
    """In printed order. What is quoted may hold paths and names, so it stays only where it cannot.

    `sharded`: whether there are devices to shard over.
    """
    return tuple([(key, value) for key, value in instruction.attributes.items() if _says(key, value, instruction, sharded)])


def _says(key: str, value: str, instruction: Instruction, sharded: bool) -> bool:
    if key in _DROPPED:
        return False
    if key == "sharding":
        return sharded and not instruction.shape.is_tuple and "metadata" not in value
    if key == "backend_config" and (instruction.opcode != "custom-call" or len(value) > MAX_CONFIG):
        return False
    return '"' not in value or "/" not in value and "\\" not in value
