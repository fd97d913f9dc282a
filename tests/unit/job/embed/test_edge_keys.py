"""Snapshots with parallel edges: embeddings are those of the user's module on the table, and jobs go on from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData

from freshet.gnn.model import save_model
from freshet.gnn.pyg.export import export_model
from freshet.job.embed.runner import SERVING, STREAMING, EmbedOptions, embed
from freshet.job.errors import UsageError
from freshet.job.options.config_file import load_run_config
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.results.check import check
from freshet.job.run import runner
from freshet.operators.sink.change_log_reader import ChangeLogReader
from tests.support.graphs.models import IN_WIDTH, conv, make_model

ACCOUNTS, PAYMENTS, MERCHANTS = 60, 400, 5
KEYS: dict[str, Callable[[int], Any]] = {"int": lambda k: 10**12 - 7 * k, "string": lambda k: f"pay-{k}" * (1 + k % 9)}


class Gine(nn.Module):
    """Attributes of payments."""

    def __init__(self) -> None:
        super().__init__()
        mlp = nn.Sequential(nn.Linear(IN_WIDTH, 8), nn.ReLU(), nn.Linear(8, 6))
        self.first, self.second = pyg.GINEConv(mlp, edge_dim=2), pyg.SAGEConv(6, 4)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index)


class Weighted(nn.Module):
    """Attention, and weights of payments; self-loops among these are taken out, or count each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.GATConv(IN_WIDTH, 4, heads=2), pyg.GraphConv(8, 4, aggr="mean")

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.second(self.first(x, edge_index).relu(), edge_index, edge_weight)


def payments(seed: int) -> dict[str, np.ndarray]:
    """The user's table: each row a payment, several of one account to another, some to itself."""
    rng = np.random.default_rng(seed)
    src, dst = (ACCOUNTS * rng.random(PAYMENTS) ** 2).astype(np.int64), rng.integers(0, MERCHANTS, PAYMENTS)
    attr = rng.standard_normal((PAYMENTS, 2)).astype(np.float32)
    return {"src": src, "dst": dst, "amount": rng.uniform(0.1, 2, PAYMENTS).astype(np.float32), "attr": attr}


def save(folder: Path, table: dict[str, np.ndarray], x: np.ndarray, kind: str, repeated: int = 25) -> None:
    """Write the snapshot; its first rows are there once more with other values before, as rows that are replaced."""
    folder.mkdir()
    features = pa.array(list(x), pa.list_(pa.float32(), x.shape[1]))
    pq.write_table(pa.table({"id": np.arange(len(x)), "x": features}), folder / "vertices.parquet")
    rows = np.r_[:repeated, :PAYMENTS]
    weight, attr = table["amount"][rows], table["attr"][rows]
    weight[:repeated], attr[:repeated] = 9, 9
    columns = {"src": table["src"][rows], "dst": table["dst"][rows], "weight": weight}
    columns["attr"] = pa.array(list(attr), pa.list_(pa.float32()))
    columns["key"] = pa.array([None if row == 5 else KEYS[kind](row) for row in rows.tolist()])
    pq.write_table(pa.table(columns), folder / "edges.parquet")


def rows_of(folder: Path, kind: str = "") -> np.ndarray:
    state = ChangeLogReader(folder, kind).state_at(0)
    return state.vectors[np.argsort(state.ids)]


def asked(folder: Path, out: str, made_for: str, parts: int = 2) -> EmbedOptions:
    placed = PartitioningOptions(parts=parts) if made_for == STREAMING else PartitioningOptions()
    return EmbedOptions(
        folder / "model", folder / "S", folder / out, memory=1 << 28, made_for=made_for, placement=placed
    )


@pytest.mark.parametrize("kind", ["int", "string"])
@pytest.mark.parametrize("make", [Gine, Weighted])
def test_rows_are_those_of_the_module_on_the_table(
    make: Callable[[], nn.Module], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(3)
    module, table = make().eval(), payments(1)
    x = np.random.default_rng(2).standard_normal((ACCOUNTS, IN_WIDTH)).astype(np.float32)
    export_model(module, tmp_path / "model")
    save(tmp_path / "S", table, x, kind)
    data = Data(torch.tensor(x), torch.tensor(np.stack([table["src"], table["dst"]])))
    last = torch.tensor(table["attr" if make is Gine else "amount"])
    with torch.no_grad():
        want = module.double()(data.x.double(), data.edge_index, last.double()).numpy()
    pairs = set(zip(table["src"].tolist(), table["dst"].tolist(), strict=True))
    assert len(pairs) < PAYMENTS - 50 and (table["src"] == table["dst"]).sum() > 5
    for made_for in (SERVING, STREAMING):
        assert embed(asked(tmp_path, made_for, made_for)) == 0
        said = capsys.readouterr()
        line = orjson.loads(said.out.splitlines()[-1])
        assert (line["edges"], line["replaced"]) == (PAYMENTS, 25)
        assert "25 of 425 edges repeat a (src, dst, type, key); the last one of each holds" in said.err
        assert np.abs(rows_of(tmp_path / made_for) - want).max() < 1e-5 * max(1, np.abs(want).max())
        again = pq.read_table(tmp_path / made_for / "edges.parquet")
        assert again["key"].equals(pq.read_table(tmp_path / "S" / "edges.parquet")["key"])


def test_rows_of_kinds_are_those_of_the_module_on_the_tables(tmp_path: Path) -> None:
    pays, refunds = ("account", "pays", "shop"), ("shop", "rev_pays", "account")
    torch.manual_seed(1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first = {pays: pyg.SAGEConv((6, 3), 8), refunds: pyg.GATv2Conv((3, 6), 8, add_self_loops=False)}
            self.first = pyg.HeteroConv(first)
            self.second = pyg.HeteroConv({pays: pyg.SAGEConv((8, 8), 4, aggr="max"), refunds: pyg.SAGEConv((8, 8), 4)})

        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            x_dict = {kind: x.relu() for kind, x in self.first(x_dict, edge_index_dict).items()}
            return self.second(x_dict, edge_index_dict)

    module, table, rng = Net().eval(), payments(4), np.random.default_rng(5)
    export_model(module, tmp_path / "model")
    data = HeteroData()
    data["account"].x = torch.tensor(rng.standard_normal((ACCOUNTS, 6)).astype(np.float32))
    data["shop"].x = torch.tensor(rng.standard_normal((MERCHANTS, 3)).astype(np.float32))
    data[pays].edge_index = torch.tensor(np.stack([table["src"], table["dst"]]))
    data[refunds].edge_index = data[pays].edge_index.flip(0)
    with torch.no_grad():
        want = module.double()({kind: x.double() for kind, x in data.x_dict.items()}, data.edge_index_dict)
    (tmp_path / "S").mkdir()
    x = [row for kind in ("account", "shop") for row in data[kind].x.numpy()]
    ids = np.r_[:ACCOUNTS, :MERCHANTS]
    kinds = ["account"] * ACCOUNTS + ["shop"] * MERCHANTS
    vertices = {"id": ids, "kind": kinds, "x": pa.array(x, pa.list_(pa.float32()))}
    pq.write_table(pa.table(vertices), tmp_path / "S" / "vertices.parquet")
    edges = {"src": table["src"], "dst": table["dst"], "type": ["pays"] * PAYMENTS, "key": np.arange(PAYMENTS)}
    pq.write_table(pa.table(edges), tmp_path / "S" / "edges.parquet")
    for made_for in (SERVING, STREAMING):
        assert embed(asked(tmp_path, made_for, made_for)) == 0
        for kind in ("account", "shop"):
            assert np.abs(rows_of(tmp_path / made_for, kind) - want[kind].numpy()).max() < 1e-5


def changes(kind: str) -> list[dict[str, Any]]:
    """Events that add, change and delete single payments, and all of a pair."""
    rng, table, found = np.random.default_rng(9), payments(1), list[dict[str, Any]]()
    for number in range(120):
        row = int(rng.integers(0, PAYMENTS))
        edge = {"src": int(table["src"][row]), "dst": int(table["dst"][row]), "key": KEYS[kind](row)}
        if number % 3 == 0:
            found.append({"op": "del_edge", **edge, **({"key": "*"} if number % 9 == 0 else {})})
        else:
            edge["key"] = KEYS[kind](PAYMENTS + number) if number % 2 else edge["key"]
            found.append({"op": "add_edge", **edge, "weight": float(rng.uniform(0.1, 2))})
    return found


@pytest.mark.parametrize("kind", ["int", "string"])
def test_a_job_that_goes_on_from_an_embedding_equals_one_from_the_snapshot(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_model(3, [conv("sage_conv", IN_WIDTH, 6), {"type": "relu"}, conv("graph_conv", 6, 4)])
    save_model(model, tmp_path / "model")
    x = np.random.default_rng(2).standard_normal((ACCOUNTS, IN_WIDTH)).astype(np.float32)
    save(tmp_path / "S", payments(1), x, kind)
    assert embed(asked(tmp_path, "S2", STREAMING)) == 0
    events = tmp_path / "events.jsonl"
    events.write_bytes(b"\n".join(map(orjson.dumps, changes(kind))))
    given: dict[str, Any] = {"model": tmp_path / "model", "events": [str(events)], "runtime": "local", "parts": 2}
    logs = []
    for snapshot in ("S2", "S"):
        options = given | {"snapshot": tmp_path / snapshot, "out": tmp_path / f"out {snapshot}", "epoch_events": 30}
        capsys.readouterr()
        assert runner.run(load_run_config(options | {"epoch_ms": 0})) == 0
        said = capsys.readouterr()
        assert ("state taken over" in said.err) == (snapshot == "S2")
        assert orjson.loads(said.out.splitlines()[-1])["rejected"] == 0
        assert check(given["model"], given["events"], options["out"], snapshot=options["snapshot"]) == 0
        log = ChangeLogReader(options["out"])
        assert log.last_epoch() == 4
        states = [log.state_at(epoch) for epoch in range(5)]
        logs.append([dict(zip(one.ids.tolist(), map(bytes, one.vectors), strict=True)) for one in states])
    assert logs[0] == logs[1] and logs[0][0] != logs[0][4]


def test_a_state_without_keys_is_no_start_of_a_job_with_keys(tmp_path: Path) -> None:
    save_model(make_model(3, [conv("sage_conv", IN_WIDTH, 6)]), tmp_path / "model")
    x = np.ones((ACCOUNTS, IN_WIDTH), np.float32)
    save(tmp_path / "S", payments(1), x, "int")
    edges = pq.read_table(tmp_path / "S" / "edges.parquet").drop_columns(["key"])
    pq.write_table(edges, tmp_path / "S" / "edges.parquet")
    assert embed(asked(tmp_path, "S2", STREAMING)) == 0
    (tmp_path / "events.jsonl").write_bytes(orjson.dumps(changes("int")[1]))
    given = {"model": tmp_path / "model", "events": [str(tmp_path / "events.jsonl")], "out": tmp_path / "out"}
    with pytest.raises(UsageError, match=r"made with no keys of edges, this job has int keys of edges.*embedded"):
        runner.run(load_run_config({**given, "runtime": "local", "snapshot": tmp_path / "S2", "edge_key": "key"}))
