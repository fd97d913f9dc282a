"""UPDATE behind the merge against the calls one after the other: the same blocks and tables, bit by bit."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from freshet.gnn.model import save_model
from freshet.operators.control import control_values
from freshet.operators.dataflow import PARTITIONER, STORAGE, Place
from freshet.operators.factory import load_plan, open_network
from freshet.operators.network import Network
from freshet.operators.outcome import Message
from freshet.operators.settings import Settings
from freshet.operators.storage import behind
from freshet.operators.storage.behind import UpdateBehind
from freshet.operators.storage.epoch_topology import EpochTopology
from freshet.operators.storage.layer import LayerStorage
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.schema import Features
from tests.support.graphs.models import conv, make_model
from tests.support.graphs.streams import random_records, to_events

WIDTH, EPOCHS, SEED = 4, 120, 5
RELU = {"type": "relu"}
MODELS = {
    "sum": [conv("sage_conv", WIDTH, 3, aggr="sum"), RELU, conv("sage_conv", 3, 2, aggr="sum")],
    "mean, then rows that degrees change": [conv("sage_conv", WIDTH, 3), RELU, conv("gcn_conv", 3, 3)],
    "weighted": [conv("graph_conv", WIDTH, 3), conv("graph_conv", 3, 2)],
    "own rows that are messages": [conv("sage_conv", WIDTH, 6, aggr="sum"), conv("sage_conv", 6, 2)],
}


class Counted:
    """An UpdateBehind that counts what became of epochs."""

    def __init__(self, one: UpdateBehind, counts: Counter[str]) -> None:
        self.one, self.counts, self.prefix = one, counts, one.prefix

    def takes(self, epoch: int, topology: EpochTopology) -> bool:
        takes = self.one.takes(epoch, topology)
        self.counts["takes" if takes else "leaves"] += 1
        return takes

    def merge(self, *given):  # type: ignore[no-untyped-def]
        found = self.one.merge(*given)
        self.counts["updated" if found[1] is not None else "merged"] += 1
        return found

    @property
    def updated(self) -> int:
        return self.one.updated


def layers(network: Network) -> list[LayerStorage]:
    return [stage.core for stage in network.stages.values() if isinstance(stage.core, LayerStorage)]


def state_of(network: Network) -> dict[str, bytes]:
    """The rows of all tables."""
    return {
        f"{place} {table.name}": table.data[: table.rows].tobytes()
        for place, stage in network.stages.items()
        for table in stage.core.tables
    }


@pytest.mark.parametrize("rows_max", [6, behind.ROWS_MAX])
@pytest.mark.parametrize("model", MODELS)
def test_one_call_has_the_bits_of_several(
    tmp_path: Path, model: str, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs of 1 to 20 events, some with new vertices; sums that wear, by rows a million times as large as others."""
    monkeypatch.setattr(behind, "ROWS_MAX", rows_max)
    save_model(make_model(5, MODELS[model]), tmp_path / "M")
    rules = PartitionerConfig(hash_seed=SEED)
    settings = Settings(str(tmp_path / "M"), "", 1, tasks=(1,), partitioning=rules)
    plan = load_plan(settings.model)
    one, several = (open_network(settings, plan, sinks=False) for _ in range(2))
    rng, counts, touched = random.Random(SEED), Counter[str](), 0
    for core in layers(one):
        if core.behind is not None:
            core.behind = Counted(core.behind, counts)  # type: ignore[assignment]
    for core in layers(several):
        core.behind = None
    core = Partitioner(1, Features(WIDTH), rules)
    for epoch in range(1, EPOCHS + 1):
        records = random_records(rng, rng.choice([1, 1, 2, 20]), WIDTH, vertices=30)
        for record in records:
            if "x" in record:
                record["x"] = [value * rng.choice([1, 1, 1e6, 1e-6]) for value in record["x"]]
        (block,) = core.split(core.partition(to_events(records, WIDTH)), control_values(), epoch)
        message = Message(STORAGE, 0, epoch, block)
        got, expected = (network.run(Place(PARTITIONER, 0), [message]) for network in (one, several))
        assert len(got) == len(expected) == 1
        columns, others = got[0].block.columns, expected[0].block.columns
        assert list(columns) == list(others)
        for name, column in columns.items():
            assert column.tobytes() == others[name].tobytes() and column.dtype == others[name].dtype, name
        assert [core.touched for core in layers(one)] == [core.touched for core in layers(several)]
        touched += sum(core.touched for core in layers(one))
    assert state_of(one) == state_of(several)
    assert touched > EPOCHS
    assert counts["updated"] > EPOCHS / 4 and counts["leaves"] > 10
    if rows_max == 6:
        assert counts["merged"] > 10, "epochs with too many rows"
    assert np.isfinite(columns["row"]).all()
