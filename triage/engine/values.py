"""What `flow` says of values: which parameters decide an array's content, where it lies, who writes and reads it.

Named tuples, because a large dump has millions of them.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Union

from . import opcodes
from .ir import Instruction, Shape

Source = tuple[int, tuple[int, ...]]            # (parameter number, index path inside its tuple) of a computation
WriteKey = tuple[str, ...]                      # call sites from the outside in, then the instruction, then a leaf index
Buffer = Union[Source, WriteKey]
NOWHERE: frozenset[Source] = frozenset()


class Leaf(NamedTuple):
    """One array. `pure`: nothing but the parameters `deps` (and constants) decides its content."""
    pure: bool
    deps: frozenset[Source] = NOWHERE
    kind: int = opcodes.NOTHING                 # strongest kind between the parameters and here
    same: Source | None = None                  # the parameter whose content this is, element for element
    buffers: tuple[Buffer, ...] = ()            # where it lies
    fixed: frozenset[Source] = NOWHERE          # sources that choose positions: pure only where they are constants
    free: Instruction | None = None             # last transpose on the way that moved nothing under the printed layouts
    large: bool = False                         # one of `deps` is an array that is large enough to follow


Tree = Union[Leaf, tuple]                       # of an array, or of a tuple's parts; a Leaf is asked for first
IMPURE = Leaf(False)
CONSTANT = Leaf(True)


class Read(NamedTuple):
    """An instruction that reads a buffer. `loops`: the while instructions around it, innermost first."""
    instruction: Instruction
    computation: str
    operand: Shape
    free: Instruction | None = None             # a transpose between buffer and reader that moves nothing
    loops: tuple[str, ...] = ()


class Write(NamedTuple):
    """An instruction that writes a new buffer out of parameters alone, as seen from the summarised computation."""
    key: WriteKey
    instruction: Instruction
    computation: str
    shape: Shape                                # of the array written
    deps: frozenset[Source]
    own: int                                    # kind of this instruction alone
    kind: int                                   # strongest on the chain
    fixed: frozenset[Source] = NOWHERE          # as in Leaf
    loops: tuple[str, ...] = ()                 # while instructions around it, innermost first


@dataclass
class Summary:
    """What a computation does, in terms of its own parameters."""
    root: Tree = CONSTANT
    writes: dict[WriteKey, Write] = field(default_factory=dict)
    reads: dict[Buffer, list[Read]] = field(default_factory=dict)
    state: dict[Buffer, str] = field(default_factory=dict)      # buffers a loop overwrites: the loop's carry starts there
    prefetches: dict[Buffer, int] = field(default_factory=dict)  # buffers moved whole into another memory space: bytes
    cut: bool = False           # a limit was hit: there may be more reads and writes

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """Numbers of the parameters on which the result depends."""
        return tuple(sorted({number for leaf in leaves(self.root) for number, _ in leaf.deps | leaf.fixed}))


def leaves(tree: Tree) -> Iterable[Leaf]:
    if isinstance(tree, Leaf):
        return (tree,)
    if all([isinstance(part, Leaf) for part in tree]):
        return tree
    return [leaf for _, leaf in paths(tree)]


def paths(tree: Tree) -> Iterable[tuple[tuple[int, ...], Leaf]]:
    stack: list[tuple[tuple[int, ...], Tree]] = [((), tree)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, Leaf):
            yield path, node
        else:
            stack.extend(((*path, i), part) for i, part in reversed(list(enumerate(node))))


def at(tree: Tree, path: Iterable[int]) -> Tree:
    for index in path:
        if isinstance(tree, Leaf) or index >= len(tree):
            return tree if isinstance(tree, Leaf) else IMPURE
        tree = tree[index]
    return tree


def like(shape: Shape, leaf: Leaf) -> Tree:
    """A tree of the shape's form with the same leaf everywhere."""
    return tuple(like(part, leaf) for part in shape.parts) if shape.parts is not None else leaf


def fits(tree: Tree, shape: Shape) -> bool:
    """Whether a value has the form its instruction prints. So no value is larger than its text, whatever that says."""
    stack = [(tree, shape)]
    while stack:
        node, form = stack.pop()
        if isinstance(node, Leaf):
            if node.pure and form.parts is not None:
                return False
        elif form.parts is None or len(form.parts) != len(node):
            return False
        else:
            stack.extend(zip(node, form.parts))
    return True


def shape_at(shape: Shape, path: Iterable[int]) -> Shape:
    for index in path:
        if shape.parts is None or index >= len(shape.parts):
            return shape
        shape = shape.parts[index]
    return shape


def returns(root: Tree, source: Source) -> bool:
    """Whether a loop body returns this element of its parameter unchanged; writing the same content again is no change."""
    returned = at(root, source[1])
    return isinstance(returned, Leaf) and returned.same == source
