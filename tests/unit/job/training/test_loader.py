"""`freshet.loader` makes batches of the labelled vertices in a line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import freshet
from freshet import InputError
from tests.unit.job.training.test_sampler import graph, hetero


def labelled() -> Data:
    data = graph()
    data.train_mask, data.val_mask = torch.arange(80) % 2 == 0, torch.zeros(80, dtype=torch.bool)
    return data


def seeds_of(found: Any) -> list[int]:
    return [int(one) for batch in found for one in batch.n_id[: batch.batch_size]]


def seen(batch: Data) -> Data:
    batch.seen = True
    return batch


def test_batches_of_a_mask() -> None:
    data = labelled()
    found = freshet.loader(data, [3, 2], 16)
    assert len(found) == 3 and seeds_of(found) == list(range(0, 80, 2))
    assert seeds_of(freshet.loader(data, [3], 16, mask=None)) == list(range(80))
    assert seeds_of(freshet.loader(data, [3], 16, mask=torch.tensor([7, 3]))) == [7, 3]
    assert seeds_of(freshet.loader(data, [3], 16, mask=~data.train_mask)) == list(range(1, 80, 2))


def test_a_seed_is_that_of_the_order_too() -> None:
    data = labelled()
    one, two, other = (seeds_of(freshet.loader(data, [3], 16, seed=seed, shuffle=True)) for seed in (1, 1, 2))
    assert one == two != other and sorted(one) == sorted(other) == list(range(0, 80, 2))


def test_loaders_share_a_sampler() -> None:
    data = labelled()
    sampler = freshet.NeighborSampler(data, [2])
    found = freshet.loader(data, sampler, 16)
    assert found.node_sampler is sampler


def test_kinds() -> None:
    data = hetero()
    data["item"].train_mask = torch.arange(30) < 7
    [batch] = freshet.loader(data, [3, 2], 16, kind="item")
    assert batch["item"].n_id[:7].tolist() == list(range(7)) and batch["item"].batch_size == 7
    with pytest.raises(InputError, match=r"^kind: expected one of user, item, got None"):
        freshet.loader(data, [3], 16)
    with pytest.raises(InputError, match=r"^data\['user'\]\.train_mask: missing; freshet\.labels sets train_mask"):
        freshet.loader(data, [3], 16, kind="user")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("names", [list, np.array])
def test_ids_that_are_strings_come_along(workers: int, names: Any) -> None:
    data = labelled()
    data.id = names([f"v{k}" for k in range(80)])
    found = freshet.loader(data, [3], 16, num_workers=workers, transform=seen)
    for batch in found:
        assert batch.id.tolist() == [f"v{k}" for k in batch.n_id.tolist()] and batch.seen
    assert len(data.id) == 80, "the data keeps its own"
    kinds = HeteroData()
    kinds["user"].x, kinds["user"].id, kinds["user"].train_mask = (
        torch.zeros(3, 1),
        names(["a", "b", "c"]),
        torch.ones(3) > 0,
    )
    kinds["user", "knows", "user"].edge_index = torch.tensor([[0], [1]])
    [batch] = freshet.loader(kinds, [3], 2, mask=torch.tensor([1, 2]))
    assert batch["user"].id.tolist() == ["b", "c", "a"]


def test_no_seeds_are_refused() -> None:
    data = labelled()
    with pytest.raises(InputError, match=r"^data\.val_mask: no vertex, so there is no batch"):
        freshet.loader(data, [3], 16, mask="val_mask")
    with pytest.raises(InputError, match=r"^mask: expected 80, one for each vertex, got 3"):
        freshet.loader(data, [3], 16, mask=torch.ones(3, dtype=torch.bool))
    with pytest.raises(InputError, match=r"^mask: expected vertices from 0 to 79, got 3 to 80"):
        freshet.loader(data, [3], 16, mask=torch.tensor([3, 80]))
    with pytest.raises(InputError, match=r"^kind: the graph has no kinds of vertices; leave it out, got 'user'"):
        freshet.loader(data, [3], 16, kind="user")
