"""What each opcode does to the bytes of a parameter: the table behind `flow`."""
from __future__ import annotations

from .ir import Instruction, Shape

# Kinds in order of strength; a chain has the strongest kind on it. SLICE is reported as "copy" outside loops and is
# normal reading inside them.
NOTHING, SLICE, COPY, TRANSPOSE, CONVERT, GATHER, CONCAT, COMPUTED = range(8)
KIND_NAMES = ("copy", "copy", "copy", "transpose", "convert", "gather", "concat", "computed")

#: Write nothing: the result is operand 0's buffer.
PASS = frozenset("bitcast opt-barrier optimization-barrier add-dependency domain copy-done".split())
#: Depend on no parameter.
CONSTANT = frozenset("constant iota partition-id replica-id after-all create-token rng-get-and-update-state "
                     "get-dimension-size".split())
#: Move or convert elements; element-wise arithmetic counts as `computed`.
MOVES = {"slice": SLICE, "dynamic-slice": SLICE, "pad": COPY, "reverse": TRANSPOSE, "convert": CONVERT,
         "reduce-precision": CONVERT, "bitcast-convert": CONVERT, "stochastic-convert": CONVERT, "all-gather": GATHER,
         "concatenate": CONCAT, "dynamic-update-slice": CONCAT}
ELEMENTWISE = frozenset(
    "abs add and atan2 broadcast cbrt ceil clamp compare complex cosine count-leading-zeros divide erf exponential "
    "exponential-minus-one floor imag is-finite log log-plus-one logistic maximum minimum multiply mulhi negate not or "
    "popcnt power real remainder round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic "
    "shift-right-logical sign sine sqrt subtract tan tanh xor acos acosh asin asinh atanh cosh sinh".split())
# Everything else (dot, convolution, reduce, sort, scatter, gather by index, rng, collectives that add, unknown ones)
# makes a new quantity rather than a copy of a parameter.

#: Never return an operand's content unchanged.
CHANGING = MOVES.keys() | ELEMENTWISE
FOLLOWED = PASS | MOVES.keys() | ELEMENTWISE | {"copy", "transpose", "reshape"}

#: Custom calls that hand their operands through.
PASS_CALLS = frozenset({"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "ConcatBitcast", "LayoutConstraint",
                        "annotate_device_placement", "xla.sdy.FuncResultSharding", "xla.sdy.GlobalToLocalShape",
                        "xla.sdy.LocalToGlobalShape", "Pin", "Unpin"})
CONSTANT_CALLS = frozenset({"AllocateBuffer", "CreateBuffer"})


def target(instruction: Instruction) -> str:
    """What a custom-call calls; "" for everything else."""
    return instruction.attributes.get("custom_call_target", "").strip('"')


def kind_of(instruction: Instruction, operand: Shape | None) -> int | None:
    """Strength of what one instruction writes; NOTHING where it writes nothing, None where it makes a new quantity."""
    opcode, result = instruction.opcode, instruction.shape
    if opcode in PASS:
        return NOTHING
    if opcode in MOVES:
        return MOVES[opcode]
    if opcode in ELEMENTWISE:
        return COMPUTED
    if operand is None or operand.is_tuple or result.is_tuple:
        return COPY if opcode == "copy" else None
    if opcode == "copy":
        return COPY if operand.order == result.order else TRANSPOSE
    if opcode == "transpose":
        return NOTHING if transpose_is_bitcast(operand, result, instruction.integers("dimensions")) else TRANSPOSE
    if opcode == "reshape":
        return NOTHING if reshape_is_bitcast(operand, result) else TRANSPOSE
    return None


def transpose_is_bitcast(operand: Shape, result: Shape, permutation: tuple[int, ...]) -> bool:
    """True where elements lie in the same order before and after: result dimension i is operand dimension p[i]."""
    rank = len(operand.dims)
    if sorted(permutation) != list(range(rank)) or len(result.dims) != rank or operand.tiles != result.tiles:
        return False
    return tuple(permutation[d] for d in result.order) == operand.order


def reshape_is_bitcast(operand: Shape, result: Shape) -> bool:
    """True where a reshape moves no element.

    The logical sizes split into the smallest groups of equal product. Nothing moves if, in memory, the groups stand in
    the same order on both sides and every group is one run with its dimensions in logical order, or is untouched.
    """
    if operand.tiles or result.tiles:
        return operand.tiles == result.tiles and _tail(operand, result)
    before, after = _groups(operand, result)
    return before is not None and before == after


def _tail(operand: Shape, result: Shape) -> bool:
    """Tiled layouts: free if both are in default order and the tiled (most minor) sizes are the same."""
    rank = max(len(tile) for tile in operand.tiles + result.tiles)
    descending = all(list(s.minor_to_major) == list(range(len(s.dims) - 1, -1, -1)) for s in (operand, result))
    return descending and operand.dims[-rank:] == result.dims[-rank:]


def _groups(operand: Shape, result: Shape) -> tuple[list | None, list | None]:
    """Physical order of the common-factor groups on either side; None where a group is torn apart in memory."""
    group_of: tuple[dict[int, int], dict[int, int]] = ({}, {})
    positions, products, group = [0, 0], [1, 1], 0
    sizes = (operand.dims, result.dims)
    while positions[0] < len(sizes[0]) or positions[1] < len(sizes[1]):
        side = 0 if positions[1] >= len(sizes[1]) or (positions[0] < len(sizes[0]) and products[0] <= products[1]) else 1
        dimension = positions[side]
        group_of[side][dimension] = group
        products[side] *= sizes[side][dimension]
        positions[side] += 1
        if products[0] == products[1]:
            group, products = group + 1, [1, 1]
    return _run_order(operand, group_of[0]), _run_order(result, group_of[1])


def _run_order(shape: Shape, group_of: dict[int, int]) -> list | None:
    order: list[tuple] = []
    for dimension in shape.order:
        group = group_of[dimension]
        if order and order[-1][0] == group:
            if order[-1][1] > dimension:
                return None
            order[-1] = (group, dimension)
        elif any(seen == group for seen, _ in order):
            return None
        else:
            order.append((group, dimension))
    return [group for group, _ in order]
