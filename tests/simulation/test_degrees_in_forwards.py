"""Forwards that scale edges by degrees, or by what they make of attributes: PyG's rows after every epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from freshet.gnn.pyg.export import export_model  # noqa: E402
from freshet.schema import Graph  # noqa: E402
from tests.support.graphs import degrees_in_forwards as of  # noqa: E402
from tests.support.graphs.attributed import EDGE_WIDTH  # noqa: E402
from tests.support.graphs.models import IN_WIDTH  # noqa: E402
from tests.support.simulation.changing_edges import crashes_of  # noqa: E402

MODULES = of.modules(IN_WIDTH, EDGE_WIDTH)


@pytest.mark.parametrize("name", MODULES)
def test_a_stream_with_deletions_loops_and_crashes(name: str, tmp_path: Path) -> None:
    torch.manual_seed(7)
    module: Any = MODULES[name]().eval()
    model: Any = export_model(module, tmp_path, features=IN_WIDTH)
    module.double()

    def by_pyg(graph: Graph) -> np.ndarray:
        index = torch.from_numpy(np.stack([graph.src, graph.dst]).astype(np.int64))
        values = {of.OfWeights: graph.values.weight, of.OfAttributes: graph.values.full_attr(EDGE_WIDTH)}
        given = [torch.tensor(one, dtype=torch.float64) for kind, one in values.items() if type(module) is kind]
        with torch.no_grad():
            made: np.ndarray = module(torch.tensor(graph.x, dtype=torch.float64), index, *given).numpy()
        return made

    crashes_of(model, list(MODULES).index(name) % 4, by_pyg)
