"""What a model's layers are: one declarative class per layer type, with its sizes, options and weight shapes."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Shape = tuple[int, ...]
Width = Annotated[int, Field(ge=1)]


class Layer(BaseModel):
    """Base of all layer declarations: data only, as model.json holds it; weights are kept beside it by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @property
    def in_width(self) -> int | None:
        """Width of the rows it reads, None if any."""
        return None

    @property
    def out_width(self) -> int | None:
        """Width of the rows it makes, None if the same as it reads."""
        return None

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return {}


class Linear(Layer):
    """y = x W^T + b."""

    type: Literal["linear"] = "linear"
    in_channels: Width
    out_channels: Width
    bias: bool = True

    @property
    def in_width(self) -> int:
        """Width of the rows it reads."""
        return self.in_channels

    @property
    def out_width(self) -> int:
        """Width of the rows it makes."""
        return self.out_channels

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return _linear("", self.in_channels, self.out_channels, bias=self.bias)


class BatchNorm(Layer):
    """y = x * scale + shift: a BatchNorm with the statistics it was trained with, folded."""

    type: Literal["batch_norm"] = "batch_norm"
    channels: Width

    @property
    def in_width(self) -> int:
        """Width of the rows it reads."""
        return self.channels

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return {"scale": (self.channels,), "shift": (self.channels,)}


class Relu(Layer):
    """max(x, 0)."""

    type: Literal["relu"] = "relu"


class LeakyRelu(Layer):
    """The value where x > 0, else slope * x."""

    type: Literal["leaky_relu"] = "leaky_relu"
    slope: float = 0.01


class PRelu(Layer):
    """Leaky relu with learned slopes: one, or one per channel."""

    type: Literal["prelu"] = "prelu"
    channels: Width = 1

    @property
    def in_width(self) -> int | None:
        """Width of the rows it reads, None if any."""
        return None if self.channels == 1 else self.channels

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return {"weight": (self.channels,)}


class Elu(Layer):
    """The value where x > 0, else alpha * (exp(x) - 1)."""

    type: Literal["elu"] = "elu"
    alpha: float = 1.0


class Selu(Layer):
    """Self-normalising exponential unit."""

    type: Literal["selu"] = "selu"


class Gelu(Layer):
    """Gaussian error linear unit, by erf or in its tanh approximation."""

    type: Literal["gelu"] = "gelu"
    approximate: Literal["none", "tanh"] = "none"


class Tanh(Layer):
    """Hyperbolic tangent."""

    type: Literal["tanh"] = "tanh"


class Sigmoid(Layer):
    """Logistic function."""

    type: Literal["sigmoid"] = "sigmoid"


class Silu(Layer):
    """x * sigmoid(x)."""

    type: Literal["silu"] = "silu"


class Identity(Layer):
    """Does nothing."""

    type: Literal["identity"] = "identity"


AnyDense = Linear | BatchNorm | Relu | LeakyRelu | PRelu | Elu | Selu | Gelu | Tanh | Sigmoid | Silu | Identity
DenseLayer = Annotated[AnyDense, Field(discriminator="type")]


class Conv(Layer):
    """Base of the layers that read neighbours."""

    in_channels: Width
    out_channels: Width

    @property
    def in_width(self) -> int:
        """Width of the rows it reads."""
        return self.in_channels

    @property
    def out_width(self) -> int:
        """Width of the rows it makes."""
        return self.out_channels


class GraphConv(Conv):
    """W_root x_v + W_rel aggr(w_uv x_u) + b."""

    type: Literal["graph_conv"] = "graph_conv"
    aggr: Literal["sum", "mean"] = "sum"
    bias: bool = True
    edge_weights: bool = Field(True, description="false where the module does not hand edge weights to the layer")

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        relation = _linear("lin_rel.", self.in_channels, self.out_channels, bias=self.bias)
        return relation | _linear("lin_root.", self.in_channels, self.out_channels, bias=False)


class SAGEConv(Conv):
    """W_r x_v + W_l aggr(x_u) + b, optionally projected before and normalised after; reads no edge weights."""

    type: Literal["sage_conv"] = "sage_conv"
    aggr: Literal["mean", "sum"] = "mean"
    normalize: bool = False
    root_weight: bool = True
    project: bool = False
    bias: bool = True

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        shapes = _linear("lin_l.", self.in_channels, self.out_channels, bias=self.bias)
        if self.root_weight:
            shapes |= _linear("lin_r.", self.in_channels, self.out_channels, bias=False)
        if self.project:
            shapes |= _linear("lin.", self.in_channels, self.in_channels, bias=True)
        return shapes


class GCNConv(Conv):
    """W sum(d_u^-1/2 w_uv d_v^-1/2 x_u) + b with self-loops; a plain weighted sum where normalize is false."""

    type: Literal["gcn_conv"] = "gcn_conv"
    improved: bool = False
    add_self_loops: bool = True
    normalize: bool = True
    bias: bool = True
    edge_weights: bool = Field(True, description="false where the module does not hand edge weights to the layer")

    @model_validator(mode="after")
    def _loops_need_normalize(self) -> GCNConv:
        if self.add_self_loops and not self.normalize:
            msg = "gcn_conv: add_self_loops needs normalize (as in PyG); set add_self_loops to false"
            raise ValueError(msg)
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        shapes = _linear("lin.", self.in_channels, self.out_channels, bias=False)
        return shapes | ({"bias": (self.out_channels,)} if self.bias else {})


class GINConv(Conv):
    """nn((1 + eps) x_v + sum x_u), nn being a chain of dense layers; reads no edge weights."""

    type: Literal["gin_conv"] = "gin_conv"
    eps: float = 0.0
    nn: list[DenseLayer]

    @model_validator(mode="after")
    def _widths_fit(self) -> GINConv:
        out = chain_width(self.nn, self.in_channels, "gin_conv.nn")
        if out != self.out_channels:
            msg = f"gin_conv: nn makes rows of width {out}, expected out_channels {self.out_channels}"
            raise ValueError(msg)
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return chain_tensors(self.nn, "nn")


AnyConv = GraphConv | SAGEConv | GCNConv | GINConv
AnyLayer = Annotated[AnyConv | AnyDense, Field(discriminator="type")]


def _types_of(layers: object) -> tuple[str, ...]:
    return tuple(layer.model_fields["type"].default for layer in get_args(layers))


CONV_TYPES, DENSE_TYPES = _types_of(AnyConv), _types_of(AnyDense)


def chain_width(layers: list[DenseLayer], width: int, where: str) -> int:
    """Return the width that a chain makes of rows of the given width.

    Raises: ValueError naming the first layer that does not fit.
    """
    for i, layer in enumerate(layers):
        if layer.in_width is not None and layer.in_width != width:
            msg = f"{where}.{i} ({layer.type}) reads rows of width {layer.in_width}, got {width}"
            raise ValueError(msg)
        width = layer.out_width or width
    return width


def chain_tensors(layers: list[DenseLayer], prefix: str) -> dict[str, Shape]:
    """Return names and shapes of the weights of a chain, as `prefix.index.name`."""
    return {f"{prefix}.{i}.{name}": shape for i, layer in enumerate(layers) for name, shape in layer.tensors().items()}


def _linear(prefix: str, in_width: int, out_width: int, *, bias: bool) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {prefix + "weight": (out_width, in_width)}
    if bias:
        shapes[prefix + "bias"] = (out_width,)
    return shapes
