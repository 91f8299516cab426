"""Which values depend on parameters alone, and which instructions write such values into new buffers.

Every computation is summarised once, in terms of its own parameters; a caller maps the summary onto its operands. So a
loop body that a pass left alone is never looked at again, and a value's history is exact through tuples, calls,
conditionals, fusions and the carries of while loops.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Callable, Iterable, TypeVar, Union

from . import opcodes
from .ir import Computation, Instruction, Module, Shape, number

Source = tuple[int, tuple[int, ...]]            # (parameter number, index path inside its tuple) of a computation
WriteKey = tuple[str, ...]                      # call sites from the outside in, then the instruction, then a leaf index
Buffer = Union[Source, WriteKey]
MAX_DEPENDENCIES = 2048         # a value of more parameters than this is treated as a new quantity
MAX_GROWTH = 16                 # a callee's own parameter smaller than `min_bytes` by more than this is not followed
MAX_READERS = 6                 # readers remembered per buffer, inside loops and outside each
MAX_DEPTH = 200                 # of calls around a write that is still counted
MAX_RECURSION = 40              # of calls that are followed by recursion; deeper call graphs go from the bottom up
MAX_INLINED = 100_000           # reads and writes taken over from callees, in one stage


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array. `pure`: nothing but the parameters `deps` (and constants) decides its content."""
    pure: bool
    deps: frozenset[Source] = frozenset()
    kind: int = opcodes.NOTHING                 # strongest kind between the parameters and here
    same: Source | None = None                  # the parameter whose content this is, element for element
    buffers: tuple[Buffer, ...] = ()            # where it lies
    fixed: frozenset[Source] = frozenset()      # sources that choose positions: pure only where they are constants
    free: Instruction | None = None             # last transpose on the way that moved nothing under the printed layouts
    large: bool = False                         # one of `deps` is an array that is large enough to follow


Tree = Union[Leaf, tuple]
IMPURE = Leaf(False)
CONSTANT = Leaf(True)


@dataclass(frozen=True, slots=True)
class Read:
    """An instruction that reads a buffer. `loops`: the while instructions around it, innermost first."""
    instruction: Instruction
    computation: str
    operand: Shape
    free: Instruction | None = None             # a transpose between buffer and reader that moves nothing
    loops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Write:
    """An instruction that writes a new buffer out of parameters alone, as seen from the summarised computation."""
    key: WriteKey
    instruction: Instruction
    computation: str
    shape: Shape                                # of the array written
    deps: frozenset[Source]
    own: int                                    # kind of this instruction alone
    kind: int                                   # strongest on the chain
    fixed: frozenset[Source] = frozenset()      # as in Leaf
    loops: tuple[str, ...] = ()                 # while instructions around it, innermost first


@dataclass
class Summary:
    root: Tree = CONSTANT
    writes: dict[WriteKey, Write] = field(default_factory=dict)
    reads: dict[Buffer, list[Read]] = field(default_factory=dict)
    state: dict[Buffer, str] = field(default_factory=dict)      # buffers a loop overwrites: the loop's carry starts there
    prefetches: dict[Buffer, int] = field(default_factory=dict)  # buffers moved whole into another memory space: bytes
    cut: bool = False           # MAX_DEPTH or MAX_INLINED was hit: there may be more reads and writes


class Flow:
    """Summaries of one dump's computations, shared by all stages."""

    def __init__(self, min_bytes: int) -> None:
        self.min_bytes = min_bytes
        self.summaries: dict[tuple[int, int], Summary] = {}
        self.closures: dict[tuple, int] = {}
        self._called: dict[Computation, tuple[tuple[str, str], ...]] = {}

    def called(self, computation: Computation) -> tuple[tuple[str, str], ...]:
        if computation not in self._called:
            self._called[computation] = called_names(computation)
        return self._called[computation]

    def entry(self, module: Module) -> Summary:
        """The summary of the module's entry computation; its sources are the entry parameters."""
        if module.entry is None:
            return Summary()
        return _ModuleFlow(self, module).entry(module.entry.name)


#: How a computation is looked at. FUSED: it runs inside one kernel, and nothing in it writes or reads a buffer by
#: itself. SAME: only which parameters it returns unchanged. BODY: as a loop body, in which what the loop changes is new.
CALLED, FUSED, SAME, BODY = range(4)


class _ModuleFlow:
    def __init__(self, flow: Flow, module: Module) -> None:
        self.flow, self.module = flow, module
        self.room = MAX_INLINED                 # how many more reads and writes of callees may be taken over
        self._ids: dict[str, int] = {}          # a number for the text of a computation together with all it calls
        self._heights: dict[str, int] = {}      # how many calls deep it goes

    def entry(self, name: str) -> Summary:
        self._number(name)
        if self._heights[name] > MAX_RECURSION:
            for callee, mode in self._bottom_up(name):
                self.summary(callee, mode)
        return self.summary(name, CALLED)

    def _callees(self, name: str) -> tuple[tuple[str, str], ...]:
        computation = self.module.computations.get(name)
        return self.flow.called(computation) if computation is not None else ()

    def _number(self, entry: str) -> None:
        for name in _post_order(entry, lambda name: [callee for callee, _ in self._callees(name)]):
            callees = [callee for callee, _ in self._callees(name)]
            # A computation that calls itself is not numbered yet: -1.
            key = (self.module.computations.get(name), *(self._ids.get(callee, -1) for callee in callees))
            self._ids[name] = self.flow.closures.setdefault(key, len(self.flow.closures))
            self._heights[name] = 1 + max((self._heights.get(callee, 0) for callee in callees), default=0)

    def _bottom_up(self, entry: str) -> Iterable[tuple[str, int]]:
        """Every computation in every mode that the entry may ask for, callees first."""
        def asked(node: tuple[str, int]) -> list[tuple[str, int]]:
            name, mode = node
            inner = mode if mode in (FUSED, SAME) else CALLED
            found = [(name, SAME)] if mode == BODY else []
            for callee, role in self._callees(name):
                found += [(callee, mode) for mode in _MODES.get(role, (inner,))]
            return found
        return _post_order((entry, CALLED), asked)

    def summary(self, name: str, mode: int) -> Summary:
        """How a computation treats its parameters; see the modes."""
        computation = self.module.computations.get(name)
        if computation is None or name not in self._ids:
            return Summary(root=IMPURE)
        key = (self._ids[name], mode)
        if key not in self.flow.summaries:
            self.flow.summaries[key] = Summary(root=IMPURE)     # while it is being made: recursion ends here
            self.flow.summaries[key] = _Evaluation(self, computation, mode).run()
        return self.flow.summaries[key]


_Node = TypeVar("_Node", str, tuple[str, int])


def _post_order(start: _Node, children: Callable[[_Node], list[_Node]]) -> Iterable[_Node]:
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


_ASYNC = ("-start", "-update", "-done")
_INDEX = re.compile(r"\s*,\s*index=(\d+)")
_CALLERS = frozenset({"fusion", "call", "while", "conditional", "async-start", "async-update", "async-done"})
_CALL_KEYS = ("calls", "to_apply", "body", "condition", "branch_computations", "true_computation",
              "false_computation", "called_computations")


#: In which modes a callee is looked at, by how it is called; others in the caller's.
_MODES = {"fusion": (FUSED,), "-start": (FUSED,), "body": (SAME, BODY), "condition": (CALLED,)}


def called_names(computation: Computation) -> tuple[tuple[str, str], ...]:
    """(computation, how) called by the instructions through which values flow, in order, without repeats."""
    names: dict[tuple[str, str], None] = {}
    for instruction in computation.instructions:
        start = instruction.opcode.endswith("-start")
        if start or instruction.opcode in _CALLERS:
            for key in _CALL_KEYS:
                how = "-start" if start else "fusion" if instruction.opcode == "fusion" else key
                names.update(dict.fromkeys((name, how) for name in branch_names(instruction, key)))
    return tuple(names)


def branch_names(instruction: Instruction, key: str) -> list[str]:
    value = instruction.attributes.get(key, "")
    return [part.strip().lstrip("%") for part in value.strip("{}").split(",") if part.strip()]


def _returns(root: Tree, source: Source) -> bool:
    """Whether a loop body returns this element of its parameter unchanged; writing the same content again is no change."""
    returned = at(root, source[1])
    return isinstance(returned, Leaf) and returned.same == source


def _target(instruction: Instruction) -> str:
    return instruction.attributes.get("custom_call_target", "").strip('"')


def leaves(tree: Tree) -> Iterable[Leaf]:
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Leaf):
            yield node
        else:
            stack.extend(reversed(node))


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


_FOLLOWED, _NEW, _PARAMETER, _STRUCTURE = range(4)


@lru_cache(maxsize=1024)
def _role(opcode: str) -> int:
    """What an opcode is to the flow; _STRUCTURE stands for those that carry several values or call computations."""
    if opcode in opcodes.FOLLOWED:
        return _FOLLOWED
    if opcode == "parameter":
        return _PARAMETER
    known = opcode in _HANDLERS or opcode in opcodes.CONSTANT or opcode.endswith(_ASYNC)
    return _STRUCTURE if known else _NEW


class _Evaluation:
    """One walk over one computation's instructions."""

    def __init__(self, flow: _ModuleFlow, computation: Computation, mode: int) -> None:
        self.flow, self.computation = flow, computation
        self.mode, self.inner = mode, mode if mode in (FUSED, SAME) else CALLED
        self.quiet = mode in (FUSED, SAME)      # notes neither writes nor reads
        # Of a loop's carry only what the body returns unchanged can be a parameter's value.
        self.returned = flow.summary(computation.name, SAME).root if mode == BODY else None
        self.min_bytes = flow.flow.min_bytes
        self.values: dict[str, Tree] = {}
        self.out = Summary()
        self._waiting: set[str] = set()

    def run(self) -> Summary:
        """Looks only at what large parameters flow into; everything else is evaluated where such a value meets it."""
        if not self.quiet:
            self._follow_parameters()
        root = self.computation.root
        self.out.root = self.operand(root.name) if root is not None else IMPURE
        return self.out

    def _follow_parameters(self) -> None:
        """Evaluates what reads a large parameter, or something made of one, in order; notes reads and writes on the way."""
        values, live, new = self.values, set(), set()
        for instruction in self.computation.in_order():
            role = _role(instruction.opcode)
            reads_live = not live.isdisjoint(instruction.definitions)
            if role == _NEW or (role == _FOLLOWED and not new.isdisjoint(instruction.definitions)):
                # Most of a program: a new quantity, or element by element made of one.
                new.add(instruction.name)
                values[instruction.name] = IMPURE
                if reads_live:
                    self._note_reads(instruction)
            elif reads_live or role == _PARAMETER:
                tree = self.operand(instruction.name)
                if self._is_live(tree):
                    live.add(instruction.name)
                elif isinstance(tree, Leaf) and not tree.pure:
                    new.add(instruction.name)

    def _is_live(self, tree: Tree) -> bool:
        return any(leaf.large for leaf in leaves(tree))

    def _definition(self, operand: str) -> Instruction | None:
        return self.computation.by_name.get(operand) or self.computation.by_name.get(operand.split("#", 1)[0])

    def operand(self, name: str) -> Tree:
        """Value of an operand; `t#0#1` is element 1 of element 0 of `t`."""
        value = self.values.get(name)
        if value is not None:
            return value
        if name in self.computation.by_name:
            return self._demand(name)
        base, *indices = name.split("#")
        if base not in self.computation.by_name:
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
            instruction = self.computation.by_name[current]
            missing = [operand for operand in self._needed(instruction) if operand not in values]
            if missing and current not in self._waiting:
                self._waiting.add(current)
                stack.extend(missing)
                continue
            for operand in missing:
                values[operand] = IMPURE
            values[current] = self._evaluate(instruction)
            stack.pop()
        return values[name]

    def _needed(self, instruction: Instruction) -> Iterable[str]:
        """Definitions whose values decide this one's; none where a new quantity is made of whatever is read."""
        opcode = instruction.opcode
        if self.mode == SAME and opcode in opcodes.CHANGING:
            return ()
        if opcode == "fusion":
            return self._needed_by_root(instruction)
        if opcode == "custom-call" and _target(instruction) not in opcodes.PASS_CALLS:
            return ()
        if _role(opcode) == _NEW:
            return ()
        return (name for name in instruction.definitions if name in self.computation.by_name)

    def _needed_by_root(self, instruction: Instruction) -> Iterable[str]:
        """The operands on which the result of a fused computation depends."""
        root = self.flow.summary(instruction.called("calls") or "", FUSED).root
        numbers = {number for leaf in leaves(root) for number, _ in leaf.deps | leaf.fixed}
        names = instruction.definitions
        return (names[n] for n in numbers if 0 <= n < len(names) and names[n] in self.computation.by_name)

    def operand_shape(self, name: str) -> Shape | None:
        definition = self._definition(name)
        if definition is None:
            return None
        indices = name.split("#")[1:] if name not in self.computation.by_name else []
        return shape_at(definition.shape, (number(i) or 0 for i in indices))

    # -- one instruction ---------------------------------------------------------------------------------------------

    def _evaluate(self, instruction: Instruction) -> Tree:
        opcode = instruction.opcode
        if self.mode == SAME and opcode in opcodes.CHANGING:
            return like(instruction.shape, IMPURE)
        handler = _HANDLERS.get(opcode)
        if handler is not None:
            return handler(self, instruction)
        if opcode in opcodes.CONSTANT:
            return like(instruction.shape, CONSTANT)
        if opcode.endswith("-start"):
            return self._async_start(instruction)
        if opcode.endswith(_ASYNC):
            return self._async_end(instruction)
        if _role(opcode) == _FOLLOWED:
            return self._plain(instruction, opcode)
        return like(instruction.shape, IMPURE)

    def _plain(self, instruction: Instruction, opcode: str) -> Tree:
        operands = [self.operand(name) for name in instruction.operands]
        shape = self.operand_shape(instruction.operands[0]) if instruction.operands else None
        kind = opcodes.kind_of(instruction, shape)
        if kind == opcodes.NOTHING and operands:
            value = operands[0]
            moved = opcode == "transpose" and isinstance(value, Leaf) and bool(value.buffers)
            return replace(value, free=instruction) if moved else value
        self._note_reads(instruction)
        if kind is None or instruction.shape.is_tuple:
            return self._moved_apart(instruction, instruction.shape, operands, kind, ())
        first_index = {"dynamic-slice": 1, "dynamic-update-slice": 2}.get(opcode, len(operands))
        leaf = self._joined(operands[:first_index], kind)
        if opcode == "copy":
            leaf = self._same_as(operands[0], leaf)
        if first_index < len(operands):
            # Indices that come from an input (a token) choose what is read: a lookup, not a copy.
            indices = self._joined(operands[first_index:], kind)
            leaf = replace(leaf, fixed=leaf.fixed | indices.deps | indices.fixed) if indices.pure else IMPURE
        return self._written(instruction, instruction.shape, leaf, kind, ())

    def _moved_apart(self, instruction: Instruction, target: Shape, operands: Iterable[Tree], kind: int | None,
                     path: tuple[int, ...]) -> Tree:
        """Several operands moved by one instruction into as many results (a combined all-gather)."""
        operands = list(operands)
        if kind is None or target.parts is None or len(target.parts) != len(operands):
            return like(target, IMPURE)
        return tuple(self._written(instruction, part, self._joined([operand], kind), kind, (*path, i))
                     for i, (part, operand) in enumerate(zip(target.parts, operands)))

    def _joined(self, operands: Iterable[Tree], kind: int) -> Leaf:
        """What a kernel of this kind makes of its operands."""
        deps: set[Source] = set()
        fixed: set[Source] = set()
        large = False
        for tree in operands:
            for leaf in leaves(tree):
                if not leaf.pure:
                    return IMPURE
                deps |= leaf.deps
                fixed |= leaf.fixed
                large = large or leaf.large
                kind = max(kind, leaf.kind)
        if len(deps) > MAX_DEPENDENCIES:
            return IMPURE
        return Leaf(True, frozenset(deps), kind, fixed=frozenset(fixed), large=large)

    @staticmethod
    def _same_as(operand: Tree, leaf: Leaf) -> Leaf:
        return replace(leaf, same=operand.same) if isinstance(operand, Leaf) and operand.same else leaf

    def _written(self, instruction: Instruction, shape: Shape, leaf: Leaf, own: int, path: tuple[int, ...]) -> Leaf:
        """The leaf as it lies in the new buffer that `instruction` writes; remembered if it can matter."""
        if not leaf.pure or not leaf.deps:
            return replace(leaf, same=None, buffers=(), free=None) if leaf.buffers or leaf.same else leaf
        same = leaf.same if own == opcodes.COPY else None
        if self.quiet:
            return replace(leaf, same=same, buffers=(), free=None)
        if shape.bytes < self.min_bytes:
            return replace(leaf, same=same, buffers=(), free=None)
        key: WriteKey = (instruction.name, *(f"{{{i}}}" for i in path))
        self.out.writes[key] = Write(key, instruction, self.computation.name, shape, leaf.deps, own, leaf.kind,
                                     leaf.fixed)
        return replace(leaf, same=same, buffers=(key,), free=None)

    def _note_reads(self, instruction: Instruction) -> None:
        if self.quiet:
            return
        for name, definition in zip(instruction.operands, instruction.definitions):
            # What has not been looked at yet holds no large parameter.
            if definition not in self.values:
                continue
            shape = self.operand_shape(name) or instruction.shape
            for path, leaf in paths(self.operand(name)):
                for buffer in leaf.buffers:
                    self._add_read(buffer, Read(instruction, self.computation.name, shape_at(shape, path), leaf.free))

    def _add_read(self, buffer: Buffer, read: Read) -> None:
        """Remembers a reader; those inside loops and those outside are capped apart, so that neither hides the other."""
        readers = self.out.reads.setdefault(buffer, [])
        if sum(bool(known.loops) == bool(read.loops) for known in readers) < MAX_READERS:
            readers.append(read)

    # -- opcodes through which values flow -----------------------------------------------------------------------------

    def _parameter(self, instruction: Instruction) -> Tree:
        position = number(instruction.arguments)
        # What a callee is given may be a large parameter made small, and be made large again there.
        large = self.min_bytes if self.computation is self.flow.module.entry else self.min_bytes // MAX_GROWTH

        def build(shape: Shape, path: tuple[int, ...]) -> Tree:
            if shape.parts is not None:
                return tuple(build(part, (*path, i)) for i, part in enumerate(shape.parts))
            source: Source = (-1 if position is None else position, path)
            if self.returned is not None and not _returns(self.returned, source):
                return IMPURE
            return Leaf(True, frozenset((source,)), opcodes.NOTHING, source, (source,), large=shape.bytes >= large)
        return build(instruction.shape, ())

    def _tuple(self, instruction: Instruction) -> Tree:
        value = tuple(self.operand(name) for name in instruction.operands)
        return value if fits(value, instruction.shape) else like(instruction.shape, IMPURE)

    def _element(self, instruction: Instruction) -> Tree:
        match = _INDEX.match(instruction.tail)
        index = number(match[1] if match else instruction.attributes.get("index", ""))
        if not instruction.operands or index is None:
            return like(instruction.shape, IMPURE)
        return at(self.operand(instruction.operands[0]), (index,))

    def _fusion(self, instruction: Instruction) -> Tree:
        self._note_reads(instruction)
        name = instruction.called("calls")
        if name is None:
            return like(instruction.shape, IMPURE)
        inner = self.flow.summary(name, FUSED)
        if not fits(inner.root, instruction.shape):
            return like(instruction.shape, IMPURE)
        needed = set(self._needed_by_root(instruction))
        operands = [self.operand(operand) if definition in needed else IMPURE
                    for operand, definition in zip(instruction.operands, instruction.definitions)]
        mapped = self._map(inner.root, operands, lambda buffer: ())
        return self._written_tree(instruction, instruction.shape, mapped, inner.root)

    def _written_tree(self, instruction: Instruction, shape: Shape, mapped: Tree, inner: Tree) -> Tree:
        """Every array of a kernel's result is a buffer of its own."""
        own = {path: leaf.kind for path, leaf in paths(inner)}

        def build(tree: Tree, path: tuple[int, ...]) -> Tree:
            if not isinstance(tree, Leaf):
                return tuple(build(part, (*path, i)) for i, part in enumerate(tree))
            kind = own.get(path) or opcodes.COPY
            leaf = replace(tree, kind=max(tree.kind, kind)) if tree.pure else tree
            return self._written(instruction, shape_at(shape, path), leaf, kind, path)
        return build(mapped, ())

    def _call(self, instruction: Instruction) -> Tree:
        name = instruction.called("to_apply") or instruction.called("calls") or ""
        return self._callee(instruction, name, instruction.shape, [self.operand(name) for name in instruction.operands])

    def _callee(self, instruction: Instruction, name: str, shape: Shape, operands: list[Tree], site: str = "") -> Tree:
        """What a called computation makes of its operands."""
        callee = self.flow.summary(name, self.inner)
        if not fits(callee.root, shape):
            return like(shape, IMPURE)
        if self.quiet:
            return self._map(callee.root, operands, lambda buffer: ())
        return self._inline(site or instruction.name, callee, operands, ())

    def _while(self, instruction: Instruction) -> Tree:
        body = instruction.called("body") or ""
        initial = self.operand(instruction.operands[0]) if instruction.operands else IMPURE
        if isinstance(initial, Leaf) and instruction.shape.is_tuple or not fits(initial, instruction.shape):
            initial = like(instruction.shape, IMPURE)
        carried = self._carried(instruction, self.flow.summary(body, SAME).root, initial)
        if not self.quiet:
            condition = self.flow.summary(instruction.called("condition") or "", CALLED)
            self._inline(f"{instruction.name}:condition", condition, [carried], (instruction.name,))
            self._inline(instruction.name, self.flow.summary(body, BODY), [carried], (instruction.name,))
        return carried

    def _carried(self, instruction: Instruction, root: Tree, initial: Tree) -> Tree:
        """What the body reads and the loop returns: elements the body returns unchanged; the rest IMPURE."""
        def build(tree: Tree, path: tuple[int, ...]) -> Tree:
            if not isinstance(tree, Leaf):
                return tuple(build(part, (*path, i)) for i, part in enumerate(tree))
            if _returns(root, (0, path)):
                return tree
            for buffer in tree.buffers:
                self.out.state.setdefault(buffer, instruction.name)
            return IMPURE
        return build(initial, ())

    def _conditional(self, instruction: Instruction) -> Tree:
        names = [name for key in ("branch_computations", "true_computation", "false_computation")
                 for name in branch_names(instruction, key)]
        operands = [self.operand(operand) for operand in instruction.operands]
        results = [self._callee(instruction, name, instruction.shape, [value], f"{instruction.name}:{number}")
                   for number, (name, value) in enumerate(zip(names, operands[1:]))]
        if not results or not operands or not all(leaf.pure for leaf in leaves(operands[0])):
            return like(instruction.shape, IMPURE)
        return self._merge(instruction.shape, results)

    def _merge(self, shape: Shape, results: list[Tree]) -> Tree:
        if shape.parts is not None:
            return tuple(self._merge(part, [at(tree, (i,)) for tree in results]) for i, part in enumerate(shape.parts))
        found = [tree if isinstance(tree, Leaf) else IMPURE for tree in results]
        joined = self._joined(found, opcodes.NOTHING)
        same = found[0].same if all(leaf.same == found[0].same for leaf in found) else None
        buffers = tuple(dict.fromkeys(buffer for leaf in found for buffer in leaf.buffers))
        return replace(joined, same=same, buffers=buffers) if joined.pure else IMPURE

    def _custom_call(self, instruction: Instruction) -> Tree:
        target = _target(instruction)
        if target in opcodes.CONSTANT_CALLS:
            return like(instruction.shape, CONSTANT)
        if target in opcodes.PASS_CALLS and instruction.operands and not instruction.shape.is_tuple:
            return self._merge(instruction.shape, [self.operand(name) for name in instruction.operands])
        self._note_reads(instruction)
        return like(instruction.shape, IMPURE)

    def _async_start(self, instruction: Instruction) -> Tree:
        """`x-start` holds ((operands), output, context); copy-start holds (output, operand, context)."""
        operands = tuple(self.operand(name) for name in instruction.operands)
        opcode, shape = instruction.opcode, instruction.shape
        if shape.parts is None or not operands:
            return like(shape, IMPURE)
        if opcode == "copy-start":
            return self._copy_start(instruction, operands)
        self._note_reads(instruction)
        position = 1 if len(shape.parts) > 1 else 0
        target = shape.parts[position]
        name = instruction.called("calls") or instruction.called("to_apply")
        if name is not None:
            inner = self.flow.summary(name, FUSED).root
            if not fits(inner, target):
                return like(shape, IMPURE)
            output = self._written_tree(instruction, target, self._map(inner, operands, lambda buffer: ()), inner)
        else:
            kind = opcodes.MOVES.get(opcode[:-len("-start")])
            if kind is not None and not target.is_tuple and len(operands) == 1:
                output: Tree = self._written(instruction, target, self._joined(operands, kind), kind, (position,))
            else:
                output = self._moved_apart(instruction, target, operands, kind, (position,))
        rest = [like(part, CONSTANT) for part in shape.parts[2:]]
        value = (operands if shape.parts[0].is_tuple else operands[0], output, *rest) if position else (output,)
        return value if fits(value, shape) else like(shape, IMPURE)

    def _copy_start(self, instruction: Instruction, operands: tuple[Tree, ...]) -> Tree:
        target, source = instruction.shape.parts[0], self.operand_shape(instruction.operands[0])
        value = operands[0]
        rest = tuple(like(part, CONSTANT) for part in instruction.shape.parts[2:])
        if isinstance(value, Leaf) and source is not None and source.memory_space != target.memory_space \
                and source.order == target.order:
            # The compiler moves an array into on-chip (or host) memory while it is needed: no second copy in HBM.
            if value.pure and value.deps and target.bytes >= self.min_bytes:
                for buffer in value.buffers:
                    self.out.prefetches[buffer] = target.bytes
            return (value, value, *rest)
        self._note_reads(instruction)
        kind = opcodes.COPY if source is None or source.order == target.order else opcodes.TRANSPOSE
        leaf = self._same_as(value, self._joined(operands, kind))
        return (self._written(instruction, target, leaf, kind, ()), value, *rest)

    def _async_end(self, instruction: Instruction) -> Tree:
        value = self.operand(instruction.operands[0]) if instruction.operands else IMPURE
        if instruction.opcode.endswith("-update"):
            return value
        position = 0 if instruction.opcode == "copy-done" else 1
        result = at(value, (position,)) if not isinstance(value, Leaf) and len(value) > position else value
        return result if isinstance(result, Leaf) != instruction.shape.is_tuple else like(instruction.shape, IMPURE)

    # -- a callee's summary in the caller's terms -------------------------------------------------------------------------

    def _map(self, tree: Tree, operands: list[Tree] | tuple[Tree, ...], rename) -> Tree:
        if not isinstance(tree, Leaf):
            return tuple(self._map(part, operands, rename) for part in tree)
        if not tree.pure:
            return IMPURE
        if not tree.deps:
            return tree
        found = self._sources(tree.deps, operands)
        joined = self._joined(found, tree.kind)
        positions = self._joined(self._sources(tree.fixed, operands), opcodes.NOTHING)
        if not joined.pure or not positions.pure:
            return IMPURE
        fixed = joined.fixed | positions.deps | positions.fixed
        buffers = tuple(dict.fromkeys(b for buffer in tree.buffers for b in rename(buffer)))
        same = None
        if tree.same is not None:
            original = at(operands[tree.same[0]], tree.same[1]) if 0 <= tree.same[0] < len(operands) else IMPURE
            same = original.same if isinstance(original, Leaf) else None
        free = tree.free or (next(leaves(found[0])).free if len(found) == 1 and buffers else None)
        return replace(joined, same=same, buffers=buffers, fixed=fixed, free=free)

    @staticmethod
    def _sources(sources: Iterable[Source], operands: list[Tree] | tuple[Tree, ...]) -> list[Tree]:
        return [at(operands[number], path) if 0 <= number < len(operands) else IMPURE for number, path in sources]

    def _inline(self, site: str, callee: Summary, operands: list[Tree], loops: tuple[str, ...]) -> Tree:
        """Takes over the callee's writes and reads, under the name of the call; returns its result."""
        self.flow.room -= len(callee.writes) + len(callee.reads) + len(callee.state) + len(callee.prefetches)
        self.out.cut = self.out.cut or callee.cut or self.flow.room < 0
        if self.flow.room < 0:
            return self._map(callee.root, operands, lambda buffer: ())

        def rename(buffer: Buffer) -> tuple[Buffer, ...]:
            if isinstance(buffer[0], str):
                return ((site, *buffer),) if len(buffer) < MAX_DEPTH else ()
            if not 0 <= buffer[0] < len(operands):
                return ()
            leaf = at(operands[buffer[0]], buffer[1])
            return leaf.buffers if isinstance(leaf, Leaf) else ()

        for key, write in callee.writes.items():
            if len(key) >= MAX_DEPTH:
                self.out.cut = True
                continue
            leaf = self._map(Leaf(True, write.deps, write.kind, fixed=write.fixed), operands, rename)
            if leaf.pure and leaf.deps:
                self.out.writes[(site, *key)] = replace(write, key=(site, *key), deps=leaf.deps, kind=leaf.kind,
                                                        fixed=leaf.fixed, loops=write.loops + loops)
        for buffer, readers in callee.reads.items():
            free = None
            if isinstance(buffer[0], int) and 0 <= buffer[0] < len(operands):
                free = next(leaves(at(operands[buffer[0]], buffer[1])), IMPURE).free
            for renamed in rename(buffer):
                for read in readers:
                    self._add_read(renamed, replace(read, loops=read.loops + loops, free=read.free or free))
        for buffer, loop in callee.state.items():
            self.out.state.update(dict.fromkeys(rename(buffer), loop))
        for buffer, size in callee.prefetches.items():
            self.out.prefetches.update(dict.fromkeys(rename(buffer), size))
        return self._map(callee.root, operands, rename)


_HANDLERS = {"parameter": _Evaluation._parameter, "tuple": _Evaluation._tuple,
             "get-tuple-element": _Evaluation._element, "fusion": _Evaluation._fusion, "call": _Evaluation._call,
             "while": _Evaluation._while, "conditional": _Evaluation._conditional,
             "custom-call": _Evaluation._custom_call}
