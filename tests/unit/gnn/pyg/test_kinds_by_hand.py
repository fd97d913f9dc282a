"""A forward with kinds takes rows along the edges of a relation by hand: sums, means, attention, degrees.

`export_model` compares each model with the module itself in float64, on graphs of several sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch_geometric.nn.conv.gcn_conv import gcn_norm  # noqa: E402
from torch_geometric.utils import degree, scatter, softmax  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from tests.support.graphs import kinds_by_hand as of  # noqa: E402
from tests.support.graphs.kinds_by_hand import METADATA, NEAR, SENT, TO, WIDTHS, ByHand, OfEdges, brought  # noqa: E402


def with_loops(s: Any, x: Any, e: Any) -> Any:
    edges, weight = gcn_norm(e[NEAR], None, x["a"].size(0))
    return scatter(s.a(x["a"])[edges[0]] * weight.view(-1, 1), edges[1], dim=0, dim_size=x["a"].size(0))


def degrees(s: Any, x: Any, e: Any) -> Any:
    root = degree(e[TO][1], x["b"].size(0)).clamp(min=1).pow(-0.5).view(-1, 1)
    return s.b(x["b"]) * root + s.conv((s.a(x["a"]), s.b(x["b"])), e[TO])


def added_to_zeros(s: Any, x: Any, e: Any) -> Any:
    h = s.a(x["a"])
    return s.out(h.new_zeros(x["b"].size(0), 5).index_add(0, e[TO][1], h[e[TO][0]]))


def messages(s: Any, x: Any, e: Any) -> Any:
    both = torch.cat([x["a"][e[TO][0]], x["b"][e[TO][1]]], -1)
    return scatter(s.both(both).relu(), e[TO][1], dim=0, dim_size=x["b"].size(0), reduce="max")


def of_heads(s: Any, x: Any, e: Any) -> Any:
    (src, dst), of_a, of_b = e[TO], s.a4(x["a"]).view(-1, 2, 2), s.b4(x["b"]).view(-1, 2, 2)
    scores = softmax((of_a[src] * of_b[dst]).sum(-1), dst, num_nodes=x["b"].size(0))
    return brought(of_a[src] * scores.unsqueeze(-1), e[TO], x["b"]).flatten(1)


def weighed(s: Any, x: Any, e: Any, w: Any, a: Any) -> Any:
    return brought(s.a(x["a"])[e[TO][0]] * w[TO].view(-1, 1) * s.edge(a[TO]), e[TO], x["b"])


def of_types(s: Any, x: Any, edge_index: Any, edge_type: Any) -> Any:
    src, dst = edge_index[0, edge_type == 1], edge_index[1, edge_type == 1]
    return s.conv(s.a(x), edge_index[:, edge_type == 0]) + scatter(s.a(x)[src], dst, dim=0, dim_size=len(x))


class OfTypes(ByHand):
    num_relations = 2

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:  # type: ignore[override]
        return of_types(self, x, edge_index, edge_type)


TAKEN: dict[str, Any] = {
    "a sum": ByHand(lambda s, x, e: brought(x["a"][e[TO][0]], e[TO], x["b"])),
    "a maximum within a kind": ByHand(lambda s, x, e: brought(x["a"][e[NEAR][0]], e[NEAR], x["a"], "max")),
    "each relation": ByHand(of.each_relation),
    "attention of several layers": ByHand(of.attention),
    "attention of heads": ByHand(of_heads),
    "with loops": ByHand(with_loops),
    "degrees": ByHand(degrees),
    "added to zeros": ByHand(added_to_zeros),
    "messages of both ends": ByHand(messages),
    "weights and attributes": OfEdges(weighed),
    "of types": OfTypes(lambda: None),
}


@pytest.mark.parametrize("name", TAKEN)
def test_is_the_module(name: str, tmp_path: Path) -> None:
    typed = isinstance(TAKEN[name], OfTypes)
    options: dict[str, Any] = {} if typed else {"metadata": METADATA, "features": WIDTHS}
    export_model(TAKEN[name], tmp_path / "M", **options)


def test_widths_that_nothing_says_are_asked_for(tmp_path: Path) -> None:
    """Of rows of both ends a layer behind says how wide they are together."""
    for name in ("a sum", "messages of both ends"):
        with pytest.raises(ExportError, match=r"width of the features of kind 'a' is unknown.*: features="):
            export_model(TAKEN[name], tmp_path / "M", metadata=METADATA)
    export_model(TAKEN["each relation"], tmp_path / "M", metadata=METADATA)


def two_relations(s: Any, x: Any, e: Any) -> Any:
    return brought(x["a"][e[TO][0]], e[NEAR], x["a"])


def loops_between(s: Any, x: Any, e: Any) -> Any:
    edges, weight = gcn_norm(e[TO], None, x["a"].size(0))
    return brought(x["a"][edges[0]] * weight.view(-1, 1), edges, x["a"])


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "two relations": (two_relations, "counts or normalises over edges by hand"),
    "rows of targets as sources": (
        lambda s, x, e: brought(x["a"][e[TO][1]], e[TO], x["b"]), "something other than the rows of vertices"
    ),
    "as many as sources": (lambda s, x, e: brought(x["a"][e[TO][0]], e[TO], x["a"]), "by hand"),
    "by sources": (
        lambda s, x, e: scatter(x["b"][e[TO][1]], e[TO][0], dim=0, dim_size=x["a"].size(0)), "by the sources of edges"
    ),
    "rows of edges": (lambda s, x, e: x["a"][e[TO][0]], "is a row for each edge, and Freshet keeps one per vertex"),
    "the size of another kind": (
        lambda s, x, e: brought(x["a"][e[NEAR][0]], e[NEAR], x["a"]) / x["b"].size(0),
        r"the number of vertices of 'b' along edges of \('a', 'near', 'a'\), which has no such end",
    ),
    "some rows": (lambda s, x, e: s.conv((s.a(x["a"])[: len(x["b"])], s.b(x["b"])), e[TO]), "keeps some of the rows"),
    "loops between kinds": (loops_between, "vertex i of one kind is not vertex i of the other"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str, tmp_path: Path) -> None:
    function, message = REFUSED[name]
    with pytest.raises(ExportError, match=message):
        export_model(ByHand(function), tmp_path / "M", metadata=METADATA, features=WIDTHS)


def test_weights_of_another_relation(tmp_path: Path) -> None:
    module = OfEdges(lambda s, x, e, w, a: brought(x["a"][e[TO][0]] * w[SENT].view(-1, 1), e[TO], x["b"]))
    with pytest.raises(ExportError, match="by hand"):
        export_model(module, tmp_path / "M", metadata=METADATA, features=WIDTHS)
