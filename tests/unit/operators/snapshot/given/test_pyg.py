"""`freshet.write_snapshot` of Data and HeteroData."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from freshet import write_snapshot
from freshet.errors import SnapshotError
from freshet.kinds import Kinds, Relation
from freshet.operators.snapshot.arrays import read_arrays
from freshet.operators.snapshot.kind_arrays import read_kinds

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric")

EDGES = [[0, 1, 1, 3], [1, 2, 2, 0]]  # one of which is there twice


def data(**more: Any) -> Any:
    given = {"x": torch.arange(8.0).reshape(4, 2), "edge_index": torch.tensor(EDGES)} | more
    return pyg.data.Data(**{name: value for name, value in given.items() if value is not None})


def shop() -> Any:
    found = pyg.data.HeteroData()
    found["user"].x = torch.arange(6.0).reshape(3, 2)
    found["user"].y = torch.tensor([0, 1, 0])
    found["item"].num_nodes = 2
    found["user", "buys", "item"].edge_index = torch.tensor([[0, 1, 1], [1, 0, 0]])
    found["user", "buys", "item"].edge_attr = torch.tensor([[0.5], [0.25], [0.75]])
    found["item", "rev_buys", "user"].edge_index = torch.tensor([[0, 1, 0], [1, 0, 1]])
    return found


def test_edges_count_as_often_as_they_do_there(tmp_path: Path) -> None:
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    given = data(edge_weight=weight, edge_attr=torch.ones(4, 3), y=torch.tensor([[0], [1], [0], [2]]))
    made = write_snapshot(given, tmp_path / "S")
    arrays = read_arrays(tmp_path / "S")
    assert np.array_equal(arrays.x, given.x.numpy())
    order = np.lexsort(arrays.edge_weight[None])
    assert np.array_equal(arrays.edge_index[:, order], EDGES)
    assert np.array_equal(arrays.edge_weight[order], weight) and np.array_equal(arrays.edge_attr, np.ones((4, 3)))
    assert pq.read_table(tmp_path / "S" / "vertices.parquet")["label"].to_pylist() == [0, 1, 0, 2]
    assert made.remarks == ("1 edges repeat one before them, and count each: they have keys",)


@pytest.mark.parametrize(
    ("more", "columns", "expected"),
    [
        ({"edge_attr": torch.ones(4)}, {}, {"weight"}),
        ({"edge_attr": torch.ones(4, 1)}, {}, {"attr"}),
        ({"edge_attr": torch.ones(4), "edge_weight": torch.ones(4)}, {}, {"weight", "attr"}),
        ({"edge_weight": torch.ones(4, 1)}, {}, {"weight"}),
        ({"edge_attr": torch.ones(4)}, {"attr": "edge_attr"}, {"attr"}),
        ({"edge_attr": torch.ones(4, 1)}, {"weight": "edge_attr"}, {"weight"}),
        ({"edge_attr": torch.ones(4, 2)}, {"attr": None}, set()),
        ({"amount": torch.ones(4)}, {"weight": "amount"}, {"weight"}),
        ({"edge_type": torch.tensor([0, 1, 1, 0])}, {}, {"type"}),
    ],
)
def test_what_stands_at_edges(
    more: dict[str, Any], columns: dict[str, Any], expected: set[str], tmp_path: Path
) -> None:
    made = write_snapshot(data(**more), tmp_path / "S", columns=columns)
    assert set(made.edge_columns) - {"src", "dst", "key"} == expected


@pytest.mark.parametrize("ids", [[5, 6, 7, 8], np.array([5, 6, 7, 8], np.int32), torch.tensor([5, 6, 7, 8])])
def test_ids_of_integers(ids: Any, tmp_path: Path) -> None:
    write_snapshot(data(), tmp_path / "S", ids)
    assert pq.read_table(tmp_path / "S" / "edges.parquet")["src"].to_pylist() == [5, 6, 6, 8]


def test_ids_of_strings_and_names_of_types(tmp_path: Path) -> None:
    given = data(edge_type=torch.tensor([0, 1, 1, 0]))
    write_snapshot(given, tmp_path / "S", ids=["a", "b", "c", "d"], edge_types=["cites", "likes"])
    edges = pq.read_table(tmp_path / "S" / "edges.parquet")
    assert edges["src"].to_pylist() == ["a", "b", "b", "d"]
    assert edges["type"].to_pylist() == ["cites", "likes", "likes", "cites"]


def test_kinds_without_those_relations_that_follow_by_themselves(tmp_path: Path) -> None:
    ids = {"user": ["u", "v", "w"], "item": ["p", "q"]}
    made = write_snapshot(shop(), tmp_path / "S", ids)
    assert made.relations == write_snapshot(shop(), tmp_path / "S2", ids, mirrors={"rev_buys": "buys"}).relations
    assert ("item", "rev_buys", "user") in write_snapshot(shop(), tmp_path / "S3", ids, mirrors={}).relations
    assert made.kinds == {"user": 3, "item": 2} and made.relations == {("user", "buys", "item"): 3}
    relations = (Relation(0, "buys", 1, edge_width=1), Relation(1, "rev_buys", 0, mirrors=0))
    found = read_kinds(tmp_path / "S", Kinds(("user", "item"), (2, 0), relations))
    assert found.ids == [["u", "v", "w"], ["p", "q"]]
    assert sorted(found.graph.edges[0].values.attr.reshape(-1)) == [0.25, 0.5, 0.75]
    assert pq.read_table(tmp_path / "S" / "vertices.parquet")["label"].to_pylist() == [0, 1, 0, None, None]


@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        ({"edge_index": torch.tensor([[0, 4], [1, 2]])}, {}, "column 1: expected a source from 0 to 3, got 4"),
        ({"edge_index": torch.tensor([[0, 1], [1, -1]])}, {}, "column 1: expected a target from 0 to 3, got -1"),
        ({"edge_index": torch.ones(3, 2).long()}, {}, "edge_index: expected the shape (2, edges), got (3, 2)"),
        ({"edge_index": torch.ones(2, 2)}, {}, "edge_index: expected integers, got float32"),
        ({"edge_index": None}, {}, "edge_index: missing"),
        ({"x": None, "num_nodes": 4}, {}, "x: missing; vertices need features"),
        ({"x": torch.ones(4)}, {}, "x: expected a row of features for each vertex (2 dimensions), got (4,)"),
        ({"x": torch.tensor([[1.0, torch.nan]] * 4)}, {}, "x: row 0: expected finite numbers in float32, got nan"),
        (
            {"x": torch.full((4, 1), 1e300, dtype=torch.float64)},
            {},
            "x: row 0: expected finite numbers in float32, got 1e+300",
        ),
        ({"edge_weight": torch.ones(3)}, {}, "edge_weight: expected a row for each of 4 edges, got (3,)"),
        ({"edge_weight": torch.ones(4, 2)}, {}, "edge_weight: expected a number for each of 4 edges, got (4, 2)"),
        ({"edge_attr": torch.full((4, 2), torch.inf)}, {}, "edge_attr: row 0: expected finite numbers"),
        ({"edge_type": torch.tensor([0, 1, 2, 0])}, {"edge_types": ["p", "q"]}, "expected numbers from 0 to 1"),
        ({}, {"ids": [1, 2, 3]}, "ids: expected 4, one for each vertex, got 3"),
        ({}, {"ids": [1, 2, 3, 3]}, "id: row 3: 3 is there before"),
        ({}, {"ids": ["a", 2, 3, 4]}, "ids: expected integers of 64 bits or strings"),
        ({}, {"columns": {"x": "feat"}}, "no attribute 'feat', which columns names"),
        ({}, {"mirrors": {"rev": "to"}}, "mirrors: goes with HeteroData"),
        ({}, {"vertices": 1}, "data: goes without vertices and edges"),
    ],
)
def test_what_is_wrong_is_refused(more: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError) as caught:
        write_snapshot(data(**more), tmp_path / "S", **options)
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_what_is_wrong_with_kinds_is_refused(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ids": [1, 2]}, "ids: expected a mapping by kind"),
        ({"ids": {"shop": [1]}}, "ids: 'shop': no kind of the data, which has user, item"),
        ({"mirrors": {"rev": "buys"}}, "mirrors: there is no relation 'rev'"),
        ({"mirrors": {"buys": "buys"}}, "'item') does not run between the ends of 'buys' the other way round"),
    ]
    for options, message in wrong:
        with pytest.raises(SnapshotError) as caught:
            write_snapshot(shop(), tmp_path / "S", **options)
        assert message in str(caught.value)


def test_labels_that_are_no_classes_are_left_out_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="y is left out: labels of a snapshot are numbers of classes"):
        write_snapshot(data(y=torch.rand(4)), tmp_path / "S")
    assert "label" not in pq.read_schema(tmp_path / "S" / "vertices.parquet").names


def test_a_mirror_by_its_name_with_other_edges_is_refused(tmp_path: Path) -> None:
    given = shop()
    given["item", "rev_buys", "user"].edge_index = torch.tensor([[0], [0]])
    with pytest.raises(SnapshotError, match=r"'rev_buys' does not have the edges of 'buys'.*give mirrors=\{\}"):
        write_snapshot(given, tmp_path / "S")
