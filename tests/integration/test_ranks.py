"""Ranks that share a graph compute the rows and gradients of one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from freshet.job.training.ranks.launch import RankFailedError, run_on_ranks  # noqa: E402
from freshet.job.training.ranks.whole import owners_of  # noqa: E402
from tests.support.graphs.kinds import (  # noqa: E402
    many_relations,
    random_kinds_graph,
    random_model_of_kinds,
    scaled_by_degrees,
    text_id,
)
from tests.support.graphs.models import all_small_models, conv, make_model  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402
from tests.support.training.ranks import (  # noqa: E402
    dealt,
    kinds_data,
    of_one_process,
    of_ranks,
    plain_data,
    work,
    write_case,
)

SMALL = all_small_models()
PNA = {"aggregators": ["mean", "min", "max", "std"], "scalers": ["identity", "amplification", "attenuation"]}


class Case(NamedTuple):
    model: Any
    data: Any
    ids: dict[str, np.ndarray]
    owners: Callable[..., Any] = dealt


def plain(model: Any, real: Any = torch.float64, owners: Any = dealt, **size: int) -> Case:
    return Case(model, plain_data(model, random_graph(3, **size), real), {}, owners)


def of_kinds(model: Any, seed: int, *, strings: bool = False, owners: Any = dealt) -> Case:
    graph = random_kinds_graph(model, seed)
    ids = {}
    for kind, x in zip(model.kinds, graph.x, strict=True):
        if kind in model.learned:
            numbers = np.random.default_rng(seed).permutation(len(x))
            ids[kind] = np.array([text_id(one) for one in numbers], object) if strings else numbers
    return Case(model, kinds_data(model, graph, ids, torch.float64), ids, owners)


def cases(ranks: int) -> dict[str, Case]:
    """Models of every conv in float64, four in float32, and models with kinds, learned rows among them."""
    some = [name for name in SMALL if ranks == 2 or not name.endswith("-widening")]
    found = {name: plain(SMALL[name]()) for name in some}
    for name in ("gcn_conv-default-2-layers", "sage_conv-mean-2-layers", "gat_conv-default-2-layers"):
        found[f"{name}-float32"] = plain(SMALL[name](), torch.float32)
    [pna] = [name for name in SMALL if name.startswith("pna")][:1]
    found["pna-float32"] = plain(SMALL[pna](), torch.float32)
    large = make_model(1, [conv("gcn_conv", 6, 8), {"type": "relu"}, conv("gat_conv", 8, 3)])
    found["metis"] = plain(large, owners=owners_of, vertices=400, edges=3000)
    for seed in range(12):
        found[f"kinds-{seed}"] = of_kinds(random_model_of_kinds(seed), seed)
    found["kinds-strings"] = of_kinds(random_model_of_kinds(2, strings=True), 2, strings=True)
    found["kinds-metis"] = of_kinds(random_model_of_kinds(1), 1, owners=owners_of)
    found["many relations"] = of_kinds(many_relations(0), 0)
    found |= {f"degrees of kinds-{seed}": of_kinds(scaled_by_degrees(seed), seed) for seed in range(4)}
    return found


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_gradients_and_rows_are_those_of_one_process(ranks: int, tmp_path: Path) -> None:
    given = cases(ranks)
    folders = {name: tmp_path / f"{number:03}" for number, name in enumerate(given)}
    for name, one in given.items():
        write_case(folders[name], one.model, one.data, ranks, one.owners)
    run_on_ranks(work, ranks, (str(tmp_path),))
    wrong = {}
    for name, one in given.items():
        expected, found = of_one_process(one.model, one.data, one.ids), of_ranks(folders[name], ranks)
        assert expected.keys() == found.keys(), name
        tolerance = 1e-5 if name.endswith("float32") else 1e-9
        for what in ("rows.", "gradient."):
            keys = [key for key in expected if key.startswith(what)]
            largest = max([float(expected[key].abs().max()) for key in keys if expected[key].numel()], default=0.0)
            off = max(
                [float((expected[key] - found[key]).abs().max()) for key in keys if expected[key].numel()], default=0.0
            )
            if not off <= tolerance * largest:
                wrong[f"{name} {what}"] = off / max(largest, 1e-300)
    assert not wrong


def fail(rank: int) -> None:
    if rank == 1:
        msg = "no more"
        raise ValueError(msg)
    torch.distributed.barrier()


def test_a_rank_that_fails_ends_the_others() -> None:
    with pytest.raises(RankFailedError, match=r"^rank 1: ValueError: no more"):
        run_on_ranks(fail, 2)
