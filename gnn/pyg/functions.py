"""Table from functions of rows, and from torch modules without neighbours, to layers."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import Module
from torch_geometric.nn import resolver

from freshet.gnn.declarations import Elu, Gelu, Identity, LeakyRelu, Linear, PRelu, Relu, Selu, Sigmoid, Silu, Tanh
from freshet.gnn.model import explain
from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.refusals import HOW_WIDE, why_not_function
from freshet.gnn.pyg.steps import ChosenColumns, Step
from freshet.gnn.rows.functions import (
    Affine,
    Celu,
    Clamp,
    LogSigmoid,
    LogSoftmax,
    Mish,
    Normalize,
    Scale,
    Softmax,
    Softplus,
)
from freshet.gnn.rows.layer import Layer
from freshet.gnn.rows.norms import LayerNorm, RMSNorm

Weights = dict[str, np.ndarray]
Made = tuple[Layer, Weights]
Noted = tuple[Layer | ChosenColumns, Weights]

FLOAT32_EPS = float(np.finfo(np.float32).eps)  # torch's default for RMSNorm


def known_name(function: Any) -> str:
    """Return the name of a function of torch's, PyG's activations or Python's operators; of any other where it is from.

    A function of the same name that is another one may do anything.
    """
    name = str(getattr(function, "__name__", function))
    homes = (torch, torch.nn.functional, torch.special, torch.Tensor, torch._C._nn, operator, builtins, resolver)
    if not is_foreign(function) and any(getattr(home, name, None) is function for home in homes):
        return name
    return f"{name} of {getattr(function, '__module__', None) or type(function).__name__}"


def is_foreign(function: Any) -> bool:
    """Return whether a function is neither torch's, PyG's nor Python's."""
    home = str(getattr(function, "__module__", None) or "torch").split(".")[0]
    return home not in ("torch", "torch_geometric", "_operator", "operator", "builtins", "math", "_VariableFunctions")


def function_layer(name: str, function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Noted:
    """Return the layer that a function of rows is, with its weights; args and options are those after the rows.

    Raises: ExportError naming a function that is no layer.
    """
    label = function if isinstance(function, str) else known_name(function)
    make = _FUNCTIONS.get(label.rstrip("_").lower())
    if make is None:
        reason = why_not_function(label.rstrip("_").lower())
        refuse(f"{name}: function {label} is not supported{reason}; supported are {', '.join(_FUNCTIONS)}")
    try:
        made = make(*args, **options)
    except TypeError as error:
        msg = f"{name}: {label} is called with arguments that Freshet cannot read: {error}"
        raise ExportError(msg) from None
    except ValueError as error:
        msg = f"{name}: {explain(error)}"
        raise ExportError(msg) from None
    return made if isinstance(made, tuple) else (made, {})


def function_step(name: str, function: Any) -> Step:
    """Return the step of a function of rows without further arguments."""
    layer, weights = function_layer(name, function, (), {})
    return Step(name, layer, weights=weights)


def callable_step(name: str, function: Any) -> Step:
    """Return the step of an activation, which is a module or a function."""
    name = name.removeprefix(".")
    if is_foreign(function) and _gives_its_argument(function):
        return Step(name, Identity())
    return Step(name, function) if isinstance(function, Module) else function_step(name, function)


def _gives_its_argument(function: Any) -> bool:
    """Return whether a function is `lambda x: x`, whatever it is given."""
    code = getattr(function, "__code__", None)
    return code is not None and (code.co_argcount, code.co_code) == (1, (lambda x: x).__code__.co_code)


def arithmetic(label: str, constant: Any, *, rows_first: bool) -> list[Made]:
    """Return the layers of `rows <label> constant`, or of `constant <label> rows`; label is add, sub, mul or div.

    Raises: ValueError for a constant that is neither a number nor a row, and for constant / rows.
    """
    if label == "sub":
        factor = [] if rows_first else [(Scale(factor=-1.0), Weights())]
        return [*factor, _shifted(-_numbers(constant) if rows_first else _numbers(constant))]
    if label == "add":
        return [_shifted(_numbers(constant))]
    if label == "mul":
        return [_scaled(_numbers(constant))]
    if not rows_first:
        msg = "a constant is divided by the rows, which is no layer of Freshet"
        raise ValueError(msg)
    with np.errstate(divide="ignore"):
        return [_scaled(1.0 / _numbers(constant))]


def _numbers(constant: Any) -> np.ndarray:
    """A number as an array without dimensions, a row as one with one."""
    tensor = getattr(constant, "detach", None)
    values = np.asarray(constant if tensor is None else constant.detach().cpu().double().numpy(), np.float64)
    if values.size == 1:
        return values.reshape(())
    if values.ndim == 1 or values.shape[:-1] == (1,):
        return values.reshape(-1)
    msg = f"a constant of shape {values.shape} is neither a number nor one value per channel"
    raise ValueError(msg)


def _scaled(values: np.ndarray) -> Made:
    _refuse_not_finite(values)
    if values.ndim == 0:
        return Scale(factor=float(values)), {}
    # x + -0.0 is x, whatever its sign
    return Affine(channels=len(values)), {"scale": values.astype(np.float32), "shift": np.full(len(values), -0.0)}


def _refuse_not_finite(values: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        if not np.isfinite(values.astype(np.float32)).all():
            msg = "rows are combined with a constant that is no finite number in float32 (or divided by 0)"
            raise ValueError(msg)


def _shifted(values: np.ndarray) -> Made:
    _refuse_not_finite(values)
    if values.ndim == 0:
        return Scale(offset=float(values)), {}
    return Affine(channels=len(values)), {"scale": np.ones(len(values)), "shift": values.astype(np.float32)}


def _dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> Layer:
    if training and p > 0:
        msg = f"dropout with p={p} and training=True is random at inference too; pass training=self.training"
        raise ValueError(msg)
    return Identity()


def _dropout_of_some(p: float = 0.5, training: bool = False, inplace: bool = False) -> Layer:
    return _dropout(p, training)


def _to(*given: Any, **named: Any) -> Layer:
    """Rows that go to another device, or become what they are anyway."""
    for one in (*given, *named.values()):
        kind = str(getattr(one, "dtype", one))
        if kind.startswith("torch.") and kind not in ("torch.float32", "torch.FloatTensor"):
            msg = f"rows of {kind} are not supported: Freshet computes in torch.float32"
            raise ValueError(msg)
    return Identity()


def _over_channels(label: str, dim: int | None) -> None:
    if dim not in (None, 1, -1):
        msg = f"{label} over dim={dim} reads all vertices of the graph; dim=-1 reads the vertex's own channels"
        raise ValueError(msg)


def _softmax(dim: int | None = None, _stacklevel: int = 3, dtype: None = None) -> Layer:
    _over_channels("softmax", dim)
    return Softmax()


def _log_softmax(dim: int | None = None, _stacklevel: int = 3, dtype: None = None) -> Layer:
    _over_channels("log_softmax", dim)
    return LogSoftmax()


def _normalize(p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Layer:
    _over_channels("normalize", dim)
    if p != 2:
        msg = f"normalize with p={p} is not supported, only the Euclidean norm (p=2)"
        raise ValueError(msg)
    return Normalize(eps=eps)


def _clamp(min: float | None = None, max: float | None = None) -> Layer:
    if any(not isinstance(bound, int | float | None) or bound != bound for bound in (min, max)):
        msg = "clamp with a bound that is no number is not supported"
        raise ValueError(msg)
    return Clamp(low=_finite(min), high=_finite(max))


def _finite(bound: float | None) -> float | None:
    return None if bound is None or math.isinf(bound) else float(bound)


def _hardtanh(min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Layer:
    return _clamp(min_val, max_val)


def _prelu(weight: Any) -> Made:
    slopes = np.atleast_1d(_numbers(weight)).astype(np.float32)
    return PRelu(channels=len(slopes)), {"weight": slopes}


def _layer_norm(normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Made:
    if len(normalized_shape) != 1:
        msg = f"layer_norm over {tuple(normalized_shape)}: rows have one dimension, expected (channels,)"
        raise ValueError(msg)
    given = {"weight": weight, "bias": bias}
    weights = {name: _row(value) for name, value in given.items() if value is not None}
    layer = LayerNorm(channels=normalized_shape[0], eps=eps, weight="weight" in weights, bias="bias" in weights)
    return layer, weights


def _rms_norm(normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Made:
    layer, weights = _layer_norm(normalized_shape, weight)
    assert isinstance(layer, LayerNorm)
    eps = FLOAT32_EPS if eps is None else eps
    return RMSNorm(channels=layer.channels, eps=eps, weight=layer.weight), weights


def _linear(weight: Any, bias: Any = None) -> Made:
    weights = {"weight": weight.detach().cpu().float().numpy().copy()}
    if bias is not None:
        weights["bias"] = _row(bias)
    out_channels, in_channels = weights["weight"].shape
    return Linear(in_channels=in_channels, out_channels=out_channels, bias=bias is not None), weights


def _matmul(other: Any = None, mat2: Any = None) -> Made:
    matrix = mat2 if other is None else other
    if getattr(matrix, "ndim", 0) != 2:
        msg = "rows are multiplied by something other than a matrix of (channels, channels)"
        raise ValueError(msg)
    return _linear(matrix.t())


def _columns(index: Any = None) -> Noted:
    """`rows[:, index]`, or the same with three dots."""
    if not (isinstance(index, tuple) and len(index) == 2 and index[0] in (Ellipsis, slice(None))):
        msg = "getitem keeps some of the rows. Taken are all, as h[:n] with n=None, and columns, as h[:, 0] or h[:, :8]"
        raise ValueError(msg)
    return _select(1, index[1])


def _select(dim: int, index: Any) -> Noted:
    _over_channels("select", dim)
    places = index.tolist() if hasattr(index, "tolist") else index
    listed = places if isinstance(places, list) else [places]
    if not all(isinstance(one, int | slice) and not isinstance(one, bool) for one in listed):
        msg = f"columns {str(places)[:50]} are not supported: expected a number, a slice or numbers"
        raise ValueError(msg)
    return ChosenColumns(places), {}


def columns_layer(columns: ChosenColumns, width: int | None) -> Made:
    """Return columns of rows of this width as a linear layer of ones and zeros, with its weights.

    Raises: ValueError for a place past the width, or where that is unknown.
    """
    if width is None:
        msg = f"the width of the rows is unknown, since no layer says it; {HOW_WIDE}"
        raise ValueError(msg)
    try:
        chosen = np.atleast_1d(np.arange(width)[columns.places])
    except IndexError:
        msg = f"columns {columns.places} of rows of width {width}"
        raise ValueError(msg) from None
    if chosen.size == 0:
        msg = f"columns {columns.places} of rows of width {width} are none"
        raise ValueError(msg)
    if np.array_equal(chosen, np.arange(width)):
        return Identity(), {}
    layer = Linear(in_channels=width, out_channels=len(chosen), bias=False)
    return layer, {"weight": np.eye(width, dtype=np.float32)[chosen]}


def _squeeze(dim: int | None = None) -> Layer:
    """A row of one number becomes a number, which is a row of width 1 in Freshet, or the other way round."""
    _over_channels("squeeze", dim)
    return Identity()


def _flatten(start_dim: int = 0, end_dim: int = -1) -> Layer:
    """The same of rows of one number; the last check of an export refuses wider ones."""
    return Identity()


def _view(*shape: Any) -> Layer:
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if sizes not in ((-1,), (-1, 1)):
        msg = (
            f"rows as {sizes} are not supported: a row has one dimension. Expected (-1,) or (-1, 1), of rows of width 1"
        )
        raise ValueError(msg)
    return Identity()


def _row(value: Any) -> np.ndarray:
    return np.atleast_1d(_numbers(value)).astype(np.float32)


_FUNCTIONS: dict[str, Callable[..., Layer | Noted]] = {
    "relu": lambda inplace=False: Relu(),
    "leaky_relu": lambda negative_slope=0.01, inplace=False: LeakyRelu(slope=negative_slope),
    "prelu": _prelu,
    "relu6": lambda inplace=False: Clamp(low=0.0, high=6.0),
    "hardtanh": _hardtanh,
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": lambda min: _clamp(min),
    "clamp_max": lambda max: _clamp(None, max),
    "elu": lambda alpha=1.0, inplace=False: Elu(alpha=alpha),
    "celu": lambda alpha=1.0, inplace=False: Celu(alpha=alpha),
    "selu": lambda inplace=False: Selu(),
    "gelu": lambda approximate="none": Gelu(approximate=approximate),
    "softplus": lambda beta=1.0, threshold=20.0: Softplus(beta=beta, threshold=threshold),
    "mish": lambda inplace=False: Mish(),
    "tanh": lambda: Tanh(),
    "sigmoid": lambda: Sigmoid(),
    "logsigmoid": lambda: LogSigmoid(),
    "log_sigmoid": lambda: LogSigmoid(),
    "silu": lambda inplace=False: Silu(),
    "swish": lambda: Silu(),
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "normalize": _normalize,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "linear": _linear,
    "matmul": _matmul,
    "mm": _matmul,
    "getitem": _columns,
    "select": _select,
    "squeeze": _squeeze,
    "unsqueeze": _squeeze,
    "flatten": _flatten,
    "ravel": _flatten,
    "view": _view,
    "reshape": _view,
    "neg": lambda: Scale(factor=-1.0),
    "dropout": _dropout,
    **dict.fromkeys(("dropout1d", "dropout2d", "dropout3d"), _dropout),
    "alpha_dropout": _dropout_of_some,
    "feature_alpha_dropout": _dropout_of_some,
    "contiguous": lambda: Identity(),
    "float": lambda: Identity(),
    "to": _to,
    "type": _to,
    "type_as": _to,
    "cpu": lambda: Identity(),
    "cuda": lambda device=None, non_blocking=False: Identity(),
    "detach": lambda: Identity(),
    "clone": lambda: Identity(),
}
MODULES: dict[str, Callable[[Any], Layer]] = {
    "torch.nn.ReLU": lambda m: Relu(),
    "torch.nn.LeakyReLU": lambda m: LeakyRelu(slope=m.negative_slope),
    "torch.nn.ReLU6": lambda m: Clamp(low=0.0, high=6.0),
    "torch.nn.Hardtanh": lambda m: _clamp(m.min_val, m.max_val),
    "torch.nn.ELU": lambda m: Elu(alpha=m.alpha),
    "torch.nn.CELU": lambda m: Celu(alpha=m.alpha),
    "torch.nn.SELU": lambda m: Selu(),
    "torch.nn.GELU": lambda m: Gelu(approximate=m.approximate),
    "torch.nn.Softplus": lambda m: Softplus(beta=m.beta, threshold=m.threshold),
    "torch.nn.Mish": lambda m: Mish(),
    "torch.nn.Tanh": lambda m: Tanh(),
    "torch.nn.Sigmoid": lambda m: Sigmoid(),
    "torch.nn.LogSigmoid": lambda m: LogSigmoid(),
    "torch.nn.SiLU": lambda m: Silu(),
    "torch.nn.Softmax": lambda m: _softmax(m.dim),
    "torch.nn.LogSoftmax": lambda m: _log_softmax(m.dim),
    "torch.nn.Identity": lambda m: Identity(),
    "torch.nn.Flatten": lambda m: Identity(),
    "torch.nn.Dropout": lambda m: Identity(),
    "torch.nn.Dropout1d": lambda m: Identity(),
    "torch.nn.Dropout2d": lambda m: Identity(),
    "torch.nn.Dropout3d": lambda m: Identity(),
    "torch.nn.AlphaDropout": lambda m: Identity(),
    "torch.nn.FeatureAlphaDropout": lambda m: Identity(),
}
