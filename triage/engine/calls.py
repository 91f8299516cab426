"""Who calls which computation, and how."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress
from operator import attrgetter
from typing import TypeVar

from .ir import Computation, Instruction

#: How a computation is looked at. FUSED: it runs inside one kernel, and nothing in it writes or reads a buffer by
#: itself. SAME: only which parameters it returns unchanged. BODY: as a loop body, in which what the loop changes is new.
CALLED, FUSED, SAME, BODY = range(4)
#: In which modes a callee is looked at, by how it is called; others in the caller's.
MODES = {"fusion": (FUSED,), "-start": (FUSED,), "body": (SAME, BODY), "condition": (CALLED,)}

_CALLERS = frozenset({"fusion", "call", "while", "conditional", "async-start", "async-update", "async-done"})
_CALL_KEYS = ("calls", "to_apply", "body", "condition", "branch_computations", "true_computation",
              "false_computation", "called_computations")


class _Calls(dict[str, bool]):
    """By opcode: whether values flow into a computation that it calls."""

    def __missing__(self, opcode: str) -> bool:
        return self.setdefault(opcode, opcode in _CALLERS or opcode.endswith("-start"))


_CALLS = _Calls()
_OPCODE = attrgetter("opcode")
_Node = TypeVar("_Node", str, tuple[str, int])


#: An instruction and the computations it calls, each with how it is called.
Caller = tuple[Instruction, tuple[tuple[str, str], ...]]


def callers(computation: Computation) -> tuple[Caller, ...]:
    """The instructions through which values flow into computations they call, in order."""
    calling = compress(computation.instructions, map(_CALLS.__getitem__, map(_OPCODE, computation.instructions)))
    return tuple([(i, tuple(_called(i))) for i in calling])


def _called(instruction: Instruction) -> list[tuple[str, str]]:
    opcode = instruction.opcode
    if opcode == "fusion":
        callee = instruction.called("calls")
        return [(callee, "fusion")] if callee is not None else []
    return [(name, "-start" if opcode.endswith("-start") else key)
            for key in _CALL_KEYS for name in branch_names(instruction, key)]


def branch_names(instruction: Instruction, key: str) -> list[str]:
    value = instruction.attributes.get(key, "")
    return [part.strip().lstrip("%") for part in value.strip("{}").split(",") if part.strip()]


def post_order(start: _Node, children: Callable[[_Node], list[_Node]]) -> Iterable[_Node]:
    """Nodes of a graph, each once and after its children; where there is a circle it is opened somewhere."""
    done: dict[_Node, None] = {}
    opened: set[_Node] = set()
    stack = [start]
    while stack:
        node = stack[-1]
        if node not in opened:
            opened.add(node)
            stack += [child for child in children(node) if child not in opened]
            continue
        stack.pop()
        done.setdefault(node)
    return done
