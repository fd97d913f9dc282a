"""`freshet.write_snapshot` of frames and of PyTorch Geometric's data: what is read again, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet import write_snapshot
from freshet.errors import SnapshotError
from freshet.kinds import Kinds, Relation
from freshet.operators.snapshot.arrays import read_arrays
from freshet.operators.snapshot.kind_arrays import read_kinds

PEOPLE = {"id": ["a", "b", "c"], "age": [31, 32, 33], "income": [1.5, 2.0, 3.0]}
PAYMENTS = {"payer": ["a", "b", "c"], "payee": ["b", "c", "a"], "amount": [1.0, 2.0, 3.0]}
COLUMNS = {"x": ["age", "income"], "src": "payer", "dst": "payee", "weight": "amount"}
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "lazy": pl.LazyFrame, "arrow": pa.table}
FRAMES["batch"] = pa.RecordBatch.from_pydict
FRAMES["reader"] = lambda columns: pa.table(columns).to_reader()


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    return pq.read_table(folder / f"{name}.parquet").to_pylist()


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("as_pair", [True, False])
def test_frames_of_any_library_become_the_same_snapshot(library: str, as_pair: bool, tmp_path: Path) -> None:
    people, payments = FRAMES[library](PEOPLE), FRAMES[library](PAYMENTS)
    given: dict[str, Any] = {"data": (people, payments)} if as_pair else {"vertices": people, "edges": payments}
    made = write_snapshot(folder=tmp_path / "S", columns=COLUMNS, **given)
    assert (made.vertices, made.edges, made.features) == (3, 3, {"": 2})
    arrays = read_arrays(tmp_path / "S")
    assert np.array_equal(arrays.x, np.array([[31, 1.5], [32, 2], [33, 3]], np.float32))
    assert np.array_equal(arrays.edge_index, [[0, 1, 2], [1, 2, 0]])
    assert np.array_equal(arrays.edge_weight, [1, 2, 3])
    assert [one.name for one in tmp_path.iterdir()] == ["S"]
    assert "vertices                                3  features: 2" in repr(made)
    assert Path(made) == tmp_path / "S"


def test_columns_named_as_in_the_interface_are_taken_as_they_are(tmp_path: Path) -> None:
    vertices = pl.DataFrame({"id": [7, 9], "x": [[1, 2], [3, 4]], "label": [1, None]})
    edges = pl.DataFrame({"src": [7, 9], "dst": [9, 7], "attr": [[0.5], [1]], "type": ["p", "q"], "key": [None, 3]})
    write_snapshot((vertices, edges), tmp_path / "S")
    assert read(tmp_path / "S", "vertices")[1] == {"id": 9, "x": [3.0, 4.0], "label": None}
    assert read(tmp_path / "S", "edges")[1] == {"src": 9, "dst": 7, "type": "q", "attr": [1.0], "key": 3}
    assert pa.types.is_fixed_size_list(pq.read_schema(tmp_path / "S" / "edges.parquet").field("attr").type)


def test_a_named_index_of_pandas_is_a_column(tmp_path: Path) -> None:
    write_snapshot((pd.DataFrame(PEOPLE).set_index("id"), pd.DataFrame(PAYMENTS)), tmp_path / "S", columns=COLUMNS)
    assert [row["id"] for row in read(tmp_path / "S", "vertices")] == ["a", "b", "c"]


def test_times_and_whole_floats_are_integers(tmp_path: Path) -> None:
    edges = pd.DataFrame({"src": [1.0, 2.0], "dst": [2, 1], "ts": pd.to_datetime(["1970-01-02", None])})
    write_snapshot((pd.DataFrame({"id": [1, 2], "x": [[1.0], [2.0]]}), edges), tmp_path / "S")
    assert [(row["src"], row["ts"]) for row in read(tmp_path / "S", "edges")] == [(1, 86_400_000), (2, None)]


def test_frames_by_kind(tmp_path: Path) -> None:
    vertices = {"user": pd.DataFrame({"id": [1, 2], "age": [3, 4]}), "item": pl.DataFrame({"id": [1]})}
    edges = {
        ("user", "buys", "item"): pd.DataFrame({"who": [1, 2], "what": [1, 1]}),
        ("user", "likes", "item"): pl.DataFrame({"src": [1], "dst": [1], "attr": [[1.0, 2.0]]}),
    }
    columns = {"user": {"x": ["age"]}, ("user", "buys", "item"): {"src": "who", "dst": "what"}}
    made = write_snapshot(vertices=vertices, edges=edges, folder=tmp_path / "S", columns=columns)
    assert made.kinds == {"user": 2, "item": 1} and made.features == {"user": 1, "item": 0}
    assert made.relations == {("user", "buys", "item"): 2, ("user", "likes", "item"): 1}
    relations = (Relation(0, "buys", 1), Relation(0, "likes", 1, edge_width=2))
    found = read_kinds(tmp_path / "S", Kinds(("user", "item"), (1, 0), relations))
    assert found.ids == [[1, 2], [1]]
    assert [one.src.tolist() for one in found.graph.edges] == [[0, 1], [0]]
    assert "vertices user" in repr(made) and "<td>1</td>" in made._repr_html_()


def test_a_column_of_kinds(tmp_path: Path) -> None:
    vertices = pl.DataFrame({"id": [1, 1], "kind": ["user", "item"], "x": [[1.0, 2.0], [3.0]]})
    edges = pl.DataFrame({"src": [1], "dst": [1], "type": ["buys"], "src_kind": ["user"], "dst_kind": ["item"]})
    assert write_snapshot((vertices, edges), tmp_path / "S").features == {"user": 2, "item": 1}
    assert [row["x"] for row in read(tmp_path / "S", "vertices")] == [[1.0, 2.0], [3.0]]


def frames(**changes: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frames above with other columns; those of None are dropped."""
    people, payments = dict(PEOPLE), dict(PAYMENTS)
    for name, values in changes.items():
        of = payments if name in payments or name.startswith("e_") else people
        name = name.removeprefix("e_")
        of[name] = values
        if values is None:
            del of[name]
    return pd.DataFrame(people), pd.DataFrame(payments)


@pytest.mark.parametrize(
    ("changes", "columns", "message"),
    [
        ({}, {"dst": "payee"}, "edges: no column src; it has payer, payee, amount: name it by columns={'src': ...}"),
        ({}, {"src": "pay"}, "edges: no column 'pay', which columns names; it has payer, payee, amount"),
        ({}, {"payer": "src"}, "write {'src': 'payer'}"),
        ({}, {"weigth": "amount"}, "did you mean 'weight'?"),
        ({}, {"src": 3}, "columns: src: expected a name, got 3"),
        ({}, {"x": []}, "columns: x: expected a name, or a list of names, got []"),
        ({"id": None}, {}, "vertices: no column id; it has age, income: name it by columns={'id': ...}"),
        ({"id": None, "node": [1, 2, 3]}, {}, "name it by columns={'id': 'node'}"),
        ({"id": ["a", "b", None]}, {}, "vertices: id: row 2: missing (null or NaN)"),
        ({"id": ["a", "b", "a"]}, {}, "vertices: id: row 2: 'a' is there before; give each vertex once"),
        ({"id": ["a", "b", "c" * 1025]}, {}, "vertices: id: row 2: expected at most 1024 bytes, got 1025"),
        ({"id": [1, 2, 3]}, {}, "edges: src: expected ids of one type, as vertices: id (int64), got string"),
        ({"id": [1, 2, 2**63]}, {}, f"vertices: id: row 2: expected an integer of 64 bits, got {2**63}"),
        ({"id": [1.5, 2, 3]}, {}, "vertices: id: row 0: expected an integer of 64 bits, got 1.5"),
        ({"id": [True, False, True]}, {}, "vertices: id: expected integers of 64 bits or strings, got bool"),
        ({"id": ["a", 1, "b"]}, {}, "vertices: id: expected values of one type"),
        ({"age": [1, None, 3]}, {}, "vertices: age: row 1: missing (null or NaN)"),
        ({"age": [1, 2, np.inf]}, {}, "vertices: age: row 2: expected finite numbers in float32, got inf"),
        ({"age": [1, 2, 1e39]}, {}, "vertices: age: row 2: expected finite numbers in float32, got 1e+39"),
        ({"age": ["1", "2", "3"]}, {}, "vertices: age: expected numbers, got string"),
        ({"x": [[1], [2], [3, 4]]}, {"x": "x"}, "vertices: x: row 2: expected 1 numbers, as in row 0, got 2"),
        ({"x": [[1], [2], None]}, {"x": "x"}, "vertices: x: row 2: missing"),
        ({"x": [[1], [2], [np.nan]]}, {"x": "x"}, "vertices: x: row 2: expected"),
        ({"x": [["1"], ["2"], ["3"]]}, {"x": "x"}, "vertices: x: expected lists of numbers, got list<item: string>"),
        ({"x": [[], [], []]}, {"x": "x"}, "vertices: x: expected vertices with features, got none"),
        ({"amount": [1, 2, None]}, {}, "edges: amount: row 2: missing"),
        ({"payee": ["a", "b", None]}, {}, "edges: payee: row 2: missing"),
        ({"e_wieght": [1, 2, 3]}, {"weight": "amount", "type": None}, None),
        ({"e_edge_type": ["p", "q", "r"]}, {}, "edges: edge_type: no column of a snapshot; name it by columns={'type'"),
        ({"e_type": ["p", "q", ""]}, {}, "edges: type: row 2: expected a name, got an empty string"),
        ({"e_attr": [[1.0], [1.0, 2.0], [1.0]]}, {}, "edges: attr: expected as many numbers in each row, got 1, 2"),
        ({"e_src_kind": ["p", "q", "r"]}, {}, "edges: src_kind: the vertices have no kinds"),
        ({"kind": ["p", "q", "r"]}, {}, "edges: type: missing; edges between kinds of vertices need one"),
    ],
)
def test_what_is_wrong_is_refused_by_name_and_nothing_is_written(
    changes: dict[str, Any], columns: dict[str, Any], message: str | None, tmp_path: Path
) -> None:
    whole = COLUMNS | columns if columns != {"dst": "payee"} else {"x": ["age", "income"], **columns}
    if message is None:
        with pytest.warns(UserWarning, match="edges: wieght: left out, no columns of a snapshot"):
            write_snapshot(frames(**changes), tmp_path / "S", columns=whole)
        return
    with warnings.catch_warnings(), pytest.raises(SnapshotError) as caught:
        warnings.simplefilter("ignore")
        write_snapshot(frames(**changes), tmp_path / "S", columns=whole)
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_kinds_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    users = pd.DataFrame({"id": [1, 2], "x": [[1.0], [2.0]]})
    edges = pd.DataFrame({"src": [1], "dst": [2]})
    wrong: list[tuple[Any, Any, str]] = [
        ({"user": users}, edges, "edges: type: missing"),
        ({"user": users}, {("user", "knows", "item"): edges}, "dst_kind: expected one of the kinds user, got 'item'"),
        ({"user": users, "item": users.assign(id=["a", "b"])}, {"knows": edges}, "expected ids of one type"),
        ({"user": users}, {("user", "knows"): edges}, "expected frames by (source kind, type, target kind)"),
        ({"user": users.assign(kind="user")}, {"knows": edges}, "the frame is of the kind user"),
        ({}, edges, "vertices: expected a frame, or a frame for each kind, got an empty mapping"),
        (None, edges, "vertices: missing"),
        (
            users.assign(x=[1.0, 2.0]),
            edges,
            "vertices: x: expected lists of numbers, got double; one column is {'x': ['x']}",
        ),
        ([1, 2], edges, "vertices: expected a frame of pandas or polars or an Arrow table, got list"),
    ]
    for vertices, links, message in wrong:
        with pytest.raises(SnapshotError) as caught:
            write_snapshot(vertices=vertices, edges=links, folder=tmp_path / "S")
        assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_names_of_columns_are_a_mapping(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="columns: expected a mapping such as") as caught:
        write_snapshot(frames(), tmp_path / "S", columns=["src"])  # type: ignore[arg-type]
    assert caught.value.option == "columns"


def test_what_is_left_out_or_held_once_is_warned_of(tmp_path: Path) -> None:
    people, payments = frames(e_city=["x", "y", "z"], payer=["a", "a", "d"], payee=["b", "b", "a"])
    with pytest.warns(UserWarning) as said:
        write_snapshot((people, payments), tmp_path / "S", columns=COLUMNS)
    lines = [str(one.message) for one in said]
    assert lines[0] == "edges: city: left out, no columns of a snapshot"
    assert "1 of 6 ends of edges are no given vertices" in lines[1]
    assert "1 of 3 edges repeat the source, target and type" in lines[2]
    assert all(one.filename == __file__ for one in said)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_snapshot(frames(payee=["b", "c", "a"]), tmp_path / "T", columns=COLUMNS)


def test_edges_that_repeat_may_count_each(tmp_path: Path) -> None:
    write_snapshot(frames(payer=["a"] * 3, payee=["b"] * 3), tmp_path / "S", columns=COLUMNS, edge_keys=True)
    assert [row["key"] for row in read(tmp_path / "S", "edges")] == [None, 1, 2]
    assert len(read_arrays(tmp_path / "S").edge_weight) == 3


def test_only_a_snapshot_is_replaced_and_only_when_asked(tmp_path: Path) -> None:
    folder = tmp_path / "S"
    folder.mkdir()
    write_snapshot(frames(), folder, columns=COLUMNS)  # an empty one is taken
    with pytest.raises(SnapshotError, match="has files in it") as caught:
        write_snapshot(frames(), folder, columns=COLUMNS)
    assert caught.value.option == "folder"
    write_snapshot(frames(age=[7, 8, 9]), folder, columns=COLUMNS, overwrite=True)
    assert read(folder, "vertices")[0]["x"] == [7.0, 1.5]
    (folder / "notes.txt").touch()
    with pytest.raises(SnapshotError, match=r"notes\.txt is no file of a snapshot"):
        write_snapshot(frames(), folder, columns=COLUMNS, overwrite=True)
    with pytest.raises(SnapshotError, match="a file; expected a folder"):
        write_snapshot(frames(), folder / "notes.txt", columns=COLUMNS)
    assert [one.name for one in tmp_path.iterdir()] == ["S"]


def test_what_was_written_is_shown_without_being_taken_as_html(tmp_path: Path) -> None:
    made = write_snapshot(frames(), tmp_path / "<i>S", columns=COLUMNS)
    assert "<i>S" not in made._repr_html_() and "&lt;i&gt;S" in made._repr_html_()
