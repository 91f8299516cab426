"""A program of the instructions that are kept: what they need besides becomes a parameter, or an element of a loop."""
from __future__ import annotations

from collections.abc import Iterable

from triage.engine.ir import Shape

from .assemble import PLUMBING, Assembly, Element, Options, array, used_in
from .graph import CARRIED, ENTRY, INPUT, OP, RESULT, Graph, Loop, Value
from .program import Line, Program

SCALAR = Shape("s32[]", "s32")


def build(graph: Graph, keep: Iterable[int], tracked: frozenset[int], options: Options) -> Program | None:
    """`keep`: ids of instructions; `tracked`: ids of the entry's inputs. None where nothing of those is left."""
    builder = _Builder(graph, set(keep), options)
    builder.collect()
    return Assembly(graph, options, builder.lines, builder.elements, builder.results, builder.key).program(tracked)


class _Builder:
    """Lines are asked for by the ones that use them, until nothing is missing."""

    def __init__(self, graph: Graph, keep: set[int], options: Options) -> None:
        self.graph = graph
        self.keep = keep
        self.counters: set[int] = set()             # stay where what they count is used
        self.options = options
        self.lines: dict[int, dict[object, Line]] = {ENTRY: {}}
        self.elements: dict[int, dict[object, Element]] = {}      # loop -> what it carries
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
        value, key = self._real(value), self.key(value)
        if key not in self.lines[value.scope]:
            self.waiting.append(value)
        return key

    def _work(self) -> None:
        while self.waiting:
            value = self.waiting.pop()
            key = self.key(value)
            if key in self.lines[value.scope]:
                continue
            if self._is_cut(value):
                self._cut(key, value.shape, value.scope, value.id in self.varying)
            elif value.kind == INPUT:
                self._put(ENTRY, Line(key, value.shape, "parameter", attributes=value.attributes))
            elif value.kind != OP:
                self._carry(value, key)
            else:
                operands = tuple([self._ask(self.graph.values[operand]) for operand in value.operands])
                self._put(value.scope, Line(key, value.shape, value.opcode, operands, self._literal(value), value.attributes))

    def _real(self, value: Value) -> Value:
        """What a loop of which nothing is kept hands on as it is."""
        while value.kind == RESULT and value.loop not in self.elements:
            loop = self.graph.loops[value.loop]
            if not self.graph.unchanged(loop, value.element):
                break
            value = self.graph.values[loop.inits[value.element]]
        return value

    def _is_cut(self, value: Value) -> bool:
        """Whether something from outside stands for a value."""
        return value.loop not in self.elements if value.kind == RESULT else value.kind == OP and not self._is_kept(value)

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

    def key(self, value: Value) -> object:
        """Of the line that stands for a value in its scope."""
        value = self._real(value)
        if self._is_cut(value):
            return "cut", value.id
        if value.kind == OP:
            return value.id
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
            element = self.elements[loop.index][key] = Element(key, shape)
            self._see(loop, element)
            element.init = self._cut(key, shape, loop.parent, varying)
            element.next = self._vary(loop, element) if varying else seen
        # The line that users of the value know it by.
        return self._put(scope, Line(key, shape, "", (seen,)))

    def _vary(self, loop: Loop, element: Element) -> object:
        """What the next iteration sees where the program computed something anew: another value, or XLA would move
        what depends on it out of the loop."""
        seen = ("seen", loop.index, element.key)
        if element.shape.is_tuple or element.shape.dtype in ("token", "opaque", ""):
            return seen
        opcode = "not" if element.shape.dtype == "pred" else "negate"
        return self._put(loop.body, Line(("vary", loop.index, element.key), element.shape, opcode, (seen,)))

    def _see(self, loop: Loop, element: Element) -> None:
        """The line by which the body reads an element."""
        self._put(loop.body, Line(("seen", loop.index, element.key), element.shape, "get-tuple-element",
                                  (("state", loop.body),)))

    def _carry(self, value: Value, key: object) -> None:
        loop, own = self.graph.loops[value.loop], ("own", value.element)
        elements = self.elements[loop.index]
        if own not in elements:
            values = self.graph.values
            element = elements[own] = Element(own, value.shape)
            self._see(loop, element)
            element.init = self._ask(values[loop.inits[value.element]])
            after = values[loop.nexts[value.element]]
            element.next = self._vary(loop, element) if self._is_cut(self._real(after)) else self._ask(after)
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
        used = used_in(self.graph, self.lines, self.elements, loop.body)
        used |= {element.next for element in self.elements[loop.index].values()}
        unread = [key for key, line in self.lines[loop.body].items() if key not in used and line.opcode not in PLUMBING]
        unread += [key for key in self.results.get(loop.body, ()) if key not in used]
        results = [key for key in self.lines[loop.parent] if isinstance(key, tuple) and key[:2] == ("result", loop.index)]
        results += [self._hand_out(loop, array(self.lines, loop.body, key)) for key in unread]
        if not results:
            results.append(self._any_result(loop))
        self.results.setdefault(loop.parent, []).extend(results)

    def _hand_out(self, loop: Loop, key: object) -> object:
        """An element for it, which the body does not read; or one that the loop carries already, to be fed by it."""
        line = self.lines[loop.body][key]
        taken = self._fed(loop, line) if self.options.feed else None
        if taken is None:
            taken = self.elements[loop.index][("out", key)] = Element(("out", key), line.shape)
            taken.init = self._cut(("out", loop.index, key), line.shape, loop.parent, False)
            taken.next = key
        return self._put(loop.parent, Line(("result", loop.index, taken.key), taken.shape, "get-tuple-element",
                                           (("while", loop.index),)))

    def _fed(self, loop: Loop, line: Line) -> Element | None:
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
            element = self.elements[loop.index]["out", "none"] = Element(("out", "none"), SCALAR)
            self._see(loop, element)
            element.init = self._cut(("out", loop.index), SCALAR, loop.parent, False)
            element.next = ("seen", loop.index, element.key)
            changed = [element]
        best = max(changed or elements, key=lambda e: _size(e.shape) if isinstance(e.next, int) else 0)
        return self._put(loop.parent, Line(("result", loop.index, best.key), best.shape, "get-tuple-element",
                                           (("while", loop.index),)))


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
