"""Words for layers, and for what they read of edges."""

from __future__ import annotations

from freshet.gnn.declarations import Conv, EdgeConv, Layer
from freshet.gnn.rows.jumps import CURRENT, Join, Keep
from freshet.gnn.rows.norms import FrozenNorm
from freshet.gnn.synopses.edge_network import EdgeNetwork
from freshet.gnn.synopses.of_messages import Synopsis

OUT_EDGES = 3  # of a vertex in the example of how far a change goes
MESSAGES_BYTES = 4  # the number of a vertex's messages, where single ones are looked at
APPROXIMATE = "approximate: norms over all vertices keep the statistics of the graph given at the export"


def label(layer: Layer) -> str:
    """Name a layer of rows, with its widths where it has any."""
    if isinstance(layer, Keep):
        return f"keep as {layer.name}"
    if isinstance(layer, Join):
        names = ["these rows" if name == CURRENT else name for name in layer.of]
        return f"go on from {names[0]}" if len(names) == 1 else f"{layer.operation} of {', '.join(names)}"
    width = f" {layer.in_width} > {layer.out_width}" if layer.out_width is not None else ""
    name = f"{layer.of} (frozen)" if isinstance(layer, FrozenNorm) else layer.type  # type: ignore[attr-defined]
    return f"{name}{width}"


def on_edges(conv: Conv, network: EdgeNetwork) -> list[str]:
    """Describe the messages layer by layer; a first linear layer is two terms that are computed once per vertex."""
    begin = "both ends' terms added" if network.ends == "sum" else "both ends side by side"
    if network.target < 0:
        begin = "the source's row"
    if network.edge is not None:
        begin += ", and the term of the edge's attributes"
    inside = conv.nn if isinstance(conv, EdgeConv) else getattr(conv, "pre", [])
    first = 1 if isinstance(conv, EdgeConv) and network.ends == "sum" else 0
    return [begin, *(label(layer) for layer in inside[first:])]


def work_on_edges(conv: Conv, network: EdgeNetwork | None, synopsis: Synopsis) -> tuple[list[str], int]:
    """Describe the messages of a conv, if they are made of more than their sources; and their multiplications."""
    if network is not None:
        return on_edges(conv, network), network.multiplications
    cost = synopsis.multiplications
    return (["the source's row, its score with the term of the edge's attributes"] if cost else []), cost


def edge_bytes(weighted: bool, edge_width: int) -> int:
    """Bytes of an edge in a layer's tables: an entry in the list of either end, and its type and attributes if read."""
    entry = 8 if weighted or edge_width else 4  # the other end, and a weight or number where it is read
    return 2 * entry + (4 + 4 * edge_width if edge_width else 0)


def weights_text(conv: Conv) -> str:
    """Say what a conv makes of weights and attributes of edges."""
    if conv.edge_width:
        return f"attributes of edges, {conv.edge_width} numbers, are read; edge weights are ignored"
    passed = getattr(conv, "edge_weights", None)
    if passed is None:
        return "edge weights are ignored (the layer reads none)"
    return (
        "edge weights multiply the messages"
        if passed
        else "edge weights are ignored (the module hands none to the layer)"
    )
