"""RGCNConv, FastRGCNConv, RGATConv and FiLMConv as convs on relations, one for each type of edges."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import Module
from torch_geometric.utils import degree

from freshet.gnn.declarations import GATConv, SAGEConv, TransformerConv
from freshet.gnn.pyg.encoded_conv import FunctionOfEdges
from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.aggregators import aggr_of
from freshet.gnn.pyg.kinds.convs.film import FilmSkip, films_of_types, is_film_of_types
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRelation
from freshet.gnn.pyg.steps import ConvCall, Converted, Step, Weights, array_of, check_conv, class_name, tensors

_OF_EMBEDDING = "an nn.Embedding whose weight it reads, as RGCNConv(emb.embedding_dim, ...)(emb.weight, ...)"
MOST_ATTENDED = 256
"""Types whose in-edges one RGATConv may weigh; each has columns and sums of its own at every vertex."""
MOST_LEARNED = 2048
"""Columns that the weights of one conv may have for a vertex, where these are rows learned for each."""
_TYPED = ("torch_geometric.nn.RGCNConv", "torch_geometric.nn.FastRGCNConv", "torch_geometric.nn.RGATConv")


def is_typed(module: Any) -> bool:
    """Return whether a conv reads the type of each edge, and has a matrix for each."""
    return class_name(module) in _TYPED or is_film_of_types(module)


def reads_attributes_of_types(module: Any) -> bool:
    """Return whether a conv that reads the type of each edge was made for attributes beside them."""
    return is_typed(module) and getattr(module, "edge_dim", None) is not None


def may_be_between_kinds(module: Any) -> bool:
    """Return whether a conv that reads the type of each edge may be called with a pair of rows."""
    return class_name(module) in _TYPED[:2] or is_film_of_types(module)


def may_read_numbers(module: Any) -> bool:
    """Return whether a conv may be called with numbers of vertices, of which its weights then have a row for each."""
    return class_name(module) in _TYPED[:2]


def reads_all_numbers(module: Any) -> bool:
    """Return whether a conv takes vertices for those of all numbers in order, whichever numbers it is called with."""
    return class_name(module) == _TYPED[1]


def is_across(module: Any) -> bool:
    """Return whether a conv weighs the in-edges of all types by one softmax."""
    return getattr(module, "attention_mechanism", None) == "across-relation"


def refuse_types(place: str, op: Any, *, reads: bool, beside: bool) -> None:
    """Refuse another conv that reads types of edges, and one `beside` convs that do.

    Raises: ExportError
    """
    if reads:
        msg = f"{place}: {class_name(op)} reads types of edges, which is not supported. Nearest: RGCNConv, RGATConv "
        raise ExportError(msg + "(with edge_dim beside attributes), or a HeteroConv of a conv for each type")
    if beside:
        kind = type(op).__name__
        msg = f"{place}: {kind} reads other edges than those of one type, which is not supported beside types yet. "
        raise ExportError(msg + "Nearest: a conv for each type, on edge_index[:, edge_type == 0], and their sum")


def typed_conv(
    ops: KindsOperations, place: str, step: Step, rows: str | None, target: str | None, kinds: Metadata
) -> str:
    """Note a conv that reads the type of each edge as convs of relations, and their sum; returns its rows' name.

    rows: those of sources, None where it reads numbers of vertices, and has weights for each; target: of targets.

    Raises: ExportError for an option that cannot be taken over, and for another number of types.
    """
    added, many = list[str](), len(kinds.relations)
    if rows is not None and is_film_of_types(step.op):
        _check(step, many)
        assert target is not None  # where it reads rows
        of_types = films_of_types(step, pair=rows != target)
        films = [ops.conv(place, OnRelation(j, rows, target, one)) for j, one in enumerate(of_types)]
        skip = ops.function(f"{step.name}.skip", FilmSkip(step.op), [target])
        return ops.join(f"{step.name}.sum", "sum", [*films, skip])
    if rows is None:
        convs, table, root = learned_convs(step, many)
        rows = ops.learned(f"{step.name}.weight", 0, table)
        added = [] if root is None else [ops.learned(f"{step.name}.root", 0, root)]
    else:
        convs = typed_convs(step, many)
    made = [ops.conv(place, OnRelation(number, rows, target, one)) for number, one in enumerate(convs)] + added
    if is_across(step.op):
        attended = ops.attended(f"{step.name}.softmax", made)
    else:
        attended = made[0] if len(made) == 1 else ops.join(f"{step.name}.sum", "sum", made)
    mod = getattr(step.op, "mod", None)
    if rows is None or mod is None:
        return attended
    more = [OnRelation(number, rows, rows, one) for number, one in enumerate(beside_attention(step, many))]
    beside = [ops.conv(place, one) for one in more]
    if mod == "additive":
        return ops.join(f"{step.name}.additive", "sum", [attended, *beside])
    count = beside[0] if many == 1 else ops.join(f"{step.name}.count", "sum", beside)
    return ops.function(f"{step.name}.{mod}", ScaledByDegree(step.op), [attended, count])


class LearnedConvs(NamedTuple):
    """Convs on relations that read rows learned for each vertex, in place of a conv whose weights have a row for each.

    Shapes: rows (ids, blocks * out_channels); root (ids, out_channels), added to the sum of the convs.
    """

    convs: list[Step]
    rows: Any
    root: Any | None


def typed_convs(step: Step, relations: int) -> list[Step]:
    """Return a conv for each type, whose results are added up or weighed together; the first one has the bias, too.

    Raises: ExportError for an option that cannot be taken over, and for another number of types.
    """
    _check(step, relations)
    conv: Any = step.op
    if hasattr(conv, "attention_mechanism"):
        return _attention(step)
    root = None if conv.root is None else np.ascontiguousarray(array_of(step, conv.root).T)
    return _sums(step, _matrices(step, None if conv.num_bases is None else conv.comp, conv.weight), root)


def learned_convs(step: Step, relations: int) -> LearnedConvs:
    """Return an RGCNConv that reads numbers of vertices as convs on rows learned for each vertex.

    Such a conv sums W_r[u] of in-neighbours u. Here u has the rows of all bases side by side, of which relation r makes
    W_r[u] by its coefficients; or W_r[u] of all relations where these are fewer, where there are no bases, and for
    maxima, of which relation r takes its own.
    Raises: ExportError for an option that cannot be taken over, too many columns, and for another number of types.
    """
    _check(step, relations)
    conv: Any = step.op
    if conv.num_blocks is not None:
        msg = f"{step.name}: num_blocks={conv.num_blocks} is called without rows of vertices, which "
        raise ExportError(msg + f"PyTorch Geometric refuses, too. Nearest: num_bases, or {_OF_EMBEDDING}")
    weight, combined = conv.weight.detach(), np.eye(relations)
    if conv.num_bases is not None and (conv.num_bases >= relations or _aggr(step) == "max"):
        flat = conv.comp.detach().double() @ weight.double().flatten(1)
        weight = flat.float().unflatten(1, tuple(weight.shape[1:]))
    elif conv.num_bases is not None:
        combined = array_of(step, conv.comp)
    blocks, _, out = weight.shape
    if blocks * out > MOST_LEARNED:
        each = "type of edges" if len(combined) == blocks else "basis"
        msg = f"{step.name}: its weights have {blocks * out} columns for each vertex, {out} for each {each}: past "
        raise ExportError(
            msg + f"{MOST_LEARNED} this is not supported. Nearest: fewer bases (num_bases), or {_OF_EMBEDDING}"
        )
    matrices = [np.kron(one[None], np.eye(out)).astype(np.float32) for one in combined]
    return LearnedConvs(_sums(step, matrices, None), weight.transpose(0, 1).flatten(1), conv.root)


def _check(step: Step, relations: int) -> None:
    conv: Any = step.op
    check_conv(step)
    if conv.num_relations != relations:
        name = class_name(conv).rsplit(".", 1)[1]
        refuse(f"{step.name}: {name} has num_relations={conv.num_relations}, but there are {relations} types of edges")


def _aggr(step: Step) -> Any:
    is_fast = class_name(step.op) == _TYPED[1]
    return aggr_of(step, ("sum", "mean") if is_fast else ("sum", "mean", "max"))


def _sums(step: Step, matrices: list[np.ndarray], root: np.ndarray | None) -> list[Step]:
    """A SAGEConv for each type: W_r aggr_r(x_u); the first one also has W_root x_v + b."""
    conv: Any = step.op
    aggr, made = _aggr(step), []
    for number, matrix in enumerate(matrices):
        first = number == 0
        weights = {"lin_l.weight": matrix}
        if first and conv.bias is not None:
            weights["lin_l.bias"] = array_of(step, conv.bias)
        if first and root is not None:
            weights["lin_r.weight"] = root
        layer = SAGEConv(
            in_channels=matrix.shape[1],
            out_channels=matrix.shape[0],
            aggr=aggr,
            root_weight="lin_r.weight" in weights,
            target_channels=None if root is None or root.shape[1] == matrix.shape[1] else root.shape[1],
            bias="lin_l.bias" in weights,
        )
        made.append(Step(f"{step.name}.{number}", layer, weights=weights))
    return made


def _attention(step: Step) -> list[Step]:
    """A conv of attention for each type, which scores rows W_r x_u, head by head.

    q and k of a head read W_r x of all heads.
    """
    conv: Any = step.op
    if conv.num_relations > MOST_ATTENDED:
        msg = f"{step.name}: RGATConv with {conv.num_relations} types of edges: past {MOST_ATTENDED} it is not "
        raise ExportError(msg + "supported yet. Nearest: RGCNConv, which may have any number")
    aggr_of(step, ("sum",))
    if conv.mod == "f-additive":
        msg = f"{step.name}: RGATConv with mod='f-additive' adds 1 to weights above 0, and which are too small for a "
        raise ExportError(msg + "float depends on its precision. Nearest: mod='additive'")
    bases = (None, conv.weight) if conv.num_bases is None else (conv.att, conv.basis)
    bias = None if conv.bias is None or conv.mod in _SCALED else array_of(step, conv.bias)
    of_type = _sum_scores if conv.attention_mode == "additive-self-attention" else _product_scores
    made = []
    for number, matrix in enumerate(_matrices(step, *bases)):
        layer, weights = of_type(step, matrix, bias if number == 0 else None)
        made.append(Step(f"{step.name}.{number}", layer, weights=weights))
    return made


_SCALED = ("scaled", "f-scaled")


class _Count(Module):
    """The number of in-edges, (vertices, 1)."""

    def forward(self, end_1: Any, vertices: int, **others: Any) -> Any:
        return degree(end_1, vertices).view(-1, 1)


class ScaledByDegree(Module):
    """Rows that an RGATConv has weighed, scaled by the numbers of in-edges, and its bias behind."""

    def __init__(self, conv: Any) -> None:
        """Take the conv."""
        super().__init__()
        self.conv = conv

    def forward(self, rows0: Any, rows1: Any) -> Any:
        """Return weighed rows, given those without bias, and the numbers of in-edges, (vertices, 1)."""
        conv, factor = self.conv, rows1
        if conv.mod == "scaled":
            factor = torch.matmul(conv.activation(torch.matmul(rows1, conv.l1) + conv.b1), conv.l2) + conv.b2
            factor = torch.cat([factor] * (rows0.size(1) // conv.out_channels), -1)
        out = rows0 * factor
        return out if conv.bias is None else out + conv.bias


def beside_attention(step: Step, relations: int) -> list[Step]:
    """Return a conv for each type that an RGATConv with `mod` has beside attention: sums of rows, or counts."""
    conv: Any = step.op
    if conv.mod in _SCALED:
        call = ConvCall("x", "edge_index")
        counts = (FunctionOfEdges(_Count()) for _ in range(relations))
        return [Step(f"{step.name}.count.{j}", one, given=call) for j, one in enumerate(counts)]
    bases = (None, conv.weight) if conv.num_bases is None else (conv.att, conv.basis)
    factor, made = array_of(step, conv.w).reshape(1, 1, -1, 1).astype(np.float64), []
    many = 1 if conv.attention_mode == "additive-self-attention" else conv.dim
    for number, matrix in enumerate(_matrices(step, *bases)):
        by_head = matrix.reshape(conv.heads, 1, conv.out_channels, -1) * factor
        by_head = by_head.repeat(many, axis=1) if conv.concat else by_head.mean(axis=0)
        weight = by_head.reshape(-1, matrix.shape[1]).astype(np.float32)
        layer = SAGEConv(
            in_channels=weight.shape[1], out_channels=weight.shape[0], aggr="sum", root_weight=False, bias=False
        )
        made.append(Step(f"{step.name}.w.{number}", layer, weights={"lin_l.weight": weight}))
    return made


def _sum_scores(step: Step, matrix: np.ndarray, bias: np.ndarray | None) -> Converted:
    """A GATConv: LeakyReLU(q . W_r x_v + k . W_r x_u) scores W_r x_u."""
    conv: Any = step.op
    att = {"att_dst": array_of(step, conv.q).T, "att_src": array_of(step, conv.k).T}
    weights = {"lin.weight": matrix} | {name: np.ascontiguousarray(values) for name, values in att.items()}
    layer = GATConv(
        in_channels=matrix.shape[1],
        out_channels=matrix.shape[0] if conv.concat else conv.out_channels,
        heads=conv.heads,
        concat=conv.concat,
        add_self_loops=False,
        negative_slope=conv.negative_slope,
        bias=bias is not None,
        mixed_heads=conv.heads > 1,
        edge_channels=conv.edge_dim if step.attributes else 0,
    )
    weights |= _edge_scores(step) if step.attributes else {}
    return layer, weights | ({} if bias is None else {"bias": bias})


def _edge_scores(step: Step) -> Weights:
    """The term e . W_e e_uv of each head, which reads W_e e_uv of all heads, in one channel of the head's own."""
    conv: Any = step.op
    edge = tensors(step, lin=conv.lin_edge)["lin.weight"].astype(np.float64)
    every, first = np.zeros((conv.heads, conv.out_channels, edge.shape[1])), np.zeros((conv.heads, conv.out_channels))
    every[:, 0], first[:, 0] = array_of(step, conv.e).astype(np.float64).T @ edge, 1
    found = {"lin_edge.weight": every.reshape(-1, edge.shape[1]), "att_edge": first}
    return {name: weight.astype(np.float32) for name, weight in found.items()}


def _product_scores(step: Step, matrix: np.ndarray, bias: np.ndarray | None) -> Converted:
    """A TransformerConv: (q . W_r x_v) (k . W_r x_u) scores W_r x_u, which has `dim` scores in each head.

    A query and a key have one channel that is not 0. The bias stands in what is added of the vertex itself.
    Raises: ExportError for a mean of heads of several scores, and for attributes.
    """
    conv: Any = step.op
    if step.attributes:
        msg = f"{step.name}: RGATConv with attention_mode={conv.attention_mode!r} and edge_attr is not supported: its "
        msg += "score is a product of a number of each end and one of the edge, and convs of attention add the latter. "
        raise ExportError(msg + "Nearest: attention_mode='additive-self-attention'")
    if conv.dim > 1 and not conv.concat:
        msg = f"{step.name}: RGATConv with dim={conv.dim} and concat=False is not supported yet. Nearest: concat=True, "
        raise ExportError(msg + "with a linear layer behind it")
    heads, channels, into = conv.heads * conv.dim, conv.out_channels, matrix.shape[1]
    weights = {"lin_value.weight": np.repeat(matrix.reshape(conv.heads, channels, into), conv.dim, axis=0)}
    for name, scores, factor in (("query", conv.q, channels**0.5), ("key", conv.k, 1.0)):
        every = np.zeros((heads, channels, into))
        every[:, 0] = factor * array_of(step, scores).astype(np.float64).T @ matrix.astype(np.float64)
        weights[f"lin_{name}.weight"] = every
    weights = {name: weight.reshape(-1, into).astype(np.float32) for name, weight in weights.items()}
    out_channels = heads * channels if conv.concat else channels
    if bias is not None:
        zeros = {f"lin_{name}.bias": np.zeros(heads * channels, np.float32) for name in ("key", "query", "value")}
        weights |= zeros | {"lin_skip.weight": np.zeros((out_channels, into), np.float32), "lin_skip.bias": bias}
    layer = TransformerConv(
        in_channels=into,
        out_channels=out_channels,
        heads=heads,
        concat=conv.concat,
        root_weight=bias is not None,
        bias=bias is not None,
    )
    return layer, weights


def _matrices(step: Step, bases: Any, weight: Any) -> list[np.ndarray]:
    """The (out_channels, in_channels) matrix of each type, bases and blocks written out."""
    conv: Any = step.op
    weight = array_of(step, weight)
    if bases is not None:
        weight = np.einsum("rb,bio->rio", array_of(step, bases).astype(np.float64), weight.astype(np.float64))
    if conv.num_blocks is not None:
        weight = np.stack([_block_diagonal(one) for one in weight])
    return [np.ascontiguousarray(one.T, np.float32) for one in weight]


def _block_diagonal(blocks: np.ndarray) -> np.ndarray:
    """Return (blocks, in, out) matrices as one (blocks * in, blocks * out) matrix."""
    count, into, out = blocks.shape
    made = np.zeros((count * into, count * out), blocks.dtype)
    for k, one in enumerate(blocks):
        made[k * into : (k + 1) * into, k * out : (k + 1) * out] = one
    return made
