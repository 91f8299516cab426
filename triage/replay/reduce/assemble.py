"""The lines that were collected, put in order: entry, bodies and conditions of loops, with the tuples between them."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from triage.engine.ir import Shape

from .graph import ENTRY, Graph, Loop, Value
from .program import OWN, Block, Line, Printer, Program

#: Lines whose values need not come out of the program.
PLUMBING = frozenset({"parameter", "constant", "iota", "get-tuple-element", ""})


@dataclass(frozen=True)
class Options:
    """What is changed besides leaving instructions out."""
    sizes: tuple[tuple[int, int], ...] = ()         # of dimensions: (in the module, here)
    trips: int = 0                                  # a loop's bound; 0 for its own
    feed: bool = False                              # what a loop makes goes into its next iteration, where shapes allow

    def resize(self, size: int) -> int:
        return dict(self.sizes).get(size, size)


@dataclass
class Element:
    """One array that a loop carries. Keys name lines: of the parent scope, and of the body."""
    key: object
    shape: Shape
    init: object = None
    next: object = None


@dataclass(frozen=True)
class Assembly:
    """What `build` collected: `lines` of each scope, `elements` of each loop, `results` of loops that nothing reads."""
    graph: Graph
    options: Options
    lines: dict[int, dict[object, Line]]
    elements: dict[int, dict[object, Element]]
    results: dict[int, list[object]]
    key: Callable[[Value], object]          # of the line that stands for a value

    def program(self, tracked: frozenset[int]) -> Program | None:
        values = self.graph.values
        wanted = [("input", values[value].element) for value in sorted(tracked)]
        first = [key for key in wanted if key in self.lines[ENTRY]]
        if not first:
            return None
        parameters = self._numbered(first)
        blocks = [self._loop_block(loop, which) for loop in reversed(self.graph.loops) if loop.index in self.elements
                  for which in (loop.condition, loop.body)]         # inner loops first
        read = used_in(self.graph, self.lines, self.elements, ENTRY)
        made = [key for key, line in self.lines[ENTRY].items() if key not in read and line.opcode not in PLUMBING]
        outputs = list(dict.fromkeys([array(self.lines, ENTRY, key) for key in made] + [
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
            return self._block(f"condition{suffix}", scope, [state], self.key(self.graph.values[loop.test]))
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
            ("condition", f"{OWN}condition{suffix}"), ("body", f"{OWN}body{suffix}")))


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


def array(lines: dict[int, dict[object, Line]], scope: int, key: object) -> object:
    """The key of the first array in what a line returns."""
    while (line := lines[scope][key]).shape.is_tuple and line.shape.parts:
        key = ("part", key)
        lines[scope][key] = Line(key, line.shape.parts[0], "get-tuple-element", (line.key,), attributes=(("index", "0"),))
    return key


def used_in(graph: Graph, lines: dict[int, dict[object, Line]], elements: dict[int, dict[object, Element]],
         scope: int) -> set[object]:
    """Keys of the lines of a scope that others of it use, or loops in it begin with."""
    used = {operand for line in lines[scope].values() for operand in line.operands}
    inside = [loop for loop in graph.loops if loop.parent == scope and loop.index in elements]
    return used | {element.init for loop in inside for element in elements[loop.index].values()}


def _resized(shape: Shape, options: Options) -> Shape:
    if shape.parts is not None or not shape.dims:
        return shape
    dims = tuple(options.resize(size) for size in shape.dims)
    return Shape(f"{shape.dtype}[{','.join(map(str, dims))}]", shape.dtype, dims, shape.minor_to_major, shape.tiles,
                 shape.element_bits)
