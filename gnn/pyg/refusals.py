"""Reasons why a module is refused, each with the nearest supported one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TAKEN = (
    "Freshet takes layers, functions and arithmetic with constants on the rows of the input and of earlier layers, "
    "without branches on data"
)

OF_PAIRS = "Nearest: export what makes the rows of vertices, and score pairs of them by link_head"
ROWS_BESIDE = ", or where it has rows of vertices give their widths: features={'a': 3, 'b': 5}, side by side in x"
ROWS_BESIDE += "; where it has numbers of edges take one edge_attr, and columns of it"
HOW_WIDE = (
    "give export_model the width of the features: features=N (freshet model import: --features N or a snapshot), or "
    "put a linear layer before it"
)
BY_HAND = "the rows of neighbours by hand, which is not looked into. Nearest: a conv of PyG, such as GraphConv"
CHANGES_EDGES = (
    "it changes edges or their weights, and Freshet has those of the stream. Nearest: leave it out of forward, and put "
    "what it makes into the stream"
)
_SEVERAL = "reads the rows of several layers, and is called with those of one"
TYPED = (
    "is not supported: it reads the type of each edge. Nearest: RGCNConv in a forward(x, edge_index, edge_type), or "
    "HeteroConv in a forward(x_dict, edge_index_dict)"
)
KINDS = (
    "reads kinds of vertices or edges: have its forward take (x_dict, edge_index_dict) or (x, edge_index, edge_type), "
    "or give export_model metadata=(kinds, relations)"
)
_PER_GRAPH = (
    "is not supported: Freshet keeps a row per vertex, not one per graph or cluster; leave it out of what is exported"
)
_POOLS = {
    *("graclus", "max_pool", "max_pool_x", "avg_pool", "avg_pool_x", "voxel_grid", "dense_diff_pool"),
    *("global_add_pool", "global_mean_pool", "global_max_pool"),
}
_SPLINES = (
    "is not supported: its basis is an operation of pyg-lib's, which is not read. Nearest: NNConv or GMMConv, which "
    "make weights of the attributes of an edge, EdgeConv, or GraphConv with a weight for each edge"
)
_ALL_PAIRS = "is not supported: every vertex attends to all others. Nearest: TransformerConv"
_POSITIONS = (
    "is not supported: it reads positions beside features. Nearest: EdgeConv, with positions among the features"
)
_HINTS: dict[str, str] = {
    "HeteroJumpingKnowledge": TYPED,
    "JumpingKnowledge": f"{_SEVERAL}: write a forward of your own, or a Sequential that names them",
    "MessageNorm": f"{_SEVERAL}: write a forward of your own, or a Sequential that names them",
    "SplineConv": _SPLINES,
    "FusedGATConv": "is not supported. Nearest: GATConv",
    "GPSConv": _ALL_PAIRS,
    "SGFormer": _ALL_PAIRS,
    "Polynormer": _ALL_PAIRS,
    "LPFormer": "is not supported: it gives a row per pair of vertices. Nearest: its .gnn",
    "LINKX": "is not supported without ids: its edge_lin has a learned row for each vertex. Nearest: ids=[...], the id "
    "of each of these rows",
    "AttentiveFP": "is not supported: it gives a row per graph, by GRUs. Nearest: GAT with edge_dim",
    "GraphUNet": f"{_PER_GRAPH}. Nearest: GCN with jk='cat'",
    "RENet": "is not supported: its rows have a history. Nearest: times of edges as attributes",
    "WLConv": "is not supported: it numbers colours of vertices, and has no weights. Nearest: WLConvContinuous",
    "PANConv": "is not supported: it reads powers of the matrix of all edges. Nearest: TAGConv",
    "MeshCNNConv": "is not supported: it reads the neighbours of an edge of a mesh in the order of edges, which a "
    "stream has not. Nearest: EdgeConv",
    "DirGNNConv": "is read in a forward(x, edge_index) that calls it: it is two convs, one of which reads out-edges",
    "SignedConv": "reads two sets of edges: call it from a forward(x, pos_edge_index, neg_edge_index)",
    "HypergraphConv": "is not supported without kinds: make hyperedges vertices of a kind of their own",
    "XConv": _POSITIONS,
    "GravNetConv": _POSITIONS,
    "DynamicEdgeConv": "is not supported: it makes its own edges, of nearest rows, and Freshet takes them from the "
    "stream. Nearest: EdgeConv",
    "DiffGroupNorm": "is not supported. Nearest: BatchNorm, or LayerNorm(mode='node')",
    "HeteroBatchNorm": TYPED,
    "HeteroLayerNorm": TYPED,
    "RGCNConv": TYPED,
    "FastRGCNConv": TYPED,
    "RGATConv": TYPED,
    "HeteroConv": TYPED,
    "HGTConv": TYPED,
    "HANConv": TYPED,
    "HeteroLinear": TYPED,
    "HeteroDictLinear": TYPED,
    "GroupNorm": "is not supported. Nearest: LayerNorm, which is GroupNorm with one group",
    "InstanceNorm1d": "is not supported. Nearest: torch_geometric.nn.InstanceNorm, with stats_from",
    "LSTM": "is not supported: Freshet's rows have no history; only what the vertex and its neighbours are now counts",
    "GRU": "is not supported: Freshet's rows have no history; only what the vertex and its neighbours are now counts",
    "Embedding": "is not supported: vertices come and go, so rows come from features. Nearest: ids=[...], the id of "
    "each of its rows, or its rows as features",
}

LAPLACIAN = "is taken in a conv of one's own, of the graph's edges and weights as they came. Nearest: that, or ChebConv"
_OF_EDGES = {
    "add_self_loops add_remaining_self_loops segregate_self_loops get_self_loop_attr": (
        "changes the edges of the graph. Nearest: leave it out, and have the conv add self-loops itself (GCNConv,"
        " GATConv: add_self_loops=True), or put them into the stream as edges"
    ),
    "remove_self_loops contains_self_loops": (
        "reads which edges are self-loops. Nearest: leave it out, and leave self-loops out of the stream"
    ),
    "gcn_norm": (
        "scales weights by the degrees of the graph. Nearest: leave it out, with GCNConv(normalize=True), which "
        "does the same itself"
    ),
    "to_undirected is_undirected": (
        "reads edges in both directions. Nearest: leave it out, and run the job with --undirected"
    ),
    "global_add_pool global_mean_pool global_max_pool": (
        "gives a row per graph, and Freshet keeps one per vertex: leave it and what follows out of what is exported"
    ),
    "dropout_edge dropout_adj dropout_node dropout_path mask_feature add_random_edge shuffle_node": (
        "drops or adds at random at inference, too: pass training=self.training, with which it does nothing when "
        "the model is exported"
    ),
    "coalesce sort_edge_index": (
        "orders or joins edges, which Freshet does itself: each is there once. Leave it out of forward"
    ),
    "get_laplacian": LAPLACIAN,
    "degree softmax scatter segment spmm normalize_edge_index get_ppr": (
        "counts or normalises over edges by hand. Nearest: a conv that does (GCNConv(normalize=True), "
        "GraphConv(aggr='mean'); PNAConv reads degrees by its scalers)"
    ),
    (
        "to_dense_adj to_torch_coo_tensor to_torch_csr_tensor to_torch_csc_tensor to_torch_sparse_tensor "
        "to_edge_index to_dense_batch"
    ): "makes a matrix of all edges. Nearest: give convs edge_index itself",
    (
        "subgraph k_hop_subgraph bipartite_subgraph negative_sampling batched_negative_sampling "
        "structured_negative_sampling remove_isolated_nodes contains_isolated_nodes trim_to_layer"
    ): "draws or cuts a part of the graph. Nearest: leave it out of what is exported, or put it behind self.training",
}
EDGE_FUNCTIONS = {name: reason for names, reason in _OF_EDGES.items() for name in names.split()}
"""Functions of edges in PyG, with the end of a sentence about each that forward calls."""


def reads_types(name: str) -> bool:
    """Return whether a class of modules, by its full name, reads kinds of vertices or edges."""
    return name.startswith("torch_geometric.nn.") and _HINTS.get(name.rsplit(".", 1)[1]) == TYPED


def why_not_module(name: str) -> str | None:
    """Return the end of a sentence about a class of modules, by its full name; None where there is no more to say."""
    short = name.rsplit(".", 1)[1]
    if ".pool." in name or short.endswith(("Pooling", "Aggregation")):
        return _PER_GRAPH
    return _HINTS.get(short) if name.startswith(("torch.nn.", "torch_geometric.nn.")) else None


def why_not_part(module: Any) -> tuple[str, str] | None:
    """Return the path of a part that is refused wherever it is called, and why; None where there is none."""
    inside, calls = set[int](), set(getattr(getattr(type(module).forward, "__code__", None), "co_names", ()))
    for path, part in module.named_modules():
        inside.update(id(one) for one in part.modules() if hasattr(part, "propagate"))  # what convs are made of
        home = f"{type(part).__module__}.{type(part).__name__}"
        pools = home.startswith("torch_geometric.nn.aggr.") or why_not_module(home) == _PER_GRAPH
        if pools and id(part) not in inside:
            return path, f"{type(part).__name__} {_PER_GRAPH}"
    if pooled := sorted(calls & _POOLS):
        return f"{type(module).__name__}.forward", f"{pooled[0]} {_PER_GRAPH}"
    for path, part in module.named_modules():
        kind, home = type(part).__name__, type(part).__module__
        reason = _HINTS.get(kind, "") if home.startswith(("torch.nn.", "torch_geometric.nn.")) else ""
        if reason.startswith("is not supported") and reason != TYPED:  # types are named before
            return path, f"{kind} {reason}"
    return None


def why_not_function(label: str) -> str:
    """Return what to add to a refusal of a function."""
    if label in ("mean", "sum", "max", "amax", "min", "amin", "std", "var", "norm") or label.startswith("global_"):
        return " (it reads more than the vertex's own row, or gives less than a row)"
    if label == "narrow":
        return " (it keeps some of the rows or of their channels; taken are columns, as in h[:, :8])"
    if label in ("t", "transpose", "permute"):
        return " (rows have one dimension, and keep their shape)"
    return ""


def several_rows(where: str, label: str, names: list[str]) -> str:
    """Say why an operation on the rows of several layers is refused."""
    return (
        f"{where}: {label} reads the rows of {_listed(names)}. Rows of several layers can be added, subtracted, "
        "multiplied, divided, put side by side (torch.cat), compared (torch.maximum, torch.minimum), or stacked and "
        "reduced; JumpingKnowledge and GCN2Conv read several as well"
    )


def whole_graph_norm(where: str, name: str, exact: Mapping[str, str]) -> str:
    """Say why a norm over all vertices needs a graph, and how to give it."""
    instead = exact.get(name, "BatchNorm (with the statistics of training) or LayerNorm(mode='node')")
    return (
        f"{where}: {name} depends on the whole graph: every event would change the row of every vertex. Give "
        "export_model the graph that its statistics are to be frozen at: stats_from=(x, edge_index), or a HeteroData "
        "for a module with kinds, best the one the model was trained on (freshet model import: --stats-from SNAPSHOT); "
        "the model is then marked as approximate. "
        f"Exact instead: {instead}"
    )


def _listed(names: list[str]) -> str:
    names = ["the input" if name == "x" else name for name in names]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
