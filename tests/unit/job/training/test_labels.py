"""Labels meet the vertices of a graph by id, and stay on their side of the split."""

from __future__ import annotations

import subprocess
import sys
import warnings
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import freshet
from freshet import InputError
from freshet.job.training.splits import by_hash, by_time, hashes
from tests.unit.test_imports import ROOT


def graph(ids: Any) -> Data:
    count = len(ids)
    return Data(x=torch.zeros(count, 2), edge_index=torch.empty(2, 0, dtype=torch.int64), id=ids)


def kinds_graph() -> HeteroData:
    data = HeteroData()
    data["user"].x, data["user"].id = torch.zeros(3, 2), torch.tensor([7, 8, 9])
    data["item"].x, data["item"].id = torch.zeros(2, 4), torch.tensor([9, 7])
    return data


def written(folder: Path, **columns: Any) -> Path:
    path = folder / "L.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def mask(data: Any, name: str) -> list[int]:
    return np.flatnonzero(data[name].numpy()).tolist()


def split_mix(value: int) -> int:
    """SplitMix64 in plain Python."""
    of = 2**64
    value = (value + 0x9E3779B97F4A7C15) % of
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % of
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % of
    return value ^ (value >> 31)


def digest(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def test_labels_meet_their_vertices(tmp_path: Path) -> None:
    path = written(tmp_path, id=[30, 10], label=[2, 0], other=["a", "b"])
    data = graph(torch.tensor([10, 20, 30]))
    assert freshet.labels(data, path) is data
    assert data.y.tolist() == [0, -1, 2] and data.y.dtype == torch.int64
    assert data.train_mask.dtype == data.val_mask.dtype == torch.bool
    assert sorted(mask(data, "train_mask") + mask(data, "val_mask")) == [0, 2]
    assert data.labels_skipped == 0


@pytest.mark.parametrize("ids", [["a", "bb", "ü"], np.array(["a", "bb", "ü"]), np.array(["a", "bb", "ü"], object)])
def test_ids_are_strings(ids: Any, tmp_path: Path) -> None:
    path = written(tmp_path, id=pa.array(["ü", "a"]).dictionary_encode(), label=pa.array([1.0, 3.0]))
    assert freshet.labels(graph(ids), str(path)).y.tolist() == [3, -1, 1]


def test_labels_of_frames() -> None:
    frame = pd.DataFrame({"id": [2, 1], "label": [True, False]})
    assert freshet.labels(graph(torch.tensor([1, 2])), frame).y.tolist() == [0, 1]


def test_arrow_files(tmp_path: Path) -> None:
    table = pa.table({"id": [2, 1], "label": [5, 6]})
    with pa.ipc.new_file(tmp_path / "L.arrow", table.schema) as out:
        out.write_table(table)
    assert freshet.labels(graph(torch.tensor([1, 2])), tmp_path / "L.arrow").y.tolist() == [6, 5]


def test_ids_that_the_graph_lacks_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path, id=[5, 1, 6, 5], label=[0, 1, 0, 0])
    with pytest.warns(
        UserWarning, match=r"L\.parquet: 2 of 3 labelled ids are not in the graph, such as 6; skipped"
    ) as w:
        data = freshet.labels(graph(torch.tensor([1, 2])), path)
    assert w[0].filename == __file__
    assert data.labels_skipped == 2 and data.y.tolist() == [1, -1]


def test_a_file_without_rows(tmp_path: Path) -> None:
    data = freshet.labels(graph(torch.tensor([1, 2])), written(tmp_path, id=pa.array([], pa.int64()), label=[]))
    assert data.y.tolist() == [-1, -1] and not data.train_mask.any() and not data.val_mask.any()


def test_the_split_is_the_one_that_is_stated() -> None:
    ids = pa.array([0, 1, -1, 2**63 - 1, -(2**63), 12345])
    for kind in ("", "user"):
        begin = digest(kind.encode())
        assert hashes(kind, ids).tolist() == [split_mix((one + begin) % 2**64) for one in ids.to_pylist()]
        assert hashes(kind, pa.array(["", "ü"])).tolist() == [digest(f"{kind}\0{one}".encode()) for one in ("", "ü")]


@pytest.mark.parametrize("of", [int, str])
def test_a_vertex_stays_on_its_side(of: Any) -> None:
    rng = np.random.default_rng(0)
    every = [of(one) for one in range(4000)]
    larger, smaller = (set(np.flatnonzero(by_hash("user", pa.array(every), share))) for share in (0.3, 0.2))
    assert smaller < larger and 700 < len(smaller) < 900 and 1100 < len(larger) < 1300
    chosen = rng.permutation(4000)[:1000]
    found = by_hash("user", pa.array([every[k] for k in chosen]), 0.2)
    assert set(chosen[found].tolist()) == smaller & set(chosen.tolist())
    assert set(np.flatnonzero(by_hash("item", pa.array(every), 0.2))) != smaller


def test_another_process_divides_equally() -> None:
    code = (
        "import pyarrow as pa; from freshet.job.training.splits import hashes; "
        "print(hashes('k', pa.array([1, 2])).tolist(), hashes('k', pa.array(['1'])).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == f"{hashes('k', pa.array([1, 2])).tolist()} {hashes('k', pa.array(['1'])).tolist()}"


@pytest.mark.parametrize(
    ("ts", "share", "chosen"),
    [
        ([3, 1, 2, 5, 4], 0.4, [3, 4]),
        ([1, 2, 2, 2, 0], 0.2, [1, 2, 3]),  # all of a time
        ([1, 2, 3], 0.1, []),  # a third of a label
        ([1, 2, 3], 0.0, []),
        ([], 0.5, []),
    ],
)
def test_the_newest_are_for_validation(ts: list[int], share: float, chosen: list[int]) -> None:
    assert np.flatnonzero(by_time(np.array(ts, np.int64), share)).tolist() == chosen


def test_split_by_time(tmp_path: Path) -> None:
    days = pa.array([3, 1, 2, 4], pa.timestamp("s"))
    data = freshet.labels(
        graph(torch.tensor([1, 2, 3])), pa.table({"id": [1, 2, 3, 2], "label": [0, 1, 2, 3], "ts": days}), split="time"
    )
    assert data.y.tolist() == [0, 3, 2], "the newest label holds"
    assert (mask(data, "val_mask"), mask(data, "train_mask")) == ([1], [0, 2])
    ages = pa.table({"id": [1, 2], "label": [0, 1], "ts": [5, 5]})
    with pytest.raises(InputError, match=r"^labels: ts: no label is left for training"):
        freshet.labels(graph(torch.tensor([1, 2])), ages, split="time", share=0.5)
    with pytest.raises(InputError, match=r"^labels: no column ts, which split='time' needs"):
        freshet.labels(graph(torch.tensor([1, 2])), ages.drop(["ts"]), split="time")


def test_times_are_those_of_all_kinds() -> None:
    table = pa.table({"id": [7, 9, 7, 9], "kind": ["user", "user", "item", "item"], "label": [0, 0, 0, 0]})
    data = freshet.labels(kinds_graph(), table.append_column("ts", pa.array([1, 2, 3, 4])), split="time", share=0.5)
    assert (mask(data["user"], "train_mask"), mask(data["user"], "val_mask")) == ([0, 2], [])
    assert (mask(data["item"], "train_mask"), mask(data["item"], "val_mask")) == ([], [0, 1])


def test_kinds_have_labels_of_their_own() -> None:
    table = pa.table({"id": [7, 9, 7, 5], "kind": ["user", "item", "item", "user"], "label": [1, 2, 3, 0]})
    with pytest.warns(UserWarning, match="1 of 2 labelled ids are not in the graph, such as 5"):
        data = freshet.labels(kinds_graph(), table)
    assert data["user"].y.tolist() == [1, -1, -1] and data["item"].y.tolist() == [2, 3]
    assert data.labels_skipped == 1
    one = freshet.labels(kinds_graph(), table, kind="item")
    assert one["item"].y.tolist() == [2, 3] and "y" not in one["user"]
    two = freshet.labels(kinds_graph(), table.drop(["kind"]).slice(1, 1), kind="user")
    assert two["user"].y.tolist() == [-1, -1, 2] and "y" not in two["item"]


def test_a_kind_has_its_own_split() -> None:
    ids = torch.arange(1000)
    data = HeteroData()
    for kind in ("user", "item"):
        data[kind].x, data[kind].id = torch.zeros(1000, 1), ids
        freshet.labels(data, pa.table({"id": ids.numpy(), "label": np.zeros(1000, int)}), kind)
        assert mask(data[kind], "val_mask") == np.flatnonzero(by_hash(kind, pa.array(ids.numpy()), 0.2)).tolist()
    assert mask(data["user"], "val_mask") != mask(data["item"], "val_mask")


def test_an_id_may_repeat(tmp_path: Path) -> None:
    same = pa.table({"id": [1, 1, 2], "label": [4, 4, 5]})
    assert freshet.labels(graph(torch.tensor([1, 2])), same).y.tolist() == [4, 5]
    newer = pa.table({"id": [1, 1, 1], "label": [4, 6, 5], "ts": [1, 9, 3]})
    assert freshet.labels(graph(torch.tensor([1, 2])), newer).y.tolist() == [6, -1]


COLUMNS = {"id": [1, 2], "label": [0, 1]}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": [1, 2], "y": [0, 1]}, "no column label; expected id and label (and kind, ts); it has id"),
        ({"label": [1, 2]}, "no column id"),
        ({"id": [1, None], "label": [0, 1]}, "id: row 1: missing (null or NaN)"),
        ({"id": [1, 2], "label": [0, None]}, "label: row 1: missing (null or NaN); fill it, or drop the row"),
        ({"id": [1, 2], "label": [0, 0.5]}, "label: row 1: expected an integer of 64 bits, got 0.5"),
        ({"id": [1, 2], "label": [0, -1]}, "label: row 1: expected the number of a class, 0 or greater, got -1"),
        ({"id": [1, 2], "label": ["a", "b"]}, "label: expected integers, the numbers of classes, got string"),
        ({"id": [[1], [2]], "label": [0, 1]}, "id: expected integers of 64 bits or strings, got list<"),
        ({"id": ["1", "2"], "label": [0, 1]}, "id: expected integers, as the graph has, got string"),
        ({**COLUMNS, "ts": [1, None]}, "ts: row 1: missing (null or NaN)"),
        ({**COLUMNS, "ts": ["a", "b"]}, "ts: expected integers or timestamps, got string"),
        ({**COLUMNS, "kind": ["a", "b"]}, "kind: the graph has no kinds of vertices; leave it out"),
        (
            {"id": [2, 1, 2], "label": [0, 0, 1]},
            "id: row 2: 2 has the label 1, and 0 in row 0; expected one label for each vertex (a column ts says",
        ),
        ({"id": [9, 9], "label": [0, 1], "ts": [5, 5]}, "id: row 1: 9 has the label 1, and 0 in row 0; expected"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(columns: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = written(tmp_path, **columns)
    with pytest.raises(InputError) as raised:
        freshet.labels(graph(torch.tensor([1, 2])), path)
    assert str(raised.value).startswith(f"{path}: {said}")


def test_no_files_of_labels(tmp_path: Path) -> None:
    data = graph(torch.tensor([1]))
    with pytest.raises(InputError, match=r"L\.parquet: can't be read as labels: No such file or directory"):
        freshet.labels(data, tmp_path / "L.parquet")
    with pytest.raises(InputError, match="a folder; expected one file of labels"):
        freshet.labels(data, tmp_path)
    for name, said in (("L.csv", r"ends in \.parquet or \.arrow; read others by pandas"), ("L.parquet", "begins with")):
        (tmp_path / name).write_text("id,label\n1,2\n")
        with pytest.raises(InputError, match=said):
            freshet.labels(data, tmp_path / name)
    (tmp_path / "L.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"L\.parquet: can't be read as labels: "):
        freshet.labels(data, tmp_path / "L.parquet")
    twice = pa.table([pa.array([1]), pa.array([1]), pa.array([0])], ["id", "id", "label"])
    pq.write_table(twice, tmp_path / "L.parquet")
    with pytest.raises(InputError, match="1 names of columns are there twice, such as 'id'"):
        freshet.labels(data, tmp_path / "L.parquet")
    with pytest.raises(InputError, match="labels: expected a frame"):
        freshet.labels(data, 5)


def test_kinds_that_are_refused() -> None:
    table = pa.table(COLUMNS)
    with pytest.raises(
        InputError, match=r"^labels: no column kind; give kind=, or the column; the graph has user, item"
    ):
        freshet.labels(kinds_graph(), table)
    with pytest.raises(InputError, match=r"^kind: no kind 'shop'; the graph has user, item"):
        freshet.labels(kinds_graph(), table, "shop")
    with pytest.raises(InputError, match=r"^labels: kind: row 1: no kind 'shop'; the graph has user, item"):
        freshet.labels(kinds_graph(), table.append_column("kind", pa.array(["user", "shop"])))
    with pytest.raises(InputError, match=r"^kind: the graph has no kinds of vertices"):
        freshet.labels(graph(torch.tensor([1])), table, kind="user")


def test_graphs_and_options_that_are_refused() -> None:
    table = pa.table(COLUMNS)
    data = graph(torch.tensor([1]))
    for share in (-0.1, 1, float("nan")):
        with pytest.raises(InputError, match=r"^share: expected a number from 0 up to 1, without 1, got"):
            freshet.labels(data, table, share=share)
    with pytest.raises(InputError, match=r"^split: expected 'hash' or 'time', got 'random'"):
        freshet.labels(data, table, split="random")  # type: ignore[arg-type]
    for ids, said in (
        (None, "data: no id; expected the id of each vertex there"),
        (torch.tensor([0.5]), r"data\.id: expected integers or strings, got float"),
        ([1, "a"], r"data\.id: expected integers or strings: "),
    ):
        with pytest.raises(InputError, match=said):
            freshet.labels(Data(x=torch.zeros(1, 1), id=ids), table)
    with pytest.raises(InputError, match=r"data\.id: expected 2, one for each vertex, got 1"):
        freshet.labels(Data(x=torch.zeros(2, 1), id=torch.tensor([1])), table)
    assert "y" not in data


def test_no_share_for_validation_is_all_for_training() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = freshet.labels(graph(torch.tensor([1, 2])), pa.table(COLUMNS), share=0)
    assert data.train_mask.all() and not data.val_mask.any()
