"""Words for layers, and for what they read of edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from freshet.gnn.answers import LayerAnswers
from freshet.gnn.convs.program import RowsStep
from freshet.gnn.declarations import Conv, EdgeConv, Layer
from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.link_head import LinkHead
from freshet.gnn.rows.jumps import CURRENT, Join, Keep
from freshet.gnn.rows.norms import FrozenNorm
from freshet.gnn.synopses.edge_network import EdgeNetwork
from freshet.gnn.synopses.of_messages import Synopsis
from freshet.schema import KEY_BYTES

OUT_EDGES = 3  # of a vertex in the example of how far a change goes
MESSAGES_BYTES = 4  # the number of a vertex's messages, where single ones are looked at
OF_A_KEY = f"{KEY_BYTES} in the Partitioner, which has the text of a string, too"
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


def pair_steps(head: LinkHead) -> list[str]:
    """Name the steps that make the score of a pair; constants are parts of other steps."""
    return [label(one.layer) if isinstance(one, RowsStep) else one.op for one in head.program if one.op != "constant"]


def pair_line(steps: Sequence[str], ends: str = "") -> str:
    """Describe how pairs are scored; nothing where it is by the dot product."""
    return f"link head{ends}: {', '.join(steps)}\n" if steps else ""


def on_edges(conv: Conv, network: EdgeNetwork) -> list[str]:
    """Describe the messages layer by layer; a first linear layer is two terms that are computed once per vertex."""
    begin = "both ends' terms added" if network.ends == "sum" else "both ends side by side"
    if network.target < 0:
        begin = "the source's row"
    if network.edge is not None:
        names = " and ".join(network.edge_names)
        begin += ", and the term of the edge's attributes" if names == "attributes" else f", and the edge's {names}"
    inside = conv.nn if isinstance(conv, EdgeConv) else getattr(conv, "pre", [])
    first = 1 if isinstance(conv, EdgeConv) and network.ends == "sum" else 0
    return [begin, *(label(layer) for layer in inside[first:])]


def work_on_edges(conv: Conv, network: EdgeNetwork | None, synopsis: Synopsis) -> tuple[list[str], int]:
    """Describe the messages of a conv, if they are made of more than their sources; and their multiplications."""
    if network is not None:
        return on_edges(conv, network), network.multiplications
    cost = synopsis.multiplications
    return (["the source's row, its score with the term of the edge's attributes"] if cost else []), cost


def edge_bytes(reads: EdgeReads) -> int:
    """Bytes of an edge in a layer's tables: an entry in the list of either end, and its type and its row if it has one.

    An entry is the other end, and a weight or number where it is read.
    """
    return _entries_bytes(reads) + (4 + 4 * reads.row_width if reads.row_width else 0)


def key_bytes(reads: EdgeReads) -> int:
    """Bytes that the key of an edge adds in a layer's tables: a number beside either entry, in as much room again."""
    return _entries_bytes(reads)


def _entries_bytes(reads: EdgeReads) -> int:
    """Bytes of an edge's entries, one in a list of each end."""
    return 2 * (8 if reads.weighted or reads.row_width else 4)


def weights_text(conv: Conv, reads: EdgeReads) -> str:
    """Say what a conv makes of weights and attributes of edges."""
    if reads.attributes:
        weights = "their weights, too" if reads.weighted else "edge weights are ignored"
        return f"attributes of edges, {reads.attributes} numbers, are read; {weights}"
    if reads.weighted:
        return f"edge weights {'are read by' if reads.by_network else 'multiply'} the messages"
    has_none = getattr(conv, "edge_weights", None) is None
    return f"edge weights are ignored (the {'layer reads none' if has_none else 'module hands none to the layer'})"


def checks_lines(checks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the export found, a line for all layers with the same answers; `checks` are those of model.json."""
    places: dict[str, list[str]] = {}
    for one in checks:
        answers = LayerAnswers(**one)
        places.setdefault(answers.in_a_line, []).append(answers.place)
    lines = [f"  {', '.join(of)}: {answers}" for answers, of in places.items()]
    return (
        ["checks at the export:", *lines] if lines else ["checks at the export: none; `freshet layer check` has them"]
    )


def what_if_line(sizes: str) -> str:
    """Say what a server with `--what-if` keeps."""
    return f"freshet serve --what-if: the server keeps the graph, and {sizes} bytes per vertex of inner layers' rows"
