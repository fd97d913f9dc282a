"""Modules of models without kinds of vertices, called with the rows and edges of one graph."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from freshet.gnn.model import Model
from freshet.gnn.torch_modules.errors import refuse_input
from freshet.gnn.torch_modules.inputs import edges_of, of_categories, rows_of, with_types
from freshet.gnn.torch_modules.module import FreshetModule
from freshet.gnn.torch_modules.passes import pass_over


class PlainModule(FreshetModule):
    """Module of a model without kinds of vertices."""

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Any = None, edge_attr: Any = None, edge_type: Any = None
    ) -> Tensor:
        """Return the embeddings of all vertices.

        Shapes: x (n, features); edge_index (2, e) int64; edge_weight (e,), 1 by default; edge_attr (e, edge features),
            0 by default; edge_type (e,) int64, numbers of the model's edge types, where it has columns for them; result
            (n, width)
        Raises: ModuleInputError naming the argument that does not fit.
        """
        model = self._declared
        assert isinstance(model, Model)  # module_of chooses the class
        rows = rows_of(x, model.features.width, self._real(), "x")
        ends, width = (len(rows), len(rows)), model.features.given_edge_width
        edges = edges_of(edge_index, edge_weight, edge_attr, ends=ends, width=width, real=rows.dtype)
        edges = of_categories(edges, model.edge_categories, "edge_attr")
        if model.type_columns:
            edges = with_types(edges, edge_type, model.edge_types)
        elif edge_type is not None:
            refuse_input("edge_type: the model reads no types of edges; leave it out")
        return pass_over(model, self, rows, edges)
