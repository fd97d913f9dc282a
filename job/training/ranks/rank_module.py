"""A model as a torch module on one rank of several, that makes the rows of the rank's own vertices."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.torch_modules.called_by_kinds import KindsModule, OneKindModule
from freshet.gnn.torch_modules.inputs import rows_of
from freshet.gnn.torch_modules.module import FreshetModule
from freshet.gnn.torch_modules.passes import GraphOfKinds, pass_over, pass_over_kinds
from freshet.job.training.ranks.halo import Halo
from freshet.job.training.ranks.shards import Shard


class RankModule(Module):
    """A module of `freshet.to_torch` on the vertices of one rank.

    `forward` makes the rows of the rank's own vertices as one process makes them of the whole graph: before each layer
    it fetches the rows of in-neighbours that other ranks have. All ranks call `forward`, `backward` and
    `sum_gradients` in the same order, also one without labels. The loss of a rank is its part of the whole loss: a sum
    over its own vertices, divided by a number that all ranks share.

    Parameters, and learned rows among them, are whole on each rank; rows of vertices are not.
    """

    def __init__(self, module: FreshetModule, shard: Shard) -> None:
        super().__init__()
        self.module, self.shard = module, shard
        counts = map(len, shard.numbers)
        self.halos = [Halo(*one) for one in zip(counts, shard.halos, strict=True)]
        pairs = zip(shard.edges, shard.sources, strict=True)
        self._edges = [edges._replace(far=self.halos[source]) for edges, source in pairs]
        self.gradient_bytes = 0

    def forward(self) -> dict[str, Tensor]:
        """Return the embeddings of the rank's own vertices, by returned kind.

        Shapes: result, by kind (own vertices, width)
        Raises: ModuleInputError for rows of another width or type, or missing ids.
        """
        shard, model = self.shard, self.module.declared
        try:
            if not isinstance(self.module, KindsModule | OneKindModule):
                assert isinstance(model, Model)  # as the class of the module says
                real = next((one.dtype for one in self.parameters()), None)
                x = rows_of(shard.rows[0].get("x"), model.features.width, real, "x")
                return {"": pass_over(model, self.module, x, self._edges[0])}
            assert isinstance(model, KindsModel)
            rows, learned = dict[str, Tensor](), dict[str, dict[str, Tensor]]()
            for (kind, width), own, names in zip(model.kinds.items(), shard.rows, shard.names, strict=True):
                ids = own.get("id") if names is None else np.array(names, object)
                self.module.add_kind(kind, width, own.get("x"), ids, rows, learned)
            return pass_over_kinds(model, self.module, GraphOfKinds(rows, learned, self._edges))
        finally:
            for halo in self.halos:
                halo.forget()

    def sum_gradients(self) -> None:
        """Sum the gradients of all parameters over the ranks; all ranks have the same bits then."""
        trained = [one for one in self.parameters() if one.requires_grad]
        if not trained:
            return
        parts = [torch.zeros_like(one) if one.grad is None else one.grad for one in trained]
        flat = torch.cat([one.reshape(-1) for one in parts])
        dist.all_reduce(flat)
        self.gradient_bytes += flat.numel() * flat.element_size()
        for one, part in zip(trained, flat.split([one.numel() for one in trained]), strict=True):
            one.grad = part.view_as(one).clone()


def total(value: Tensor) -> Tensor:
    """Return the sum of a number over the ranks, such as of losses or of right answers; it has no gradient."""
    found = value.detach().clone()
    dist.all_reduce(found)
    return found
