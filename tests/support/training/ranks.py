"""Models on graphs that ranks share: their rows and gradients, by ranks and by one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch_geometric.data import Data, HeteroData

import freshet
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.torch_modules.loading import module_of
from freshet.job.training.ranks.rank_module import RankModule
from freshet.job.training.ranks.shards import Shard, shards_of
from freshet.job.training.ranks.whole import WholeGraph, whole_graph
from freshet.kinds_graph import KindsGraph
from freshet.schema import Graph
from tests.support.graphs.torch_graphs import kinds_inputs, plain_inputs


def plain_data(model: Model, graph: Graph, real: torch.dtype) -> Data:
    return Data(**plain_inputs(graph, edge_features=model.edge_features, real=real))


def kinds_data(model: KindsModel, graph: KindsGraph, ids: Mapping[str, Any], real: torch.dtype) -> HeteroData:
    given = kinds_inputs(model, graph, real=real)
    data = HeteroData()
    for kind, x in zip(model.kinds, graph.x, strict=True):
        data[kind].num_nodes = len(x)
        if kind in given["x_dict"]:
            data[kind].x = given["x_dict"][kind]
        if kind in ids:
            data[kind].id = torch.from_numpy(ids[kind]) if ids[kind].dtype.kind == "i" else ids[kind]
    for name in ("edge_index", "edge_weight", "edge_attr"):
        for ends, value in given[f"{name}_dict"].items():
            data[ends][name] = value
    return data


def dealt(graph: WholeGraph, ranks: int) -> list[np.ndarray]:
    """Deal vertices in turn: the in-neighbours of a hub are on all ranks."""
    return [(np.arange(count) % ranks).astype(np.int32) for count in graph.counts]


def part_of_loss(rows: Tensor, numbers: Tensor) -> Tensor:
    """Return what some vertices add to the loss of all, whatever their order."""
    factor = torch.cos(0.7 * numbers[:, None] + 1.3 * torch.arange(rows.shape[1])).to(rows.dtype)
    return (rows * factor + 0.3 * rows**2).sum()


def write_case(folder: Path, model: Model | KindsModel, data: Data | HeteroData, ranks: int, owners: Any) -> None:
    """Write a model and the shards of a graph."""
    folder.mkdir()
    module_of(model).save(folder / "M")
    real = next(one.edge_weight.dtype for one in data.edge_stores)
    graph = whole_graph(data, model, real)
    for shard in shards_of(graph, owners(graph, ranks), ranks):
        shard.save(folder / f"shard-{shard.rank}")


def work(rank: int, folder: str) -> None:
    """Compute the rows and gradients of each case in a folder on one rank."""
    for case in sorted(Path(folder).iterdir()):
        shard = Shard.load(case / f"shard-{rank}")
        module = RankModule(freshet.to_torch(case / "M").to(shard.edges[0].weight.dtype), shard)
        rows = module()
        numbers = dict(zip(shard.kinds, shard.numbers, strict=True))
        loss = torch.stack([part_of_loss(of, numbers[kind]) for kind, of in rows.items()]).sum()
        if loss.requires_grad:  # models of hops alone have no weights
            loss.backward()
        module.sum_gradients()
        found = {f"rows.{kind}": of.detach() for kind, of in rows.items()}
        found |= {f"numbers.{kind}": numbers[kind] for kind in rows}
        found |= dict(gradients(module.module))
        save_file({name: value.contiguous() for name, value in found.items()}, case / f"found-{rank}.safetensors")


def gradients(module: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, one in module.named_parameters():
        yield f"gradient.{name}", torch.zeros_like(one) if one.grad is None else one.grad


def of_one_process(model: Model | KindsModel, data: Data | HeteroData, ids: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the rows and gradients that one process computes."""
    real = next(one.edge_weight.dtype for one in data.edge_stores)
    module = module_of(model).to(real)
    if isinstance(data, Data):
        more = {"edge_type": data.edge_type} if "edge_type" in data else {}
        rows = {
            "": module(data.x, data.edge_index, edge_weight=data.edge_weight, edge_attr=data.get("edge_attr"), **more)
        }
    else:
        given = data.collect("edge_index"), data.collect("edge_weight"), data.collect("edge_attr", allow_empty=True)
        rows = module(data.collect("x", allow_empty=True), *given, ids=ids or None)
    parts = [part_of_loss(of, torch.arange(len(of))) for of in rows.values()]
    loss = torch.stack(parts).sum()
    if loss.requires_grad:
        loss.backward()
    return {f"rows.{kind}": of.detach() for kind, of in rows.items()} | dict(gradients(module))


def of_ranks(case: Path, ranks: int) -> dict[str, Tensor]:
    """Return the rows of all ranks in the order of the whole graph, and the gradients, which all ranks must share."""
    parts = [load_file(case / f"found-{rank}.safetensors") for rank in range(ranks)]
    found = {}
    for name, first in parts[0].items():
        if name.startswith("gradient."):
            assert all(torch.equal(first, part[name]) for part in parts), "the same bits on all ranks"
            found[name] = first
        elif name.startswith("rows."):
            numbers = torch.cat([part[name.replace("rows.", "numbers.", 1)] for part in parts])
            assert torch.equal(numbers.sort().values, torch.arange(len(numbers))), "each vertex on one rank"
            found[name] = torch.cat([part[name] for part in parts])[numbers.argsort()]
    return found
