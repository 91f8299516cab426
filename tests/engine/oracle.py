"""Parameter copies by other means: a module as XLA's parser reads it is walked from its entry with actual arguments.

Written from the definition in words, not from the engine: every call is followed where it stands, every loop body is run
with what the loop really carries, and whether elements move is found out by computing addresses of sample elements.
"""
from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod

from .xla_module import XComputation, XInstruction, XModule, XShape

STRENGTH = ("", "slice", "copy", "transpose", "convert", "gather", "concat", "computed")
PASS = {"bitcast", "opt-barrier", "add-dependency", "domain"}
PASS_CALLS = {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "ConcatBitcast", "LayoutConstraint",
              "annotate_device_placement", "xla.sdy.FuncResultSharding", "xla.sdy.GlobalToLocalShape",
              "xla.sdy.LocalToGlobalShape", "Pin", "Unpin"}
KINDS = {"slice": "slice", "dynamic-slice": "slice", "pad": "copy", "reverse": "transpose", "convert": "convert",
         "reduce-precision": "convert", "bitcast-convert": "convert", "stochastic-convert": "convert",
         "all-gather": "gather", "concatenate": "concat", "dynamic-update-slice": "concat"}
ARITHMETIC = set("""abs add and atan2 broadcast cbrt ceil clamp compare complex cosine count-leading-zeros divide erf
    exponential exponential-minus-one floor imag is-finite log log-plus-one logistic maximum minimum multiply mulhi negate
    not or popcnt power real remainder round-nearest-afz round-nearest-even rsqrt select shift-left
    shift-right-arithmetic shift-right-logical sign sine sqrt subtract tan tanh xor acos acosh asin asinh atanh cosh
    sinh""".split())
CONSTANTS = {"constant", "iota", "partition-id", "replica-id", "after-all", "get-dimension-size",
             "rng-get-and-update-state"}
INDICES_FROM = {"dynamic-slice": 1, "dynamic-update-slice": 2}


@dataclass(frozen=True)
class Array:
    """`content` names what the array holds: equal content is equal element for element."""
    content: object
    pure: bool = True
    deps: frozenset = frozenset()
    kind: str = ""
    buffers: frozenset = frozenset()
    chosen: frozenset = frozenset()     # parameters that choose positions


@dataclass
class Written:
    name: str
    bytes: int
    array: Array
    own: str
    loops: tuple[str, ...]
    readers: set[tuple[str, ...]] = field(default_factory=set)      # the loops around each
    starts: bool = False        # a loop's carry begins with it, and the loop overwrites it


@dataclass(frozen=True)
class Found:
    name: str
    kind: str
    where: str
    loops: frozenset[str]       # that a report may name
    bytes: int
    parameters: tuple


def new(*key: object) -> Array:
    return Array(("new", *key), pure=False)


def arrays(value) -> list[Array]:
    return [value] if isinstance(value, Array) else [leaf for part in value for leaf in arrays(part)]


def shaped(shape: XShape, make, path: tuple = ()):
    if shape.parts is None:
        return make(path, shape)
    return tuple(shaped(part, make, (*path, i)) for i, part in enumerate(shape.parts))


def at(value, path):
    for index in path:
        value = value[index]
    return value


@dataclass(frozen=True)
class Place:
    """Where in the program the walk is. `loops`: names of the while instructions around, outermost first."""
    calls: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    fused: bool = False         # inside one kernel: nothing writes or reads by itself

    def inside(self, name: str, *, loop: bool = False, fused: bool = False) -> Place:
        return Place((*self.calls, name), (*self.loops, name) if loop else self.loops, self.fused or fused)


class Oracle:
    def __init__(self, module: XModule, min_bytes: int) -> None:
        self.module, self.min_bytes = module, min_bytes
        self.written: dict[object, Written] = {}
        self.parameters: dict[tuple, int] = {}      # (number, path) -> bytes
        self.recording = True

    def copies(self) -> Counter:
        entry = self.module.entry
        numbers = {i.parameter_number: i for i in entry.instructions.values() if i.opcode == "parameter"}
        arguments = [shaped(numbers[n].shape, lambda path, shape, n=n: self._entry_parameter(n, path, shape))
                     for n in range(len(numbers))]
        self._run(entry, arguments, Place())
        return Counter(found for written in self.written.values() if (found := self._found(written)) is not None)

    def _entry_parameter(self, number: int, path: tuple, shape: XShape) -> Array:
        self.parameters[number, path] = shape.bytes
        return Array(("parameter", number, path), deps=frozenset({(number, path)}))

    def _found(self, written: Written) -> Found | None:
        array = written.array
        if written.bytes < self.min_bytes or array.chosen or (written.own == "slice" and written.loops):
            return None
        if max(self.parameters[source] for source in array.deps) < self.min_bytes:
            return None
        if written.starts and not written.readers:
            return None
        inside = frozenset(loops[0] for loops in written.readers if loops)
        where = "in_loop" if written.loops else "before_loop" if inside else "entry"
        named = frozenset({written.loops[-1]}) if written.loops else inside
        kind = "copy" if array.kind == "slice" else array.kind
        return Found(written.name, kind, where, named, written.bytes, tuple(sorted(array.deps)))

    def _run(self, computation: XComputation, arguments: list, place: Place):
        values: dict[int, object] = {}
        for i in computation.instructions.values():
            if i.opcode == "parameter":
                values[i.id] = arguments[i.parameter_number]
            else:
                shapes = [computation.instructions[o].shape for o in i.operand_ids]
                values[i.id] = self._value(i, [values[o] for o in i.operand_ids], shapes, place)
        return values[computation.root_id]

    def _value(self, i: XInstruction, operands: list, shapes: list[XShape], place: Place):
        called = [self.module.computations[c] for c in i.called_ids]
        if i.opcode == "tuple":
            return tuple(operands)
        if i.opcode == "get-tuple-element":
            return operands[0][i.tuple_index]
        if i.opcode in CONSTANTS or i.target in ("AllocateBuffer", "CreateBuffer"):
            return shaped(i.shape, lambda path, shape: Array(("constant", place, i.name, path)))
        if i.opcode in PASS or i.opcode.endswith("-update"):
            return operands[0]
        if i.opcode.endswith("-done"):
            position = 0 if i.opcode == "copy-done" else 1
            return operands[0][position] if isinstance(operands[0], tuple) else operands[0]
        if i.opcode == "call":
            return self._run(called[0], operands, place.inside(i.name))
        if i.opcode == "while":
            return self._loop(i, operands[0], called[0], called[1], place)
        if i.opcode == "conditional":
            return self._branches(i, operands, called, place)
        if i.target in PASS_CALLS and operands and i.shape.parts is None:
            return self._either((place, i.name), operands)
        return self._kernel(i, operands, shapes, called, place)

    # -- loops and branches -------------------------------------------------------------------------------------------

    def _loop(self, i: XInstruction, initial, body: XComputation, condition: XComputation, place: Place):
        marks = shaped(i.shape, lambda path, shape: ("carry", place, i.name, path))
        inside = place.inside(i.name, loop=True)
        recording, self.recording = self.recording, False
        returned = self._run(body, [shaped(i.shape, lambda path, shape: replace(
            at(initial, path), content=at(marks, path)))], inside)
        self.recording = recording

        def settle(path, shape):
            start = at(initial, path)
            if at(returned, path).content == at(marks, path):
                return start
            for buffer in start.buffers if recording else ():
                self.written[buffer].starts = True
            return new("carry", place, i.name, path)
        settled = shaped(i.shape, settle)
        for computation in (body, condition):
            self._run(computation, [settled], inside)
        return settled

    def _branches(self, i: XInstruction, operands: list, called: list[XComputation], place: Place):
        results = [self._run(branch, [value], place.inside(f"{i.name}:{n}"))
                   for n, (branch, value) in enumerate(zip(called, operands[1:]))]
        if not operands[0].pure:
            return shaped(i.shape, lambda path, shape: new(place, i.name, path))
        return shaped(i.shape, lambda path, shape: self._either((place, i.name, path), [at(r, path) for r in results]))

    def _either(self, here, options: list[Array]) -> Array:
        joined = self._joined(here, options, "")
        if not joined.pure:
            return joined
        contents = {option.content for option in options}
        return replace(joined, content=contents.pop() if len(contents) == 1 else ("either", here),
                       buffers=frozenset().union(*(option.buffers for option in options)))

    # -- what writes -------------------------------------------------------------------------------------------------

    def _kernel(self, i: XInstruction, operands: list, shapes: list[XShape], called: list, place: Place):
        if i.opcode == "copy-start":
            return self._copy_start(i, operands, shapes, place)
        own = own_kind(i, shapes)
        if own == "":
            return operands[0]
        self._read(operands, place)
        if i.opcode == "fusion" or (i.opcode == "async-start" and called):
            return self._fused(i, operands, shapes, called[0], place)
        if i.opcode == "all-gather-start":
            moved = self._moved(i, operands, i.shape.parts[1], "gather", (1,), place)
            return (operands[0] if len(operands) == 1 else tuple(operands)), moved
        if own is None or i.opcode.endswith("-start"):
            return shaped(i.shape, lambda path, shape: new(place, i.name, path))
        return self._moved(i, operands, i.shape, own, (), place)

    def _fused(self, i: XInstruction, operands: list, shapes: list[XShape], fused: XComputation, place: Place):
        inside = place.inside(i.name, fused=True)
        result = self._run(fused, operands, inside)
        bare = self._run(fused, [shaped(shape, lambda path, _, value=value: replace(at(value, path), kind=""))
                                 for shape, value in zip(shapes, operands)], inside)
        start, target = ((), i.shape) if i.opcode == "fusion" else ((1,), i.shape.parts[1])
        written = shaped(target, lambda path, shape: self._write(
            i, at(result, path), shape, at(bare, path).kind or "copy", (*start, *path), place))
        return (tuple(operands), written) if start else written

    def _moved(self, i: XInstruction, operands: list, target: XShape, own: str, path: tuple, place: Place):
        """What one instruction makes of its operands; several all-gathers in one make an array of each."""
        if target.parts is not None:
            return tuple(self._moved(i, [operand], part, own, (*path, n), place)
                         for n, (operand, part) in enumerate(zip(operands, target.parts)))
        here, split = (place, i.name, path), INDICES_FROM.get(i.opcode, len(operands))
        made = self._joined(here, operands[:split], own)
        if not all(index.pure for index in operands[split:]):
            made = new(here)
        elif made.pure:
            made = replace(made, chosen=made.chosen.union(*(index.deps | index.chosen for index in operands[split:])))
        if own == "copy" and i.opcode == "copy" and made.pure:
            made = replace(made, content=operands[0].content)
        return self._write(i, made, target, own, path, place)

    def _copy_start(self, i: XInstruction, operands: list, shapes: list[XShape], place: Place):
        source, target = shapes[0], i.shape.parts[0]
        own = copy_kind(source, target)
        if source.space != target.space and own == "copy":
            return operands[0], operands[0], None
        self._read(operands, place)
        made = self._joined((place, i.name), operands, own)
        if own == "copy" and made.pure:
            made = replace(made, content=operands[0].content)
        return self._write(i, made, target, own, (), place), operands[0], None

    def _joined(self, here, operands: list[Array], own: str) -> Array:
        if not all(operand.pure for operand in operands):
            return new(here)
        kind = max((own, *(operand.kind for operand in operands)), key=STRENGTH.index)
        return Array(("made", here), True, frozenset().union(*(o.deps for o in operands)), kind,
                     chosen=frozenset().union(*(o.chosen for o in operands)))

    def _write(self, i: XInstruction, array: Array, shape: XShape, own: str, path: tuple, place: Place) -> Array:
        if array.pure:
            array = replace(array, kind=max(array.kind, own, key=STRENGTH.index))
        if place.fused or not self.recording or not array.pure or not array.deps:
            return replace(array, buffers=frozenset())
        key = (place, i.name, path)
        self.written[key] = Written(i.name, shape.bytes, array, own, place.loops)
        return replace(array, buffers=frozenset({key}))

    def _read(self, operands: list, place: Place) -> None:
        if self.recording and not place.fused:
            for array in (array for operand in operands for array in arrays(operand)):
                for buffer in array.buffers:
                    self.written[buffer].readers.add(place.loops)


def own_kind(i: XInstruction, shapes: list[XShape]) -> str | None:
    """What the instruction by itself does to its operands; "" where it writes nothing, None for a new quantity."""
    if i.opcode in KINDS:
        return KINDS[i.opcode]
    if i.opcode in ARITHMETIC:
        return "computed"
    if i.opcode == "copy":
        return copy_kind(shapes[0], i.shape)
    if i.opcode in ("transpose", "reshape"):
        return "" if moves_nothing(i.opcode, shapes[0], i.shape, i.dimensions) else "transpose"
    return None


def copy_kind(source: XShape, target: XShape) -> str:
    """By the order of the dimensions: other tiles alone make no transpose."""
    return "copy" if moves_nothing("copy", replace(source, tiles=()), replace(target, tiles=()), ()) else "transpose"


@cache
def moves_nothing(how: str, source: XShape, target: XShape, permutation: tuple[int, ...]) -> bool:
    """Whether the elements of `source`, transposed, reshaped or merely laid out as `target`, stay where they are."""
    if prod(source.padded()) != prod(target.padded()):
        return False
    if prod(target.dims) == 0:
        return True
    return all(address(source, _origin(how, source, target, permutation, index)) == address(target, index)
               for index in _samples(target.dims))


def _origin(how: str, source: XShape, target: XShape, permutation: tuple, index: tuple) -> tuple:
    if how == "copy":
        return index
    if how == "transpose":
        result = [0] * len(index)
        for position, dimension in enumerate(permutation):
            result[dimension] = index[position]
        return tuple(result)
    linear = 0
    for value, size in zip(index, target.dims):
        linear = linear * size + value
    result = []
    for size in reversed(source.dims):
        linear, rest = divmod(linear, size)
        result.append(rest)
    return tuple(reversed(result))


def _samples(dims: tuple[int, ...]) -> list[tuple[int, ...]]:
    chance = random.Random(7)
    units = [tuple(min(step, size - 1) if i == d else 0 for i, size in enumerate(dims))
             for d in range(len(dims)) for step in (1, 2, 3, 8, 128, 10 ** 9)]
    return units + [tuple(chance.randrange(size) for size in dims) for _ in range(200)]


def address(shape: XShape, index: tuple[int, ...]) -> int:
    """Position in memory of one element, counted in elements."""
    sizes = [(index[d], shape.dims[d]) for d in reversed(shape.minor_to_major)]
    places = shape.physical(
        sizes, (0, 1), lambda a, b: (a[0] * b[1] + b[0], a[1] * b[1]),
        lambda pair, step: ((pair[0] // step, -(-pair[1] // step)), (pair[0] % step, step)))
    result = 0
    for value, size in places:
        result = result * size + value
    return result


def parameter_copies(module: XModule, min_bytes: int) -> Counter:
    return Oracle(module, min_bytes).copies()
