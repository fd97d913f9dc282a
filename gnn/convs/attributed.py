"""Declarations of the layers whose messages read attributes of edges."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from freshet.gnn.convs.base import Aggregator, Conv, check_nn, check_same_width
from freshet.gnn.rows.chains import chain_tensors, chain_width
from freshet.gnn.rows.dense import DenseLayer, linear_shapes
from freshet.gnn.rows.layer import Shape, Width


class GINEConv(Conv):
    """x_v' = nn((1 + eps) x_v + sum_u relu(x_u + W e_uv + b)), PyG's GINEConv; reads no edge weights.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        edge_channels: Width of the attributes e_uv of an edge, at least 1.
        edge_linear: Whether W e_uv + b is added; else e_uv itself, which is then as wide as the rows.
        eps: Factor of the own row beside 1; a learned one has its value at the export.
        nn: Chain of dense layers, from rows of in_channels to rows of out_channels.

    Weights: those of layer i of the chain, as nn.i.NAME with that layer's names and shapes; with edge_linear
    lin.weight (W), (in_channels, edge_channels), and lin.bias (b), (in_channels,). All float32.

    Shapes: x (n, in_channels) float32, e (edges, edge_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where nn does not fit the two widths, where attributes that are added as they are have another
        width than the rows, or for an unknown option or value.
    Source: Hu et al., Strategies for pre-training graph neural networks (2020).
    """

    BETWEEN_KINDS: ClassVar[bool] = True
    type: Literal["gine_conv"] = "gine_conv"
    edge_channels: Width
    edge_linear: bool = True
    eps: float = 0.0
    nn: list[DenseLayer]

    @model_validator(mode="after")
    def _widths_fit(self) -> GINEConv:
        check_nn(self, self.nn, self.in_channels)
        if not self.edge_linear and self.edge_channels != self.in_channels:
            msg = f"gine_conv: edge_channels {self.edge_channels} without edge_linear, expected in_channels "
            raise ValueError(msg + str(self.in_channels))
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        of_edges = linear_shapes("lin.", self.edge_channels, self.in_channels, bias=True) if self.edge_linear else {}
        return of_edges | chain_tensors(self.nn, "nn")


class NNConv(Conv):
    """x_v' = W x_v + aggr_u x_u nn(e_uv) + b, where nn makes a matrix for each edge: PyG's NNConv (ECConv).

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        edge_channels: Width of the attributes e_uv of an edge, at least 1.
        aggr: Aggregate of the messages: sum, mean, max, min, std or var.
        nn: Chain of dense layers, from attributes to the rows of a matrix, in_channels * out_channels numbers.
        root_weight: Whether W x_v is added.
        bias: Whether b is added.

    Weights: those of layer i of the chain, as nn.i.NAME with that layer's names and shapes; lin.weight (W),
    (out_channels, in_channels); bias (b), (out_channels,). All float32.

    Shapes: x (n, in_channels) float32, e (edges, edge_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where nn does not make such a matrix, or for an unknown option or value.
    Source: Gilmer et al., Neural message passing for quantum chemistry (2017).
    """

    type: Literal["nn_conv"] = "nn_conv"
    edge_channels: Width
    aggr: Aggregator = "sum"
    nn: list[DenseLayer]
    root_weight: bool = True
    bias: bool = True

    @model_validator(mode="after")
    def _makes_a_matrix(self) -> NNConv:
        made, expected = chain_width(self.nn, self.edge_channels, "nn_conv.nn"), self.in_channels * self.out_channels
        if made != expected:
            msg = f"nn_conv: nn makes {made} numbers of an edge, expected in_channels * out_channels, {expected}"
            raise ValueError(msg)
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        shapes = chain_tensors(self.nn, "nn")
        if self.root_weight:
            shapes |= linear_shapes("lin.", self.in_channels, self.out_channels, bias=False)
        return shapes | ({"bias": (self.out_channels,)} if self.bias else {})


class GMMConv(Conv):
    """x_v' = W x_v + aggr_u sum_k w_k(e_uv) G_k x_u + b, with Gaussian kernels w_k: PyG's GMMConv (MoNet).

    w_k(e) = exp(-1/2 sum_d (e_d - mu_kd)^2 / (1e-15 + sigma_kd^2)).

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        edge_channels: Width of the attributes e_uv of an edge, at least 1.
        kernels: Number of kernels, at least 1.
        aggr: Aggregate of the messages: sum, mean, max, min, std or var.
        bias: Whether b is added.

    Weights: g (G, one kernel after the other), (in_channels, kernels * out_channels); mu and sigma, (kernels,
    edge_channels); root.weight (W), (out_channels, in_channels); bias (b), (out_channels,). All float32.

    Shapes: x (n, in_channels) float32, e (edges, edge_channels) float32, result (n, out_channels) float32.
    Raises: ValueError for an unknown option or value.
    Source: Monti et al., Geometric deep learning on graphs and manifolds (2017); NeutronRT, table II (MoNet).
    """

    type: Literal["gmm_conv"] = "gmm_conv"
    edge_channels: Width
    kernels: Width
    aggr: Aggregator = "mean"
    bias: bool = True

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        kernels = self.kernels, self.edge_channels
        shapes: dict[str, Shape] = {"g": (self.in_channels, self.kernels * self.out_channels)}
        shapes |= {"mu": kernels, "sigma": kernels}
        shapes |= linear_shapes("root.", self.in_channels, self.out_channels, bias=False)
        return shapes | ({"bias": (self.out_channels,)} if self.bias else {})


class CGConv(Conv):
    """x_v' = x_v + aggr_u sigmoid(W_f z_uv + b_f) softplus(W_s z_uv + b_s), z_uv = [x_v | x_u | e_uv]: PyG's CGConv.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: The same width.
        edge_channels: Width of the attributes e_uv of an edge; 0: it reads none.
        aggr: Aggregate of the messages: sum, mean, max, min, std or var.
        batch_norm: Whether the aggregate is normalized, by what training has made of the statistics.
        bias: Whether b_f and b_s are added.

    Weights: lin_f.weight (W_f) and lin_s.weight (W_s), (out_channels, 2 * in_channels + edge_channels); lin_f.bias
    (b_f) and lin_s.bias (b_s), (out_channels,); with batch_norm bn.scale and bn.shift, (out_channels,). All float32.

    Shapes: x (n, in_channels) float32, e (edges, edge_channels) float32, result (n, out_channels) float32.
    Raises: ValueError for two different widths, or for an unknown option or value.
    Source: Xie and Grossman, Crystal graph convolutional neural networks (2018).
    """

    type: Literal["cg_conv"] = "cg_conv"
    edge_channels: Annotated[int, Field(ge=0)] = 0
    aggr: Aggregator = "sum"
    batch_norm: bool = False
    bias: bool = True

    @model_validator(mode="after")
    def _keeps_its_width(self) -> CGConv:
        check_same_width(self)
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        read, shapes = 2 * self.in_channels + self.edge_channels, dict[str, Shape]()
        for name in ("lin_f.", "lin_s."):
            shapes |= linear_shapes(name, read, self.out_channels, bias=self.bias)
        norm = {"bn.scale": (self.out_channels,), "bn.shift": (self.out_channels,)}
        return shapes | (norm if self.batch_norm else {})


class GENConv(Conv):
    """x_v' = nn(W_dst x_v + aggr_u (relu(W_src x_u + W_e e_uv) + eps)), PyG's GENConv with such an aggregate.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        edge_channels: Width of the attributes e_uv of an edge; 0: it reads none.
        aggr: Aggregate of the messages: sum, mean, max, min, std, var, or softmax: of each channel the mean with the
            weights exp(t m_uv).
        eps: Number that is added to each message.
        t: Factor of the messages in the softmax.
        bias: Whether the linear functions of x and e have a bias.
        nn: Chain of dense layers, from rows of out_channels to rows of out_channels.

    Weights: lin_src.weight (W_src) and lin_dst.weight (W_dst), (out_channels, in_channels), where the widths differ;
    lin_edge.weight (W_e), (out_channels, edge_channels), with attributes; each with a bias as .bias, (out_channels,);
    those of layer i of the chain, as nn.i.NAME with that layer's names and shapes. All float32.

    Shapes: x (n, in_channels) float32, e (edges, edge_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where nn does not keep the width, or for an unknown option or value.
    Source: Li et al., DeeperGCN (2020).
    """

    type: Literal["gen_conv"] = "gen_conv"
    LATER: ClassVar[dict[str, Any]] = {"t": 1.0}

    edge_channels: Annotated[int, Field(ge=0)] = 0
    aggr: Aggregator | Literal["softmax"] = "sum"
    eps: float = 1e-7
    t: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    bias: bool = False
    nn: list[DenseLayer]

    @model_validator(mode="after")
    def _widths_fit(self) -> GENConv:
        check_nn(self, self.nn, self.out_channels)
        return self

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        shapes, out = dict[str, Shape](), self.out_channels
        if self.in_channels != out:
            for name in ("lin_src.", "lin_dst."):
                shapes |= linear_shapes(name, self.in_channels, out, bias=self.bias)
        if self.edge_channels:
            shapes |= linear_shapes("lin_edge.", self.edge_channels, out, bias=self.bias)
        return shapes | chain_tensors(self.nn, "nn")
