"""Snapshots with kinds are embedded for serving: the rows of PyTorch Geometric, kind by kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric.nn")

from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.job.embed.runner import EmbedOptions, embed  # noqa: E402
from freshet.job.options.partitioning_options import PartitioningOptions  # noqa: E402
from tests.support.graphs.kind_streams import arrays_of, graph_of  # noqa: E402
from tests.support.graphs.kinds import KINDS, by_kind, hetero, kinds_model, relation, sage, text_id  # noqa: E402
from tests.support.graphs.pyg_kinds import call_hetero, hetero_module  # noqa: E402
from tests.unit.job.embed.test_kinds import graph_for, rows_of  # noqa: E402
from tests.unit.job.results.test_kinds_jobs import kinds_of, of_two  # noqa: E402

RATED = [
    relation("user", "rates", "item", edge_features=3),
    relation("item", "rev_rates", "user", edge_features=3, mirrors=0),
    relation("shop", "sells", "item"),
]
WIDE = {"out_channels": 8, "heads": 2, "edge_channels": 3}


def with_an_unreached_kind() -> KindsModel:
    """Attention with attributes in a relation and its mirror, a largest value, and shops, which no relation reaches."""
    convs: dict[int, Any] = {
        0: {"type": "gatv2_conv", "in_channels": 6, "target_channels": 4, "add_self_loops": False, **WIDE},
        1: {"type": "transformer_conv", "in_channels": 4, "target_channels": 6, **WIDE},
        2: sage(5, 4, 8, aggr="max"),
    }
    return kinds_model([hetero(convs, "mean"), by_kind(user=[{"type": "relu"}])], ["user", "item"], KINDS, RATED)


@pytest.mark.parametrize("make", [of_two, with_an_unreached_kind])
@pytest.mark.parametrize(("parts", "id_of"), [(1, int), (3, text_id)])
def test_rows_are_those_of_pyg(make: Any, parts: int, id_of: Any, tmp_path: Path) -> None:
    model = make()
    graph = graph_of(kinds_of(model), graph_for(tmp_path, model, id_of))
    ids, arrays = arrays_of(graph)
    x = {kind: torch.from_numpy(rows.astype("f8")) for kind, rows in zip(model.kinds, arrays.x, strict=True)}
    for index, layer in enumerate(model.layers):
        if layer.type == "hetero_conv":
            x = call_hetero(hetero_module(model, index), model, index, x, arrays)
        else:
            x["user"] = torch.relu(x["user"])
    asked = EmbedOptions(
        tmp_path / "model", tmp_path / "S", tmp_path / "S2", placement=PartitioningOptions(parts=parts)
    )
    assert embed(asked) == 0
    for kind in model.out:
        rows, wanted = rows_of(asked.out, model, kind), x[kind].detach().numpy()
        named = ids[list(model.kinds).index(kind)]
        assert sorted(rows) == named and len(named) > 5
        np.testing.assert_allclose(np.stack([rows[one] for one in named]), wanted, rtol=1e-5, atol=1e-5)
