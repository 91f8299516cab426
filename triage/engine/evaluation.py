"""One walk over one computation: which of its values are made of parameters alone, what they are written to, who reads them."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import and_, attrgetter, not_
from typing import TYPE_CHECKING, TypeVar

from . import opcodes
from .calls import BODY, CALLED, FUSED, SAME
from .handlers import FOLLOWED, HANDLERS, NEW, PARAMETER, ROLES
from .ir import Computation, Instruction, Shape, number
from .notes import Notes, summarise
from .values import (
    IMPURE,
    NOWHERE,
    Buffer,
    Leaf,
    Read,
    Source,
    Summary,
    Tree,
    Write,
    WriteKey,
    at,
    leaves,
    like,
    paths,
    shape_at,
)

if TYPE_CHECKING:
    from .flow import ModuleFlow

MAX_DEPENDENCIES = 2048         # a value of more parameters than this is treated as a new quantity
MAX_DEPTH = 200                 # of calls around a write that is still counted

_DEFINITIONS = attrgetter("definitions")
_Value = TypeVar("_Value")


class Evaluation:
    """One walk over one computation's instructions.

    `before` is the walk over the computation that had its place in the stage before. Passes leave most lines alone: what
    no change can have touched is taken over from it.
    """

    def __init__(self, flow: ModuleFlow, computation: Computation, mode: int, before: Evaluation | None = None) -> None:
        self.flow, self.computation = flow, computation
        self.mode, self.inner = mode, mode if mode in (FUSED, SAME) else CALLED
        self.quiet = mode in (FUSED, SAME)      # notes neither writes nor reads
        # Of a loop's carry only what the body returns unchanged can be a parameter's value.
        self.returned = flow.summary(computation.name, SAME).root if mode == BODY else None
        self.min_bytes = flow.flow.min_bytes
        self.values: dict[str, Tree] = {}
        self.notes: dict[str, Notes] = {}       # by instruction name
        self.live: set[str] = set()             # made of a large parameter
        self.new: set[str] = set()              # new quantities
        self._by_name = computation.by_name
        self._waiting: set[str] = set()
        self._numbers = {name: flow.number(name) for name, _ in flow.flow.called(computation)}
        self._old: dict[str, Instruction] = {}      # the instructions of `before`
        self._kept: set[Instruction] = set()        # those that may stand for the same here
        self._gone: set[str] = set()                # names that are not here any more
        self._known: dict[str, Tree] = {}           # the values in `before`
        # Out of order (by hand, or damaged) a value may depend on later ones, or on itself; of two instructions of one
        # name the same line may stand for the one here and not there.
        if before is not None and computation.ordered is computation.instructions \
                and not computation.is_ambiguous and not before.computation.is_ambiguous:
            self._inherit(before)

    def _inherit(self, before: Evaluation) -> None:
        changed = {name for name, number in before._numbers.items() if self.flow.number(name) != number}
        callers = [caller for caller, names in self.flow.flow.callers(self.computation)
                   if any([name in changed for name, _ in names])]
        given = self.computation.parameters if before.returned != self.returned else ()
        self._old, self._known = before.computation.by_name, before.values
        self._kept = set(before.computation.instructions)
        self._kept.difference_update(callers, given)
        self._gone = self._old.keys() - self._by_name.keys()
        self.values, self.notes = _without(before.values, self._gone), _without(before.notes, self._gone)
        self.live, self.new = before.live - self._gone, before.new - self._gone

    def run(self) -> Summary:
        """Looks only at what large parameters flow into; everything else is evaluated where such a value meets it."""
        if not self.quiet:
            self._follow_parameters()
        root = self.computation.root
        result = self.operand(root.name) if root is not None else IMPURE
        in_order = filter(self.notes.__contains__, self._by_name) if self.notes else ()
        return summarise(result, map(self.notes.__getitem__, in_order))

    def _follow_parameters(self) -> None:
        """Evaluates what reads a large parameter, or something made of one, in order; notes reads and writes on the way."""
        old, known, ordered = self._old, self._known, self.computation.ordered
        values, live, new = self.values, self.live, self.new
        changed = self._gone        # names that stand for something else than before, and more as they are found
        # Asked of one instruction after the other while `changed` grows, and without a step of ours for those as before.
        as_before = map(and_, map(self._kept.__contains__, ordered), map(changed.isdisjoint, map(_DEFINITIONS, ordered)))
        for instruction in compress(ordered, map(not_, as_before)):
            name, definitions, role = instruction.name, instruction.definitions, ROLES[instruction.opcode]
            if name in old:
                self._forget(name)
            reads_live = not live.isdisjoint(definitions)
            if role is NEW or (role is FOLLOWED and not new.isdisjoint(definitions)):
                # Most of a program: a new quantity, or element by element made of one.
                new.add(name)
                values[name] = IMPURE
                if reads_live:
                    self.note_reads(instruction)
                if known.get(name) is IMPURE:
                    continue    # its shape may have changed, but no user asks for that of a new quantity
            elif reads_live or role is PARAMETER:
                self._follow(name)
            if old and not self._is_as_before(instruction):
                changed.add(name)
        self._old, self._kept, self._gone, self._known = {}, set(), set(), {}

    def _forget(self, name: str) -> None:
        self.values.pop(name, None)
        self.notes.pop(name, None)
        self.live.discard(name)
        self.new.discard(name)

    def _is_as_before(self, instruction: Instruction) -> bool:
        """Whether users of an instruction find the same value and shape as at the stage before."""
        old, name = self._old.get(instruction.name), instruction.name
        if old is None or not (old.shape is instruction.shape or old.shape == instruction.shape):
            return False
        now, then = self.values.get(name), self._known.get(name)
        return now is then or now == then

    def _follow(self, name: str) -> None:
        tree = self.operand(name)
        if isinstance(tree, Leaf) and not tree.pure:
            self.new.add(name)
        elif any([leaf.large for leaf in leaves(tree)]):
            self.live.add(name)

    # -- values of operands ------------------------------------------------------------------------------------------

    def operand(self, name: str) -> Tree:
        """Value of an operand; `t#0#1` is element 1 of element 0 of `t`."""
        value = self.values.get(name)
        if value is not None:
            return value
        if name in self._by_name:
            return self._demand(name)
        base, *indices = name.split("#")
        if base not in self._by_name:
            return IMPURE
        return at(self._demand(base), (number(i) or 0 for i in indices))

    def _demand(self, name: str) -> Tree:
        """Evaluates an instruction after those it needs; one that needs itself (damaged text) gets IMPURE."""
        values, stack = self.values, [name]
        while stack:
            current = stack[-1]
            if current in values:
                stack.pop()
                continue
            instruction = self._by_name[current]
            missing = self._missing(instruction)
            if missing:
                self._waiting.add(current)
                unseen = [operand for operand in missing if operand not in self._waiting]
                for operand in unseen:
                    simple = self._by_name[operand]
                    if operand in values or self._missing(simple):
                        stack.append(operand)
                    else:       # nearly always: no need to come back to it
                        values[operand] = self._evaluate(simple)
                if unseen:
                    continue
            for operand in missing:     # each of them waits for this one
                values[operand] = IMPURE
            values[current] = self._evaluate(instruction)
            stack.pop()
        return values[name]

    def _missing(self, instruction: Instruction) -> list[str]:
        values, by_name = self.values, self._by_name
        return [operand for operand in self._needed(instruction) if operand not in values and operand in by_name]

    def _needed(self, instruction: Instruction) -> Sequence[str]:
        """Definitions whose values decide this one's; none where a new quantity is made of whatever is read."""
        opcode = instruction.opcode
        if self.mode == SAME and opcode in opcodes.CHANGING:
            return ()
        if opcode == "fusion":
            return self.needed_by_root(instruction)
        if opcode == "custom-call" and opcodes.target(instruction) not in opcodes.PASS_CALLS:
            return ()
        return instruction.definitions if ROLES[opcode] is not NEW else ()

    def needed_by_root(self, instruction: Instruction) -> list[str]:
        """The operands on which the result of a fused computation depends."""
        names = instruction.definitions
        numbers = self.flow.summary(instruction.called("calls") or "", FUSED).needed
        return [names[n] for n in numbers if 0 <= n < len(names)]

    def operand_shape(self, name: str) -> Shape | None:
        definition = self._by_name.get(name)
        if definition is not None:
            return definition.shape
        base, *indices = name.split("#")
        definition = self._by_name.get(base)
        return shape_at(definition.shape, (number(i) or 0 for i in indices)) if definition is not None else None

    def _evaluate(self, instruction: Instruction) -> Tree:
        opcode = instruction.opcode
        if self.mode == SAME and opcode in opcodes.CHANGING:
            return like(instruction.shape, IMPURE)
        handler = HANDLERS[opcode]
        return handler(self, instruction) if handler is not None else like(instruction.shape, IMPURE)

    # -- writes and reads --------------------------------------------------------------------------------------------

    @staticmethod
    def joined(operands: Iterable[Tree], kind: int) -> Leaf:
        """What a kernel of this kind makes of its operands."""
        found = [leaf for tree in operands for leaf in leaves(tree)]
        if not all([leaf.pure for leaf in found]):
            return IMPURE
        if len(found) == 1:
            leaf = found[0]
            deps, fixed, large = leaf.deps, leaf.fixed, leaf.large
        else:
            deps = NOWHERE.union(*[leaf.deps for leaf in found])
            fixed = NOWHERE.union(*[leaf.fixed for leaf in found])
            large = any([leaf.large for leaf in found])
        if len(deps) > MAX_DEPENDENCIES:
            return IMPURE
        return Leaf(True, deps, max([kind, *[leaf.kind for leaf in found]]), None, (), fixed, None, large)

    def written(self, instruction: Instruction, shape: Shape, leaf: Leaf, own: int, path: tuple[int, ...]) -> Leaf:
        """The leaf as it lies in the new buffer that `instruction` writes; remembered if it can matter."""
        if not leaf.pure or not leaf.deps:
            anywhere = leaf.buffers or leaf.same
            return Leaf(leaf.pure, leaf.deps, leaf.kind, fixed=leaf.fixed, large=leaf.large) if anywhere else leaf
        same = leaf.same if own == opcodes.COPY else None
        buffers: tuple[Buffer, ...] = ()
        if not self.quiet and shape.bytes >= self.min_bytes:
            key: WriteKey = (instruction.name, *[f"{{{i}}}" for i in path])
            self.note(instruction).writes.append(Write(key, instruction, self.computation.name, shape, leaf.deps, own,
                                                       leaf.kind, leaf.fixed))
            buffers = (key,)
        return Leaf(True, leaf.deps, leaf.kind, same, buffers, leaf.fixed, None, leaf.large)

    def written_tree(self, instruction: Instruction, shape: Shape, mapped: Tree, inner: Tree) -> Tree:
        """Every array of a kernel's result is a buffer of its own."""
        own = {path: leaf.kind for path, leaf in paths(inner)}

        def build(tree: Tree, path: tuple[int, ...]) -> Tree:
            if not isinstance(tree, Leaf):
                return tuple([build(part, (*path, i)) for i, part in enumerate(tree)])
            kind = own.get(path) or opcodes.COPY
            leaf = tree._replace(kind=max(tree.kind, kind)) if tree.pure else tree
            return self.written(instruction, shape_at(shape, path), leaf, kind, path)
        return build(mapped, ())

    def moved_apart(self, instruction: Instruction, target: Shape, operands: Iterable[Tree], kind: int | None,
                    path: tuple[int, ...]) -> Tree:
        """Several operands moved by one instruction into as many results (a combined all-gather)."""
        operands = list(operands)
        if kind is None or target.parts is None or len(target.parts) != len(operands):
            return like(target, IMPURE)
        return tuple(self.written(instruction, part, self.joined([operand], kind), kind, (*path, i))
                     for i, (part, operand) in enumerate(zip(target.parts, operands)))

    def note_reads(self, instruction: Instruction) -> None:
        if self.quiet:
            return
        for name, definition in zip(instruction.operands, instruction.definitions):
            # What has not been looked at yet holds no large parameter.
            if self.values.get(definition, IMPURE) is IMPURE:
                continue
            shape = self.operand_shape(name) or instruction.shape
            for path, leaf in paths(self.operand(name)):
                if leaf.buffers:
                    read = Read(instruction, self.computation.name, shape_at(shape, path), leaf.free)
                    self.note(instruction).reads.extend([(buffer, read) for buffer in leaf.buffers])

    def note(self, instruction: Instruction) -> Notes:
        found = self.notes.get(instruction.name)
        if found is None:
            found = self.notes[instruction.name] = Notes()
        return found

    # -- a callee's summary in the caller's terms ----------------------------------------------------------------------

    def mapped(self, tree: Tree, operands: Sequence[Tree],
               rename: Callable[[Buffer], tuple[Buffer, ...]] = lambda buffer: ()) -> Tree:
        """A callee's value, of its parameters, as a value of the operands."""
        if not isinstance(tree, Leaf):
            return tuple([self.mapped(part, operands, rename) for part in tree])
        if not tree.deps:
            return tree
        found = _sources(tree.deps, operands)
        joined = self.joined(found, tree.kind)
        if not joined.pure:
            return IMPURE
        fixed = joined.fixed
        if tree.fixed:
            positions = self.joined(_sources(tree.fixed, operands), opcodes.NOTHING)
            if not positions.pure:
                return IMPURE
            fixed = fixed | positions.deps | positions.fixed
        buffers = tuple(dict.fromkeys(b for buffer in tree.buffers for b in rename(buffer)))
        same = None
        if tree.same is not None:
            original = at(operands[tree.same[0]], tree.same[1]) if 0 <= tree.same[0] < len(operands) else IMPURE
            same = original.same if isinstance(original, Leaf) else None
        free = tree.free or (next(iter(leaves(found[0])), IMPURE).free if len(found) == 1 and buffers else None)
        return Leaf(True, joined.deps, joined.kind, same, buffers, fixed, free, joined.large)

    def inline(self, instruction: Instruction, callee: Summary, operands: Sequence[Tree], loops: tuple[str, ...] = (),
               site: str = "") -> Tree:
        """Takes over the callee's writes and reads, under the name of the call (or `site`); returns its result."""
        notes, site = self.note(instruction), site or instruction.name
        self.flow.room -= len(callee.writes) + len(callee.reads) + len(callee.state) + len(callee.prefetches)
        notes.cut = notes.cut or callee.cut or self.flow.room < 0
        if self.flow.room < 0:
            return self.mapped(callee.root, operands)

        def rename(buffer: Buffer) -> tuple[Buffer, ...]:
            if isinstance(buffer[0], str):
                return ((site, *buffer),) if len(buffer) < MAX_DEPTH else ()
            if not 0 <= buffer[0] < len(operands):
                return ()
            leaf = at(operands[buffer[0]], buffer[1])
            return leaf.buffers if isinstance(leaf, Leaf) else ()

        self._inline_writes(notes, site, callee, operands, loops)
        for buffer, readers in callee.reads.items():
            free = None
            if isinstance(buffer[0], int) and 0 <= buffer[0] < len(operands):
                free = next(iter(leaves(at(operands[buffer[0]], buffer[1]))), IMPURE).free
            for renamed in rename(buffer):
                notes.reads.extend([(renamed, Read(instruction, computation, operand, inner or free, around + loops))
                                    for instruction, computation, operand, inner, around in readers])
        for buffer, loop in callee.state.items():
            notes.state.extend([(renamed, loop) for renamed in rename(buffer)])
        for buffer, size in callee.prefetches.items():
            notes.prefetches.extend([(renamed, size) for renamed in rename(buffer)])
        return self.mapped(callee.root, operands, rename)

    def _inline_writes(self, notes: Notes, site: str, callee: Summary, operands: Sequence[Tree],
                       loops: tuple[str, ...]) -> None:
        for key, write in callee.writes.items():
            if len(key) >= MAX_DEPTH:
                notes.cut = True
                continue
            leaf = self.mapped(Leaf(True, write.deps, write.kind, fixed=write.fixed), operands)
            if leaf.pure and leaf.deps:
                notes.writes.append(Write((site, *key), write.instruction, write.computation, write.shape, leaf.deps, write.own,
                                          leaf.kind, leaf.fixed, write.loops + loops))


def _without(values: dict[str, _Value], names: set[str]) -> dict[str, _Value]:
    result = dict(values)
    for name in names & result.keys():
        del result[name]
    return result


def _sources(sources: Iterable[Source], operands: Sequence[Tree]) -> list[Tree]:
    return [at(operands[number], path) if 0 <= number < len(operands) else IMPURE for number, path in sources]
