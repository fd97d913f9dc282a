"""Notes of operations of torch: functions of each number, of each row, and what only moves columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from freshet.gnn.declarations import Elu, Gelu, LeakyRelu, Relu, Selu, Sigmoid, Silu, Tanh
from freshet.gnn.pyg.own.angles import ANGLE_NOTES
from freshet.gnn.pyg.own.edges import EDGE_NOTES
from freshet.gnn.pyg.own.loops import with_loops_by_hand
from freshet.gnn.pyg.own.masks import MASK_NOTES, is_mask
from freshet.gnn.pyg.own.recorder import (
    Note,
    Noted,
    NotedValue,
    Operation,
    Recorder,
    axis_of,
    tensors_in,
    tracked,
)
from freshet.gnn.pyg.own.types import TYPE_NOTES, is_types
from freshet.gnn.pyg.own.values import Over, Value, constant, take
from freshet.gnn.pyg.own.whole_rows import LAYER_NOTES
from freshet.gnn.pyg.read_convs import LARGEST
from freshet.gnn.rows.functions import Celu, Clamp, Cosine, LogSigmoid, Mish, Sine, Softplus
from freshet.gnn.rows.layer import Layer

_SELU = (1.6732632423543772, 1.0507009873554805)


def _refuse_numbers(call: Operation, value: Value) -> None:
    if value.is_index:
        call.refuse(f"{call.name} reads the numbers of vertices, which differ from job to job")


def _binary(op: str) -> Note:
    def note(rec: Recorder, call: Operation) -> NotedValue:
        _, first = tracked(rec, call)
        over = first.value.over
        axis = axis_of(rec, call, over)
        left, right = call.args[:2]
        if op == "rsub":
            left, right = right, left
        alpha = call.options.get("alpha", call.args[2] if len(call.args) > 2 else 1)
        if call.options.get("rounding_mode") is not None:
            call.refuse("a division that rounds is no function of rows that Freshet knows")
        one, other = (rec.operand(call, side, call.result.shape, axis, over) for side in (left, right))
        for value in (one, other):
            _refuse_numbers(call, value)
        if alpha != 1:
            other = arithmetic("mul", other, constant(np.array([alpha], np.float64)), over, call.place)
        return NotedValue(arithmetic(op.removeprefix("r"), one, other, over, call.place), axis)

    return note


def arithmetic(op: str, one: Value, other: Value, over: Over, place: str) -> Value:
    """Return what arithmetic makes of two values; a quotient by constants is a product."""
    if op == "div" and other.op == "constant":
        with np.errstate(divide="ignore"):
            inverse = constant(1.0 / other.arrays["value"].astype(np.float64), place)
        return arithmetic("mul", one, inverse, over, place)
    if op == "mul" and one.op == "constant":
        one, other = other, one
    if op in ("add", "mul") and other.op == "constant" and (other.arrays["value"] == (op == "mul")).all():
        return one
    return Value(op, max(one.width, other.width), over, (one, other), place)


def _layer(make: Callable[..., Layer | None]) -> Note:
    """Return how a function of each number is noted that a layer of rows is, given its arguments."""

    def note(rec: Recorder, call: Operation) -> Noted:
        tensor, noted = tracked(rec, call)
        _refuse_numbers(call, noted.value)
        layer = make(*call.args[1:], **{k: v for k, v in call.options.items() if k not in ("self", "input")})
        if layer is None or tensor is not (call.args or [None])[0]:
            return rec.taken_apart(call)
        made = noted.then("layer", call.place, layer=layer)
        return [made, None] if isinstance(call.result, tuple) else made

    return note


def _function(op: str) -> Note:
    def note(rec: Recorder, call: Operation) -> NotedValue:
        _, noted = tracked(rec, call)
        _refuse_numbers(call, noted.value)
        return noted.then(op, call.place)

    return note


def _one_over(op: str) -> Note:
    """Note 1 / f(x)."""

    def note(rec: Recorder, call: Operation) -> NotedValue:
        _, noted = tracked(rec, call)
        _refuse_numbers(call, noted.value)
        value = noted.then(op, call.place).value if op else noted.value
        return NotedValue(Value("div", value.width, value.over, (constant(np.ones(1)), value), call.place), noted.axis)

    return note


def _power(rec: Recorder, call: Operation) -> NotedValue:
    tensor, noted = tracked(rec, call)
    _refuse_numbers(call, value := noted.value)
    exponent = call.args[1] if len(call.args) > 1 else None
    if isinstance(exponent, torch.Tensor) and rec.find(exponent) is None and not rec.sized(exponent):
        if exponent.unique().numel() > 1:
            return _powers(rec, call)
        exponent = float(exponent.flatten()[0])
    if tensor is not call.args[0] or not isinstance(exponent, int | float):
        call.refuse("a power whose exponent is no number is no function of rows that Freshet knows")
    if exponent == 2:
        return NotedValue(Value("mul", value.width, value.over, (value, value), call.place), noted.axis)
    if exponent == 0.5:
        return noted.then("sqrt", call.place)
    return noted.then("power", call.place, arrays={"exponent": np.array([exponent], np.float64)})


def _powers(rec: Recorder, call: Operation) -> NotedValue:
    """Note powers by an exponent for each channel of what is above 0, by logarithms."""
    tensor, noted = tracked(rec, call)
    low = noted.value.layer.low if isinstance(noted.value.layer, Clamp) else None
    if tensor is not call.args[0] or low is None or low <= 0:
        call.refuse("a power by several exponents is read of what clamp(min=) keeps above 0. Nearest: that")
    over, axis = noted.value.over, axis_of(rec, call, noted.value.over)
    one, exponents = (rec.operand(call, side, call.result.shape, axis, over) for side in call.args[:2])
    logarithm = Value("log", one.width, over, (one,), call.place)
    product = arithmetic("mul", logarithm, exponents, over, call.place)
    return NotedValue(Value("exp", product.width, over, (product,), call.place), axis)


def _moved(rec: Recorder, call: Operation) -> NotedValue | Sequence[NotedValue | None]:
    """Note what only moves columns about."""
    if (looped := with_loops_by_hand(rec, call)) is not None:
        return looped
    rec.refuse_sized(call, tensors_in(call.args))
    _, noted = tracked(rec, call)
    first = call.args[0]
    listed = list(first) if isinstance(first, list | tuple) else [first]

    def run(*ids: torch.Tensor) -> Any:
        given = list(ids) if isinstance(first, list | tuple) else ids[0]
        return call.run(given, *call.args[1:], **call.options)

    made = rec.moved(call, listed, run, noted.value.over)
    if made is None or _cuts(call, noted.axis, rec.sizes[noted.value.over]):
        call.refuse(f"{call.name} takes some of the vertices or edges, or moves them")
    return made if isinstance(call.result, list | tuple) else made[0]


def _cuts(call: Operation, axis: int, size: int) -> bool:
    """Return whether an operation cuts rows at a number that all rows of this graph are below."""
    if call.name == "split":
        return _argument(call, 2, "dim", 0) % call.args[0].dim() == axis and call.args[1] != size
    if call.name == "slice":
        end = _argument(call, 3, "end", None)
        return _argument(call, 1, "dim", 0) % call.args[0].dim() == axis and end not in (None, size) and end < _NO_END
    return False


_NO_END = 2**62  # slices without an end have a larger one


def _argument(call: Operation, place: int, name: str, fallback: Any) -> Any:
    return call.args[place] if len(call.args) > place else call.options.get(name, fallback)


def _cast(rec: Recorder, call: Operation) -> NotedValue:
    _, noted = tracked(rec, call)
    kind = call.result.dtype
    allowed = (torch.int64, torch.int32) if noted.value.is_index else (torch.float32, torch.float64)
    if kind not in allowed and not is_mask(noted.value) and not (is_types(rec, call.args[0]) and kind == torch.int64):
        call.refuse(f"it makes {kind} of rows, and Freshet computes in torch.float32")
    return noted


def _copied(rec: Recorder, call: Operation) -> NotedValue | None:
    source = rec.find(call.args[1])
    if source is None:
        call.refuse("it writes constants over rows")
    axis = axis_of(rec, call._replace(args=call.args[1:2], options={}), source.value.over)
    return NotedValue(rec.operand(call, call.args[1], call.result.shape, axis, source.value.over), axis)


def _linear(rec: Recorder, call: Operation) -> Noted:
    """Note a function that is linear in the columns of each row, whose matrix is found by trying unit vectors."""
    read = [one for one in _flat(call.args) if rec.find(one) is not None]
    if len(read) > 1:
        return rec.taken_apart(call) if call.name == "addmm" else _products(rec, call)
    tensor, noted = tracked(rec, call)
    value, over = noted.value, noted.value.over
    _refuse_numbers(call, value)
    size, width = rec.sizes[over], value.width
    rest = [n for d, n in enumerate(tensor.shape) if d != noted.axis]

    def run(rows: np.ndarray) -> Any:
        given = torch.from_numpy(rows.astype(np.float32)).view(size, *rest).movedim(0, noted.axis)
        args = [given if one is tensor else one for one in call.args]
        made = call.run(*args, **call.options)
        return made[0] if isinstance(made, tuple) else made

    result = call.result[0] if isinstance(call.result, tuple) else call.result
    if call.name in ("sum", "mean") and width * result.numel() // size > LARGEST:
        call.refuse(f"{call.name} of {width} numbers of each row to {result.numel() // size} is too wide to be read")
    rows = tensor.movedim(noted.axis, 0).reshape(size, -1).double().numpy()
    for axis in [d for d, n in enumerate(result.shape) if n == size]:
        matrix, shift = _matrix_of(run, size, width, axis)
        want = result.movedim(axis, 0).reshape(size, -1).double().numpy()
        if np.allclose(rows @ matrix.T + shift, want, rtol=1e-3, atol=1e-3 * max(1.0, float(np.abs(want).max()))):
            made = NotedValue(linear(value, matrix, shift, over, call.place), axis)
            return made if not isinstance(call.result, tuple) else [made, *[None] * (len(call.result) - 1)]
    call.refuse(f"{call.name} reads more than one vertex or edge at once")


def _matrix_of(run: Callable[[np.ndarray], Any], size: int, width: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the matrix and shift of a function of rows, of which it is given `size` at a time."""
    columns, shift = list[np.ndarray](), np.zeros(0)
    for begin in range(0, width, size - 1):
        count = min(size - 1, width - begin)
        rows = np.zeros((size, width))
        rows[np.arange(count), begin + np.arange(count)] = 1
        made = run(rows).movedim(axis, 0).reshape(size, -1).double().numpy()
        shift = made[-1]
        columns += list(made[:count] - shift)
    return np.stack(columns, axis=1), shift


def linear(value: Value, matrix: np.ndarray, shift: np.ndarray, over: Over, place: str) -> Value:
    """Return a linear layer of a value, without the shift where that is 0; a factor where the matrix is diagonal."""
    if matrix.shape[0] == matrix.shape[1] and not (matrix - np.diag(np.diag(matrix))).any():
        made = arithmetic("mul", value, constant(np.diag(matrix), place), over, place)
        return made if not shift.any() else arithmetic("add", made, constant(shift, place), over, place)
    arrays = {"weight": matrix.astype(np.float32)} | ({"bias": shift.astype(np.float32)} if shift.any() else {})
    return Value("linear", len(matrix), over, (value,), place, arrays=arrays)


def _products(rec: Recorder, call: Operation) -> NotedValue:
    """Note the product of a matrix of each row with another of the same row, as torch.bmm makes it."""
    if call.name != "bmm":
        call.refuse(f"{call.name} brings rows of different vertices or edges together")
    left, right = call.args
    over = tracked(rec, call)[1].value.over
    (b, p, q), r = left.shape, right.shape[2]
    spread = call._replace(result=left.new_zeros((b, p, q, r)))
    axis = 0
    parts = []
    for one, shaped in ((left, left.unsqueeze(3)), (right, right.unsqueeze(1))):
        noted = rec.find(one)
        assert noted is not None
        if noted.axis != 0:
            call.refuse("a product of matrices over vertices or edges reads more than one of them")
        rec.note(shaped, NotedValue(noted.value, 0))
        parts.append(rec.operand(spread, shaped, (b, p, q, r), axis, over))
    product = Value("mul", p * q * r, over, tuple(parts), call.place)
    sums = np.kron(np.eye(p), np.kron(np.ones((1, q)), np.eye(r)))
    return NotedValue(linear(product, sums, np.zeros(p * r), over, call.place), 0)


def _trilinear(rec: Recorder, call: Operation) -> Noted:
    """Note nn.Bilinear: of the columns of two rows each product, weighed; one of both rows times the weights first."""
    left, weight, right, *dims = call.args
    ends = [rec.find(one) for one in (left, right)]
    if None in ends or [list(one) for one in dims[:4]] != [[1, 3], [0], [1, 2], [2, 3]]:
        return _linear(rec, call)
    (one, other), over = ends, tracked(rec, call)[1].value.over
    assert one is not None and other is not None
    if one.axis or other.axis or one.value.over != over or other.value.over != over:
        call.refuse(f"{call.name} brings rows of different vertices or edges together")
    out, wide, narrow = weight.shape
    matrix = weight.detach().double().numpy().transpose(0, 2, 1).reshape(out * narrow, wide)
    columns = np.tile(np.arange(narrow), out)
    again = take([other.value], np.zeros(len(columns), np.int64), columns, over, call.place)
    times = linear(one.value, matrix, np.zeros(len(matrix)), over, call.place)
    product = Value("mul", len(columns), over, (times, again), call.place)
    sums = np.kron(np.eye(out), np.ones((1, narrow)))
    return NotedValue(linear(product, sums, np.zeros(out), over, call.place), 0)


def _reduced(op: str) -> Note:
    """Note the largest or smallest number over dimensions of a row."""

    def note(rec: Recorder, call: Operation) -> NotedValue | list[NotedValue | None]:
        tensor, noted = tracked(rec, call)
        over, value = noted.value.over, noted.value
        given = call.args[1] if len(call.args) > 1 else call.options.get("dim", ())
        dims = [given] if isinstance(given, int) else list(given)
        dims = [d % tensor.dim() for d in dims]
        if not dims or noted.axis in dims:
            call.refuse(f"{call.name} reads all vertices or edges at once")
        result = call.result[0] if isinstance(call.result, tuple) else call.result
        last = tensor.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims))
        pieces = list[NotedValue]()
        for k in range(last.shape[-1]):

            def picked(ids: torch.Tensor, k: int = k) -> torch.Tensor:
                at = ids.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims))
                return at[..., k].reshape(result.shape)

            found = rec.moved(call, [tensor], picked, over)
            assert found is not None
            pieces.append(found[0])
        made = pieces[0].value
        for piece in pieces[1:]:
            made = Value(op, piece.value.width, over, (made, piece.value), call.place)
        _refuse_numbers(call, value)
        noted = NotedValue(made, pieces[0].axis)
        return [noted, None] if isinstance(call.result, tuple) else noted

    return note


def _length(rec: Recorder, call: Operation) -> NotedValue:
    """Note the Euclidean length over dimensions of a row."""
    tensor, noted = tracked(rec, call)
    if (call.args[1] if len(call.args) > 1 else call.options.get("ord", 2)) != 2:
        call.refuse("a norm other than the Euclidean one is no function of rows that Freshet knows")
    squares, value = torch.empty_like(tensor).copy_(tensor * tensor), noted.value
    rec.note(squares, NotedValue(Value("mul", value.width, value.over, (value, value), call.place), noted.axis))
    dims = call.args[2] if len(call.args) > 2 else call.options.get("dim")
    keep = call.args[3] if len(call.args) > 3 else call.options.get("keepdim", False)
    total = squares.sum(dims, keepdim=keep)
    run = torch.ops.aten.sum.dim_IntList
    summed = _linear(rec, Operation("sum", run, (squares, dims, keep), {}, total, call.place))
    assert isinstance(summed, NotedValue)
    return summed.then("sqrt", call.place)


def _nothing(rec: Recorder, call: Operation) -> None:
    """Note what takes no more than the shape of rows."""


def _elu(alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Layer | None:
    if scale == 1 and input_scale == 1:
        return Elu(alpha=alpha)
    if input_scale == 1 and np.allclose((alpha, scale), _SELU, rtol=1e-6):
        return Selu()
    return Celu(alpha=alpha) if scale == 1 and np.isclose(alpha * input_scale, 1) else None


def _clamp(min: Any = None, max: Any = None) -> Layer | None:
    bounds = [None if one is None else float(one) for one in (min, max) if not isinstance(one, torch.Tensor)]
    return Clamp(low=bounds[0], high=bounds[1]) if len(bounds) == 2 else None


def _flat(given: Any) -> list[Any]:
    return [inner for one in given for inner in (one if isinstance(one, list | tuple) else [one])]


_MOVES = (
    "view _unsafe_view reshape expand permute transpose t select slice unsqueeze squeeze split split_with_sizes "
    "unsafe_split chunk unbind cat stack flip detach alias clone contiguous diagonal repeat unfold roll narrow "
    "lift_fresh broadcast_in_dim"
)
NOTES: dict[str, Note] = {
    **dict.fromkeys(_MOVES.split(), _moved),
    **{name: _binary(op) for name, op in (("add", "add"), ("sub", "sub"), ("rsub", "rsub"), ("mul", "mul"))},
    **{name: _binary(op) for name, op in (("div", "div"), ("maximum", "max"), ("minimum", "min"), ("atan2", "atan2"))},
    **dict.fromkeys("mm addmm bmm baddbmm sum mean native_batch_norm cumsum addmv mv".split(), _linear),
    **dict.fromkeys(
        ("new_zeros", "new_ones", "zeros_like", "ones_like", "full_like", "new_full", "empty_like"), _nothing
    ),
    **dict.fromkeys(("new_empty", "sym_size", "sym_numel"), _nothing),
    **{name: _function(name) for name in ("exp", "log", "sqrt", "abs")},
    "reciprocal": _one_over(""),
    "rsqrt": _one_over("sqrt"),
    "pow": _power,
    "neg": lambda rec, call: _binary("mul")(rec, call._replace(args=(call.args[0], -1.0))),
    **{name: _layer(kind) for name, kind in (("relu", Relu), ("sigmoid", Sigmoid), ("tanh", Tanh), ("silu", Silu))},
    **{name: _layer(kind) for name, kind in (("mish", Mish), ("sin", Sine), ("cos", Cosine))},
    "leaky_relu": _layer(lambda negative_slope=0.01: LeakyRelu(slope=negative_slope)),
    "elu": _layer(_elu),
    "gelu": _layer(lambda approximate="none": Gelu(approximate=approximate)),
    "softplus": _layer(lambda beta=1.0, threshold=20.0: Softplus(beta=beta, threshold=threshold)),
    "log_sigmoid_forward": _layer(lambda: LogSigmoid()),
    "hardtanh": _layer(lambda min_val=-1.0, max_val=1.0: _clamp(min_val, max_val)),
    "clamp": _layer(_clamp),
    "clamp_min": _layer(lambda min: _clamp(min)),
    "clamp_max": _layer(lambda max: _clamp(None, max)),
    "linalg_vector_norm": _length,
    "_trilinear": _trilinear,
    **{name: _reduced(name.removeprefix("a")) for name in ("amax", "amin", "max", "min")},
    "_to_copy": _cast,
    "copy": _copied,
    **ANGLE_NOTES,
    **EDGE_NOTES,
    **MASK_NOTES,
    **TYPE_NOTES,
    **LAYER_NOTES,
}
"""The notes of torch's operations, by the names of these."""
