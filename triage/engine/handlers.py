"""What each opcode makes of its operands' values: one function per opcode through which values flow."""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable

from . import opcodes
from .calls import BODY, CALLED, FUSED, SAME, branch_names
from .ir import Instruction, Shape, number
from .values import CONSTANT, IMPURE, Leaf, Source, Tree, at, fits, leaves, like, returns

if TYPE_CHECKING:
    from .evaluation import Evaluation

MAX_GROWTH = 16         # a callee's own parameter smaller than `min_bytes` by more than this is not followed
_ASYNC = ("-start", "-update", "-done")
_INDEX = re.compile(r",\s*index=(\d{1,9})(?!\d)")


def plain(e: Evaluation, instruction: Instruction) -> Tree:
    """An opcode of `opcodes.FOLLOWED`."""
    opcode, names = instruction.opcode, instruction.operands
    if opcode in opcodes.PASS and names:
        return e.operand(names[0])
    operands = [e.operand(name) for name in names]
    kind = opcodes.kind_of(instruction, e.operand_shape(names[0]) if names else None)
    if kind == opcodes.NOTHING and operands:
        value = operands[0]
        moved = opcode == "transpose" and isinstance(value, Leaf) and bool(value.buffers)
        return value._replace(free=instruction) if moved else value
    e.note_reads(instruction)
    if kind is None or instruction.shape.is_tuple:
        return e.moved_apart(instruction, instruction.shape, operands, kind, ())
    first_index = {"dynamic-slice": 1, "dynamic-update-slice": 2}.get(opcode, len(operands))
    leaf = e.joined(operands[:first_index], kind)
    if opcode == "copy" and operands:
        leaf = _same_as(operands[0], leaf)
    if first_index < len(operands):
        # Indices that come from an input (a token) choose what is read: a lookup, not a copy.
        indices = e.joined(operands[first_index:], kind)
        leaf = leaf._replace(fixed=leaf.fixed | indices.deps | indices.fixed) if indices.pure else IMPURE
    return e.written(instruction, instruction.shape, leaf, kind, ())


def _same_as(operand: Tree, leaf: Leaf) -> Leaf:
    return leaf._replace(same=operand.same) if isinstance(operand, Leaf) and operand.same else leaf


def constant(e: Evaluation, instruction: Instruction) -> Tree:
    return like(instruction.shape, CONSTANT)


def parameter(e: Evaluation, instruction: Instruction) -> Tree:
    position = number(instruction.arguments)
    # What a callee is given may be a large parameter made small, and be made large again there.
    large = e.min_bytes if e.computation is e.flow.module.entry else e.min_bytes // MAX_GROWTH

    def build(shape: Shape, path: tuple[int, ...]) -> Tree:
        if shape.parts is not None:
            return tuple([build(part, (*path, i)) for i, part in enumerate(shape.parts)])
        source: Source = (-1 if position is None else position, path)
        if e.returned is not None and not returns(e.returned, source):
            return IMPURE
        return Leaf(True, frozenset((source,)), opcodes.NOTHING, source, (source,), large=shape.bytes >= large)
    return build(instruction.shape, ())


def tuple_(e: Evaluation, instruction: Instruction) -> Tree:
    value = tuple([e.operand(name) for name in instruction.operands])
    return value if fits(value, instruction.shape) else like(instruction.shape, IMPURE)


def element(e: Evaluation, instruction: Instruction) -> Tree:
    match = _INDEX.match(instruction.line, instruction.tail_at)
    index = int(match[1]) if match else number(instruction.attributes.get("index", ""))
    if not instruction.operands or index is None:
        return like(instruction.shape, IMPURE)
    value = e.operand(instruction.operands[0])
    return value[index] if type(value) is tuple and index < len(value) else at(value, (index,))


def fusion(e: Evaluation, instruction: Instruction) -> Tree:
    e.note_reads(instruction)
    name = instruction.called("calls")
    if name is None:
        return like(instruction.shape, IMPURE)
    inner = e.flow.summary(name, FUSED)
    if not fits(inner.root, instruction.shape):
        return like(instruction.shape, IMPURE)
    needed = inner.needed
    operands = [e.operand(operand) if position in needed else IMPURE for position, operand in enumerate(instruction.operands)]
    return e.written_tree(instruction, instruction.shape, e.mapped(inner.root, operands), inner.root)


def call(e: Evaluation, instruction: Instruction) -> Tree:
    name = instruction.called("to_apply") or instruction.called("calls") or ""
    return _callee(e, instruction, name, [e.operand(name) for name in instruction.operands])


def _callee(e: Evaluation, instruction: Instruction, name: str, operands: list[Tree], site: str = "") -> Tree:
    """What a called computation makes of its operands."""
    callee = e.flow.summary(name, e.inner)
    if not fits(callee.root, instruction.shape):
        return like(instruction.shape, IMPURE)
    if e.quiet:
        return e.mapped(callee.root, operands)
    return e.inline(instruction, callee, operands, site=site)


def while_(e: Evaluation, instruction: Instruction) -> Tree:
    body = instruction.called("body") or ""
    initial = e.operand(instruction.operands[0]) if instruction.operands else IMPURE
    if isinstance(initial, Leaf) and instruction.shape.is_tuple or not fits(initial, instruction.shape):
        initial = like(instruction.shape, IMPURE)
    carried = _carried(e, instruction, e.flow.summary(body, SAME).root, initial)
    if not e.quiet:
        condition = e.flow.summary(instruction.called("condition") or "", CALLED)
        e.inline(instruction, condition, [carried], (instruction.name,), f"{instruction.name}:condition")
        e.inline(instruction, e.flow.summary(body, BODY), [carried], (instruction.name,))
    return carried


def _carried(e: Evaluation, instruction: Instruction, root: Tree, initial: Tree) -> Tree:
    """What the body reads and the loop returns: elements the body returns unchanged; the rest IMPURE."""
    def build(tree: Tree, path: tuple[int, ...]) -> Tree:
        if not isinstance(tree, Leaf):
            return tuple([build(part, (*path, i)) for i, part in enumerate(tree)])
        if returns(root, (0, path)):
            return tree
        for buffer in tree.buffers:
            e.note(instruction).state.append((buffer, instruction.name))
        return IMPURE
    return build(initial, ())


def conditional(e: Evaluation, instruction: Instruction) -> Tree:
    names = [name for key in ("branch_computations", "true_computation", "false_computation")
             for name in branch_names(instruction, key)]
    operands = [e.operand(operand) for operand in instruction.operands]
    results = [_callee(e, instruction, name, [value], f"{instruction.name}:{number}")
               for number, (name, value) in enumerate(zip(names, operands[1:]))]
    if not results or not operands or not all(leaf.pure for leaf in leaves(operands[0])):
        return like(instruction.shape, IMPURE)
    return _merged(e, instruction.shape, results)


def _merged(e: Evaluation, shape: Shape, results: list[Tree]) -> Tree:
    """One of several values."""
    if shape.parts is not None:
        return tuple([_merged(e, part, [at(tree, (i,)) for tree in results]) for i, part in enumerate(shape.parts)])
    found = [tree if isinstance(tree, Leaf) else IMPURE for tree in results]
    joined = e.joined(found, opcodes.NOTHING)
    same = found[0].same if all(leaf.same == found[0].same for leaf in found) else None
    buffers = tuple(dict.fromkeys(buffer for leaf in found for buffer in leaf.buffers))
    return joined._replace(same=same, buffers=buffers) if joined.pure else IMPURE


def custom_call(e: Evaluation, instruction: Instruction) -> Tree:
    target = opcodes.target(instruction)
    if target in opcodes.CONSTANT_CALLS:
        return like(instruction.shape, CONSTANT)
    if target in opcodes.PASS_CALLS and instruction.operands and not instruction.shape.is_tuple:
        return _merged(e, instruction.shape, [e.operand(name) for name in instruction.operands])
    e.note_reads(instruction)
    return like(instruction.shape, IMPURE)


def async_start(e: Evaluation, instruction: Instruction) -> Tree:
    """`x-start` holds ((operands), output, context); copy-start holds (output, operand, context)."""
    operands = tuple([e.operand(name) for name in instruction.operands])
    opcode, shape = instruction.opcode, instruction.shape
    if shape.parts is None or not operands:
        return like(shape, IMPURE)
    if opcode == "copy-start":
        return _copy_start(e, instruction, operands)
    e.note_reads(instruction)
    position = 1 if len(shape.parts) > 1 else 0
    target = shape.parts[position]
    name = instruction.called("calls") or instruction.called("to_apply")
    if name is not None:
        inner = e.flow.summary(name, FUSED).root
        if not fits(inner, target):
            return like(shape, IMPURE)
        output = e.written_tree(instruction, target, e.mapped(inner, operands), inner)
    else:
        kind = opcodes.MOVES.get(opcode[:-len("-start")])
        if kind is not None and not target.is_tuple and len(operands) == 1:
            output: Tree = e.written(instruction, target, e.joined(operands, kind), kind, (position,))
        else:
            output = e.moved_apart(instruction, target, operands, kind, (position,))
    rest = [like(part, CONSTANT) for part in shape.parts[2:]]
    value = (operands if shape.parts[0].is_tuple else operands[0], output, *rest) if position else (output,)
    return value if fits(value, shape) else like(shape, IMPURE)


def _copy_start(e: Evaluation, instruction: Instruction, operands: tuple[Tree, ...]) -> Tree:
    target, source = instruction.shape.parts[0], e.operand_shape(instruction.operands[0])
    value = operands[0]
    rest = tuple([like(part, CONSTANT) for part in instruction.shape.parts[2:]])
    if isinstance(value, Leaf) and source is not None and source.memory_space != target.memory_space \
            and source.order == target.order:
        # The compiler moves an array into on-chip (or host) memory while it is needed: no second copy in HBM.
        if value.pure and value.deps and target.bytes >= e.min_bytes:
            e.note(instruction).prefetches.extend([(buffer, target.bytes) for buffer in value.buffers])
        return (value, value, *rest)
    e.note_reads(instruction)
    kind = opcodes.COPY if source is None or source.order == target.order else opcodes.TRANSPOSE
    leaf = _same_as(value, e.joined(operands, kind))
    return (e.written(instruction, target, leaf, kind, ()), value, *rest)


def async_end(e: Evaluation, instruction: Instruction) -> Tree:
    value = e.operand(instruction.operands[0]) if instruction.operands else IMPURE
    if instruction.opcode.endswith("-update"):
        return value
    position = 0 if instruction.opcode == "copy-done" else 1
    result = at(value, (position,)) if not isinstance(value, Leaf) and len(value) > position else value
    return result if isinstance(result, Leaf) != instruction.shape.is_tuple else like(instruction.shape, IMPURE)


Handler = Callable[["Evaluation", Instruction], Tree]


class _Handlers(dict[str, "Handler | None"]):
    """By opcode; None for one that makes a new quantity of whatever it reads."""

    def __missing__(self, opcode: str) -> Handler | None:
        handler: Handler | None = None
        if opcode in opcodes.CONSTANT:
            handler = constant
        elif opcode.endswith("-start"):
            handler = async_start
        elif opcode.endswith(_ASYNC):
            handler = async_end
        elif opcode in opcodes.FOLLOWED:
            handler = plain
        return self.setdefault(opcode, handler)


HANDLERS = _Handlers({
    "parameter": parameter, "tuple": tuple_, "get-tuple-element": element, "fusion": fusion, "call": call, "while": while_,
    "conditional": conditional, "custom-call": custom_call})
FOLLOWED, NEW, PARAMETER, STRUCTURE = "followed", "new", "parameter", "structure"


class _Roles(dict[str, str]):
    """What an opcode is to the flow; STRUCTURE stands for those that carry several values or call computations, and for
    `add-dependency`, whose second operand, a token, may be made of anything."""

    def __missing__(self, opcode: str) -> str:
        if opcode == "add-dependency":
            role = STRUCTURE
        elif opcode in opcodes.FOLLOWED:
            role = FOLLOWED
        elif opcode == "parameter":
            role = PARAMETER
        else:
            role = NEW if HANDLERS[opcode] is None else STRUCTURE
        return self.setdefault(opcode, role)


ROLES = _Roles()
