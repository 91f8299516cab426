"""Random small HLO modules for property tests: loops, calls, fusions, conditionals, tuples, layouts."""
from __future__ import annotations

from dataclasses import dataclass
from itertools import count, permutations

from hypothesis import strategies as st

BITS = {"f32": 32, "bf16": 16, "s8": 8}
DIMS = ((4, 6), (6, 4), (24,), (2, 3, 4), (4, 1, 6), (1, 24), (2, 12))
MAX_DEPTH = 3       # of calls within calls


@dataclass(frozen=True)
class Type:
    """An array (`parts` is None) or a tuple."""
    dtype: str = ""
    dims: tuple[int, ...] = ()
    layout: tuple[int, ...] = ()
    parts: tuple[Type, ...] | None = None

    def __str__(self) -> str:
        if self.parts is not None:
            return f"({', '.join(map(str, self.parts))})"
        layout = f"{{{','.join(map(str, self.layout))}}}" if self.dims else ""
        return f"{self.dtype}[{','.join(map(str, self.dims))}]{layout}"


@dataclass(frozen=True)
class Value:
    name: str
    type: Type


PRED, INDEX = Type("pred"), Type("s32")


class Writer:
    """Writes one module; every choice is drawn from hypothesis."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.numbers = count()
        self.done: list[str] = []       # texts of finished computations

    def name(self, stem: str) -> str:
        return f"{stem}.{next(self.numbers)}"

    def pick(self, options):
        return self.draw(st.sampled_from(list(options)))

    def module(self) -> str:
        types = [self.any_type() for _ in range(self.draw(st.integers(1, 3)))]
        self.computation("main", types, 0, entry=True)
        return "HloModule random\n\n" + "\n\n".join(self.done) + "\n"

    def array_type(self, dims=None, dtype=None) -> Type:
        dims = dims if dims is not None else self.pick(DIMS)
        return Type(dtype or self.pick(BITS), dims, self.pick(permutations(range(len(dims)))))

    def any_type(self) -> Type:
        sort = self.draw(st.integers(0, 9))
        if sort == 9:
            return INDEX
        if sort > 7:
            return Type(parts=tuple(self.array_type() for _ in range(self.draw(st.integers(1, 3)))))
        return self.array_type()

    def computation(self, stem: str, parameters: list[Type], depth: int, *, entry: bool = False, fused: bool = False,
                    result: Type | None = None) -> tuple[str, Type]:
        """Writes a computation; its root has the type `result`, or any where that is None. (name, type of the root)"""
        name = self.name(stem)
        body = Body(self, depth, fused)
        for number, type_ in enumerate(parameters):
            body.add("p", type_, f"parameter({number})")
        for _ in range(self.draw(st.integers(1, 4 if depth else 7))):
            body.step()
        root = body.any() if result is None else body.of_type(result)
        body.lines[-1 if body.lines[-1].startswith(f"  {root.name} =") else body.position(root)] = \
            body.lines[body.position(root)].replace("  ", "  ROOT ", 1)
        self.done.append(f"{'ENTRY ' if entry else ''}{name} {{\n" + "\n".join(body.lines) + "\n}")
        return name, root.type


class Body:
    """One computation in the making."""

    def __init__(self, writer: Writer, depth: int, fused: bool) -> None:
        self.writer, self.depth, self.fused = writer, depth, fused
        self.draw, self.pick = writer.draw, writer.pick
        self.values: list[Value] = []
        self.lines: list[str] = []

    def add(self, stem: str, type_: Type, text: str) -> Value:
        value = Value(self.writer.name(stem), type_)
        self.lines.append(f"  {value.name} = {type_} {text}")
        self.values.append(value)
        return value

    def position(self, value: Value) -> int:
        return next(i for i, line in enumerate(self.lines) if line.startswith(f"  {value.name} ="))

    def any(self) -> Value:
        return self.pick(self.values)

    def array(self) -> Value:
        """An array of one dimension or more, out of a tuple if need be."""
        options = [value for value in self.values if value.type.parts or value.type.dims]
        value = self.pick(options) if options else self.of_type(self.writer.array_type())
        while value.type.parts:
            index = self.pick([i for i, part in enumerate(value.type.parts) if part.parts or part.dims] or [None])
            if index is None:
                return self.of_type(self.writer.array_type())
            value = self.add("element", value.type.parts[index], f"get-tuple-element({value.name}), index={index}")
        return value

    def of_type(self, type_: Type) -> Value:
        """A value of this very type: one that is there, or one made for it."""
        there = [value for value in self.values if value.type == type_]
        if there and self.draw(st.integers(0, 3)):
            return self.pick(there)
        if type_.parts is not None:
            parts = [self.of_type(part) for part in type_.parts]
            return self.add("tuple", type_, f"tuple({', '.join(part.name for part in parts)})")
        alike = [value for value in self.values if (value.type.dtype, value.type.dims) == (type_.dtype, type_.dims)]
        if alike and type_.dims and self.draw(st.booleans()):
            return self.add("copy", type_, f"copy({self.pick(alike).name})")
        if self.draw(st.booleans()) or not type_.dims:
            return self.add("constant", type_, "constant(0)" if not type_.dims else "constant({...})")
        return self.add("new", type_, 'custom-call(), custom_call_target="new"')

    def step(self) -> None:
        simple = [self.copy, self.transpose, self.reshape, self.convert, self.arithmetic, self.concatenate, self.slice,
                  self.dynamic_slice, self.tuple, self.opaque, self.reverse]
        outside = [self.loop, self.loop, self.call, self.fusion, self.fusion, self.conditional, self.barrier,
                   self.copy_start, self.all_gather, self.async_start]
        deeper = self.depth < MAX_DEPTH
        self.pick(simple + ([] if self.fused or not deeper else outside))()

    def copy(self) -> None:
        source = self.array()
        self.add("copy", self.writer.array_type(source.type.dims, source.type.dtype), f"copy({source.name})")

    def transpose(self) -> None:
        source = self.array()
        order = self.pick(permutations(range(len(source.type.dims))))
        target = self.writer.array_type(tuple(source.type.dims[d] for d in order), source.type.dtype)
        self.add("transpose", target, f"transpose({source.name}), dimensions={{{','.join(map(str, order))}}}")

    def reshape(self) -> None:
        source = self.array()
        size = elements(source.type)
        target = self.pick([dims for dims in (*DIMS, source.type.dims) if elements(Type("", dims)) == size])
        self.add("reshape", self.writer.array_type(target, source.type.dtype), f"reshape({source.name})")

    def convert(self) -> None:
        source = self.array()
        self.add("convert", self.writer.array_type(source.type.dims), f"convert({source.name})")

    def arithmetic(self) -> None:
        source = self.array()
        other = self.pick([v for v in self.values if (v.type.dims, v.type.dtype) == (source.type.dims, source.type.dtype)])
        opcode = self.pick(["add", "multiply", "maximum"])
        self.add(opcode, self.writer.array_type(source.type.dims, source.type.dtype),
                 f"{opcode}({source.name}, {other.name})")

    def concatenate(self) -> None:
        source = self.array()
        other = self.pick([v for v in self.values if (v.type.dims, v.type.dtype) == (source.type.dims, source.type.dtype)])
        dims = (2 * source.type.dims[0], *source.type.dims[1:])
        self.add("concatenate", self.writer.array_type(dims, source.type.dtype),
                 f"concatenate({source.name}, {other.name}), dimensions={{0}}")

    def slice(self) -> None:
        source = self.array()
        dims = (max(1, source.type.dims[0] // 2), *source.type.dims[1:])
        ranges = ",".join(f"[0:{size}]" for size in dims)
        self.add("slice", self.writer.array_type(dims, source.type.dtype), f"slice({source.name}), slice={{{ranges}}}")

    def dynamic_slice(self) -> None:
        source = self.array()
        dims = (max(1, source.type.dims[0] // 2), *source.type.dims[1:])
        zero = self.add("zero", INDEX, "constant(0)")
        given = [value for value in self.values if value.type == INDEX]
        first = self.pick([*given, self.add("index", INDEX, 'custom-call(), custom_call_target="new"')])
        sizes = ",".join(map(str, dims))
        self.add("dynamic-slice", self.writer.array_type(dims, source.type.dtype), f"dynamic-slice({source.name}, "
                 f"{', '.join([first.name] + [zero.name] * (len(dims) - 1))}), dynamic_slice_sizes={{{sizes}}}")

    def reverse(self) -> None:
        source = self.array()
        self.add("reverse", self.writer.array_type(source.type.dims, source.type.dtype),
                 f"reverse({source.name}), dimensions={{0}}")

    def tuple(self) -> None:
        parts = [self.any() for _ in range(self.draw(st.integers(1, 3)))]
        if all(depth_of(part.type) < 2 for part in parts):
            self.add("tuple", Type(parts=tuple(part.type for part in parts)),
                     f"tuple({', '.join(part.name for part in parts)})")

    def opaque(self) -> None:
        source = self.any()
        self.add("opaque", self.writer.array_type(), f'custom-call({source.name}), custom_call_target="new"')

    def barrier(self) -> None:
        source = self.any()
        self.add("barrier", source.type, f"opt-barrier({source.name})")

    def call(self) -> None:
        values = [self.any() for _ in range(self.draw(st.integers(1, 2)))]
        name, type_ = self.writer.computation("called", [v.type for v in values], self.depth + 1)
        self.add("call", type_, f"call({', '.join(v.name for v in values)}), to_apply={name}")

    def fusion(self) -> None:
        values = [self.array() for _ in range(self.draw(st.integers(1, 2)))]
        name, type_ = self.writer.computation("fused", [v.type for v in values], self.depth + 1, fused=True)
        self.add("fusion", type_, f"fusion({', '.join(v.name for v in values)}), kind=kLoop, calls={name}")

    def async_start(self) -> None:
        source = self.array()
        name, type_ = self.writer.computation("wrapped", [source.type], self.depth + 1, fused=True)
        if type_.parts is None:
            start = self.add("async-start", Type(parts=(Type(parts=(source.type,)), type_, INDEX)),
                             f"async-start({source.name}), calls={name}")
            self.values.pop()
            self.add("async-done", type_, f"async-done({start.name}), calls={name}")

    def loop(self) -> None:
        carried = self.of_type(Type(parts=tuple(self.any().type for _ in range(self.draw(st.integers(1, 4))))))
        if depth_of(carried.type) > 2:
            return
        body, _ = self.writer.computation("body", [carried.type], self.depth + 1, result=carried.type)
        condition, _ = self.writer.computation("condition", [carried.type], MAX_DEPTH, result=PRED)
        self.add("while", carried.type, f"while({carried.name}), condition={condition}, body={body}")

    def conditional(self) -> None:
        values = [self.any(), self.any()]
        first, type_ = self.writer.computation("branch", [values[0].type], self.depth + 1)
        second, _ = self.writer.computation("branch", [values[1].type], self.depth + 1, result=type_)
        predicate = self.of_type(PRED)
        self.add("conditional", type_, f"conditional({', '.join(v.name for v in (predicate, *values))}), "
                 f"true_computation={first}, false_computation={second}")

    def copy_start(self) -> None:
        source = self.array()
        target = self.writer.array_type(source.type.dims, source.type.dtype)
        start = self.add("copy-start", Type(parts=(target, source.type, INDEX)), f"copy-start({source.name})")
        self.values.pop()
        self.add("copy-done", target, f"copy-done({start.name})")

    def all_gather(self) -> None:
        source = self.array()
        target = self.writer.array_type((2 * source.type.dims[0], *source.type.dims[1:]), source.type.dtype)
        arguments = f"({source.name}), replica_groups={{{{0,1}}}}, dimensions={{0}}"
        if self.draw(st.booleans()):
            self.add("all-gather", target, "all-gather" + arguments)
            return
        start = self.add("all-gather-start", Type(parts=(source.type, target)), "all-gather-start" + arguments)
        self.values.pop()
        self.add("all-gather-done", target, f"all-gather-done({start.name})")


def elements(type_: Type) -> int:
    result = 1
    for size in type_.dims:
        result *= size
    return result


def depth_of(type_: Type) -> int:
    return 0 if type_.parts is None else 1 + max((depth_of(part) for part in type_.parts), default=0)


@st.composite
def modules(draw) -> str:
    return Writer(draw).module()
