"""A program of the instructions that are kept: what they need besides becomes a parameter, or an element of a loop."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from triage.engine.ir import Shape

from .graph import CARRIED, ENTRY, INPUT, OP, RESULT, Graph, Loop, Value
from .program import Block, Line, Printer, Program

SCALAR = Shape("s32[]", "s32")
#: Lines whose values need not come out of the program.
_PLUMBING = frozenset({"parameter", "constant", "iota", "get-tuple-element", ""})


@dataclass(frozen=True)
class Options:
    """What is changed besides leaving instructions out."""
    sizes: tuple[tuple[int, int], ...] = ()         # of dimensions: (in the module, here)
    trips: int = 0                                  # a loop's bound; 0 for its own
    feed: bool = False                              # what a loop makes goes into its next iteration, where shapes allow

    def resize(self, size: int) -> int:
        return dict(self.sizes).get(size, size)


@dataclass
class _Element:
    """One array that a loop carries. Keys name lines: of the parent scope, and of the body."""
    key: object
    shape: Shape
    init: object = None
    next: object = None


def build(graph: Graph, keep: Iterable[int], tracked: frozenset[int], options: Options) -> Program | None:
    """`keep`: ids of instructions; `tracked`: ids of the entry's inputs. None where nothing of those is left."""
    builder = _Builder(graph, set(keep), options)
    builder.collect()
    return builder.program(tracked)


class _Builder:
    """Lines are asked for by the ones that use them, until nothing is missing."""

    def __init__(self, graph: Graph, keep: set[int], options: Options) -> None:
        self.graph = graph
        self.keep = keep
        self.counters: set[int] = set()             # stay where what they count is used
        self.options = options
        self.lines: dict[int, dict[object, Line]] = {ENTRY: {}}
        self.elements: dict[int, dict[object, _Element]] = {}      # loop -> what it carries
        self.waiting: list[Value] = []
        self.results: dict[int, list[object]] = {}      # scope -> what loops in it hand out for no other reason
        self.varying = _varying(graph)

    # -- which lines there are ----------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Asks for what is kept, for the loops around it and their conditions, and then for a use of every result."""
        values = self.graph.values
        live = {scope for value in self.keep for scope in self.graph.around(values[value].scope)}
        loops = [loop for loop in self.graph.loops if loop.body in live or loop.condition in live]
        for loop in loops:
            self.elements[loop.index] = {}
            self.lines[loop.body], self.lines[loop.condition] = {}, {}
            self.counters.update(after for after in loop.nexts if self._counts(values[after], loop))
            self._keep_condition(loop)
        for value in sorted(self.keep):
            self._ask(values[value])
        for loop in loops:
            self._ask(values[loop.test])
        self._work()
        for loop in sorted(loops, key=lambda loop: -len(list(self.graph.around(loop.body)))):
            self._use(loop)
            self._work()

    def _keep_condition(self, loop: Loop) -> None:
        """All of a condition stays, so that the number of iterations does."""
        stack, seen = [loop.test], {loop.test}
        while stack:
            value = self.graph.values[stack.pop()]
            if value.kind != OP or value.scope != loop.condition:
                continue
            self.keep.add(value.id)
            fresh = [operand for operand in value.operands if operand not in seen]
            seen.update(fresh)
            stack.extend(fresh)

    def _ask(self, value: Value) -> object:
        """The key of the value's line in its own scope. Where it is not there yet, it is put there by `_work`."""
        key = self._key(value)
        if key not in self.lines[value.scope]:
            self.waiting.append(value)
        return key

    def _work(self) -> None:
        while self.waiting:
            value = self.waiting.pop()
            key = self._key(value)
            if key in self.lines[value.scope]:
                continue
            if value.kind == INPUT:
                self._put(ENTRY, Line(key, value.shape, "parameter", attributes=value.attributes))
            elif value.kind != OP:
                self._carry(value, key)
            elif key == value.id:
                operands = tuple([self._ask(self.graph.values[operand]) for operand in value.operands])
                self._put(value.scope, Line(key, value.shape, value.opcode, operands, self._literal(value), value.attributes))
            else:
                self._cut(key, value.shape, value.scope, value.id in self.varying)

    def _literal(self, value: Value) -> str:
        """A loop's bound may be another one."""
        scope = self.graph.scopes[value.scope]
        if self.options.trips and scope.tests and value.literal.isdecimal() and int(value.literal) > self.options.trips:
            return str(self.options.trips)
        return value.literal

    def _put(self, scope: int, line: Line) -> object:
        self.lines[scope].setdefault(line.key, line)
        return line.key

    def _is_kept(self, value: Value) -> bool:
        while value.opcode == "get-tuple-element":      # of what an instruction returns: with it or not at all
            value = self.graph.values[value.operands[0]]
        return value.kind == OP and (value.id in self.keep or value.id in self.counters or value.free
                                     or value.opcode == "tuple")

    def _key(self, value: Value) -> object:
        if value.kind == OP:
            return value.id if self._is_kept(value) else ("cut", value.id)
        if value.kind == INPUT:
            return "input", value.element
        return ("result" if value.kind == RESULT else "seen", value.loop, ("own", value.element))

    def _cut(self, key: object, shape: Shape, scope: int, varying: bool) -> object:
        """Something from outside: a parameter of the entry, handed through the loops around the scope (MAX_DEPTH at
        most)."""
        if scope == ENTRY:
            return self._put(ENTRY, Line(key, shape, "parameter"))
        loop = self.graph.loops[self.graph.scopes[scope].loop]
        seen = ("seen", loop.index, key)
        if key not in self.elements[loop.index]:
            element = self.elements[loop.index][key] = _Element(key, shape)
            self._see(loop, element)
            element.init = self._cut(key, shape, loop.parent, varying)
            element.next = self._vary(loop, element) if varying else seen
        # The line that users of the value know it by.
        return self._put(scope, Line(key, shape, "", (seen,)))

    def _vary(self, loop: Loop, element: _Element) -> object:
        """What the next iteration sees where the program computed something anew: another value, or XLA would move
        what depends on it out of the loop."""
        seen = ("seen", loop.index, element.key)
        if element.shape.is_tuple or element.shape.dtype in ("token", "opaque", ""):
            return seen
        opcode = "not" if element.shape.dtype == "pred" else "negate"
        return self._put(loop.body, Line(("vary", loop.index, element.key), element.shape, opcode, (seen,)))

    def _see(self, loop: Loop, element: _Element) -> None:
        """The line by which the body reads an element."""
        self._put(loop.body, Line(("seen", loop.index, element.key), element.shape, "get-tuple-element",
                                  (("state", loop.body),)))

    def _carry(self, value: Value, key: object) -> None:
        loop, own = self.graph.loops[value.loop], ("own", value.element)
        elements = self.elements[loop.index]
        if own not in elements:
            values = self.graph.values
            element = elements[own] = _Element(own, value.shape)
            self._see(loop, element)
            element.init = self._ask(values[loop.inits[value.element]])
            after = values[loop.nexts[value.element]]
            cut = after.kind == OP and not self._is_kept(after)
            element.next = self._vary(loop, element) if cut else self._ask(after)
        origin = ("while", loop.index) if value.kind == RESULT else ("state", value.scope)
        self._put(value.scope, Line(key, value.shape, "get-tuple-element", (origin,)))

    def _counts(self, value: Value, loop: Loop) -> bool:
        """Whether a value is what the loop carries plus a constant."""
        if value.kind != OP or value.opcode not in ("add", "subtract") or value.shape.dims:
            return False
        operands = [self.graph.values[operand] for operand in value.operands]
        return all((o.kind == CARRIED and o.loop == loop.index) or o.free for o in operands)

    # -- what comes out -----------------------------------------------------------------------------------------------

    def _use(self, loop: Loop) -> None:
        """Hands out of the loop what nothing in it reads, or XLA would remove it."""
        used = self._read(loop.body) | {element.next for element in self.elements[loop.index].values()}
        unread = [key for key, line in self.lines[loop.body].items() if key not in used and line.opcode not in _PLUMBING]
        unread += [key for key in self.results.get(loop.body, ()) if key not in used]
        results = [key for key in self.lines[loop.parent] if isinstance(key, tuple) and key[:2] == ("result", loop.index)]
        results += [self._hand_out(loop, self._array(loop.body, key)) for key in unread]
        if not results:
            results.append(self._any_result(loop))
        self.results.setdefault(loop.parent, []).extend(results)

    def _array(self, scope: int, key: object) -> object:
        """The first array in what a line returns."""
        while (line := self.lines[scope][key]).shape.is_tuple and line.shape.parts:
            key = self._put(scope, Line(("part", key), line.shape.parts[0], "get-tuple-element", (key,),
                                        attributes=(("index", "0"),)))
        return key

    def _hand_out(self, loop: Loop, key: object) -> object:
        """An element for it, which the body does not read; or one that the loop carries already, to be fed by it."""
        line = self.lines[loop.body][key]
        taken = self._fed(loop, line) if self.options.feed else None
        if taken is None:
            taken = self.elements[loop.index][("out", key)] = _Element(("out", key), line.shape)
            taken.init = self._cut(("out", loop.index, key), line.shape, loop.parent, False)
            taken.next = key
        return self._put(loop.parent, Line(("result", loop.index, taken.key), taken.shape, "get-tuple-element",
                                           (("while", loop.index),)))

    def _fed(self, loop: Loop, line: Line) -> _Element | None:
        """An element of the same type and number of elements that has only been made to vary."""
        for element in self.elements[loop.index].values():
            vary = ("vary", loop.index, element.key)
            if element.next == vary and element.shape.dtype == line.shape.dtype and _size(element.shape) == _size(line.shape):
                del self.lines[loop.body][vary]
                element.next = line.key if element.shape.dims == line.shape.dims else self._put(
                    loop.body, Line(("fed", line.key), element.shape, "reshape", (line.key,)))
                return element
        return None

    def _any_result(self, loop: Loop) -> object:
        elements = list(self.elements[loop.index].values())
        changed = [e for e in elements if e.next != ("seen", loop.index, e.key)]
        if not elements:        # a loop that reads nothing of what it carries
            element = self.elements[loop.index]["out", "none"] = _Element(("out", "none"), SCALAR)
            self._see(loop, element)
            element.init = self._cut(("out", loop.index), SCALAR, loop.parent, False)
            element.next = ("seen", loop.index, element.key)
            changed = [element]
        best = max(changed or elements, key=lambda e: _size(e.shape) if isinstance(e.next, int) else 0)
        return self._put(loop.parent, Line(("result", loop.index, best.key), best.shape, "get-tuple-element",
                                           (("while", loop.index),)))

    def _read(self, scope: int) -> set[object]:
        read = {operand for line in self.lines[scope].values() for operand in line.operands}
        inside = [loop for loop in self.graph.loops if loop.parent == scope and loop.index in self.elements]
        return read | {element.init for loop in inside for element in self.elements[loop.index].values()}

    # -- text ---------------------------------------------------------------------------------------------------------

    def program(self, tracked: frozenset[int]) -> Program | None:
        values = self.graph.values
        wanted = [("input", values[value].element) for value in sorted(tracked)]
        first = [key for key in wanted if key in self.lines[ENTRY]]
        if not first:
            return None
        parameters = self._numbered(first)
        blocks = [self._loop_block(loop, which) for loop in reversed(self.graph.loops) if loop.index in self.elements
                  for which in (loop.condition, loop.body)]         # inner loops first
        read = self._read(ENTRY)
        made = [key for key, line in self.lines[ENTRY].items() if key not in read and line.opcode not in _PLUMBING]
        outputs = list(dict.fromkeys([self._array(ENTRY, key) for key in made] + [
            key for key in self.results.get(ENTRY, ()) if key not in read])) or first
        entry = self._block("main", ENTRY, parameters, outputs[0] if len(outputs) == 1 else outputs)
        printer = Printer(self.graph, self.options.resize)
        text = printer.text([*blocks, entry])
        shapes = tuple(_resized(line.shape, self.options) for line in parameters)
        return Program(text, printer.count, shapes, frozenset(range(len(first))))

    def _numbered(self, first: list[object]) -> list[Line]:
        """Parameters: those looked for, then the module's own, then those that stand for what was left out."""
        kinds = ("input", "cut", "out")
        lines = [line for line in self.lines[ENTRY].values() if line.opcode == "parameter"]
        places = {line.key: (line.key not in first, kinds.index(line.key[0]), position)
                  for position, line in enumerate(sorted(lines, key=_number))}
        found = []
        for line in sorted(lines, key=lambda line: places[line.key]):
            layout = self.graph.layouts.get(line.key[1], "") if line.key[0] == "input" else ""
            found.append(Line(line.key, line.shape, "parameter", (), str(len(found)), line.attributes,
                              f"p{len(found)}", layout))
        return found

    def _loop_block(self, loop: Loop, scope: int) -> Block:
        elements = list(self.elements[loop.index].values())
        shape = Shape("", parts=tuple([element.shape for element in elements]))
        state = Line(("state", scope), shape, "parameter", (), "0")
        suffix = f".{loop.index}" if len(self.elements) > 1 else ""
        if scope == loop.condition:
            return self._block(f"condition{suffix}", scope, [state], self._key(self.graph.values[loop.test]))
        return self._block(f"body{suffix}", scope, [state], [element.next for element in elements], tuple_always=True)

    def _block(self, name: str, scope: int, first: list[Line], root: object, tuple_always: bool = False) -> Block:
        """The scope's lines in order, with the tuples that loops are given and return."""
        lines = {line.key: line for line in first}
        for key, line in self.lines[scope].items():
            if key not in lines:
                lines[key] = self._with_position(line)
        for loop in self.graph.loops:
            if loop.parent == scope and loop.index in self.elements:
                self._add_while(loop, lines)
        if isinstance(root, list):
            shape = Shape("", parts=tuple([lines[key].shape for key in root]))
            lines["root"] = Line("root", shape, "tuple", tuple([_behind(key, lines) for key in root]))
            root = "root"
        return Block(name, _sorted(lines, root), _behind(root, lines))

    def _with_position(self, line: Line) -> Line:
        """`get-tuple-element` of a loop's elements: at which position they are is known at the end."""
        if line.opcode != "get-tuple-element" or isinstance(line.key, int) or line.key[0] == "part":
            return line
        position = list(self.elements[line.key[1]]).index(line.key[2])
        return Line(line.key, line.shape, line.opcode, line.operands, attributes=(("index", str(position)),))

    def _add_while(self, loop: Loop, lines: dict[object, Line]) -> None:
        elements = list(self.elements[loop.index].values())
        shape = Shape("", parts=tuple([element.shape for element in elements]))
        suffix = f".{loop.index}" if len(self.elements) > 1 else ""
        lines["init", loop.index] = Line(("init", loop.index), shape, "tuple", tuple([e.init for e in elements]))
        lines["while", loop.index] = Line(("while", loop.index), shape, "while", (("init", loop.index),), attributes=(
            ("condition", f"condition{suffix}"), ("body", f"body{suffix}")))


def _number(line: Line) -> int:
    """Parameters by the number they had, or by that of what they stand for."""
    return line.key[1] if isinstance(line.key[1], int) else 0


def _behind(key: object, lines: dict[object, Line]) -> object:
    """The line that a key stands for: a line without an opcode is another name for its operand."""
    while lines[key].opcode == "":
        key = lines[key].operands[0]
    return key


def _sorted(lines: dict[object, Line], root: object) -> list[Line]:
    """Lines that the root or another line needs and parameters, operands first. No recursion: chains may be long."""
    done: dict[object, Line] = {}
    for first in [*[key for key, line in lines.items() if line.opcode == "parameter"], root]:
        stack = [_behind(first, lines)]
        while stack:
            line = lines[stack[-1]]
            missing = [key for operand in line.operands if (key := _behind(operand, lines)) not in done]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if line.key not in done:
                done[line.key] = Line(line.key, line.shape, line.opcode, tuple([_behind(o, lines) for o in line.operands]),
                                      line.literal, line.attributes, line.name, line.layout)
    return list(done.values())


def _varying(graph: Graph) -> set[int]:
    """Values that may differ from one iteration of their loop to the next."""
    found: set[int] = set()
    for value in graph.values:
        if value.kind == CARRIED:
            loop = graph.loops[value.loop]
            if not graph.unchanged(loop, value.element) or loop.inits[value.element] in found:
                found.add(value.id)
        elif value.kind == RESULT or any(source in found for source in graph.sources(value)):
            found.add(value.id)
    return found


def _size(shape: Shape) -> int:
    result = 1
    for size in shape.dims:
        result = min(2**60, result * size)
    return result


def _resized(shape: Shape, options: Options) -> Shape:
    if shape.parts is not None or not shape.dims:
        return shape
    dims = tuple(options.resize(size) for size in shape.dims)
    return Shape(f"{shape.dtype}[{','.join(map(str, dims))}]", shape.dtype, dims, shape.minor_to_major, shape.tiles,
                 shape.element_bits)
