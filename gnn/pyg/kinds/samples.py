"""Results of a forward's operations on the edges, weights and attributes of each relation, tried on numbers."""

from __future__ import annotations

from typing import Any

import torch

from freshet.gnn.pyg.forward.parameters import STANDARD
from freshet.gnn.pyg.forward.samples import Samples
from freshet.gnn.pyg.kinds.calling import ModuleInputs


class KindsSamples(Samples):
    """Values of nodes as `Samples` has them, with other numbers for each relation, so that none stands for another."""

    def __init__(self, given: ModuleInputs) -> None:
        """Take the nodes of the inputs; with types of edges, the edges are those of all relations together."""
        first, many = given.edges[0], len(given.edges)
        super().__init__(first, None, None, STANDARD)
        edges, weights, attributes = self._edges, self._weights, self._attributes
        self._every: dict[str, list[torch.Tensor]] = {
            "edges": [edges + j * edges.numel() for j in range(many)],
            "weights": [weights + j * weights.numel() for j in range(len(given.weights))],
            "attributes": [attributes + j * attributes.numel() for j in range(len(given.attributes))],
            "ids": [-1 - torch.arange(weights.numel()) - j * weights.numel() for j in range(len(given.ids))],
        }
        self._values = {}
        for name, nodes in zip(self._every, (given.edges, given.weights, given.attributes, given.ids), strict=True):
            self._values |= dict(zip(nodes, self._every[name], strict=True))
        self._types = torch.arange(weights.numel()) + 2 * edges.numel()
        if given.types is not None:
            self._values[given.types] = self._types

    def relation_of(self, what: str, node: Any) -> int | None:
        """Return the relation whose unchanged edges, weights or attributes (`what`) a node is; None for none.

        Of `ids` the kind whose vertices have these.
        """
        value = self._values.get(node)
        if not isinstance(value, torch.Tensor) or value.is_floating_point() == (what in ("edges", "ids")):
            return None
        return next((j for j, one in enumerate(self._every[what]) if torch.equal(value.to(one.dtype), one)), None)

    def is_edges(self, node: Any) -> bool:
        """Return whether a node is the unchanged edges of a relation."""
        return self.relation_of("edges", node) is not None

    def is_weights(self, node: Any) -> bool:
        """Return whether a node is the unchanged edge weights of a relation, in one dimension."""
        return self.relation_of("weights", node) is not None

    def is_attributes(self, node: Any) -> bool:
        """Return whether a node is the unchanged attributes of the edges of a relation, in two dimensions."""
        return self.relation_of("attributes", node) is not None

    def is_types(self, node: Any) -> bool:
        """Return whether a node is the unchanged types of edges."""
        value = self._values.get(node)
        return isinstance(value, torch.Tensor) and torch.equal(value, self._types)
