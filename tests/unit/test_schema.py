"""What edges and vertices carry, as opaque values: taken, joined, as columns and back."""

from __future__ import annotations

import numpy as np
import pytest

from freshet.kinds import Kinds, KindsError, Relation
from freshet.schema import (
    ATTR,
    PLAIN_EDGE,
    WEIGHT,
    EdgeValues,
    FeatureRows,
    Features,
    attr_of,
    attr_size,
    dropped_among,
    edge_row,
    kept_of,
)

ROWS = [(0.5, 2), PLAIN_EDGE, (1.0, -1), (-0.0, 0)]


def test_rows_and_columns_are_inverses() -> None:
    values = EdgeValues.of_rows(ROWS)
    assert values.rows() == ROWS
    assert EdgeValues.from_columns(values.columns(), len(values)).rows() == ROWS
    assert EdgeValues.from_columns(values.full_columns() | {"other": np.zeros(4)}, 4).rows() == ROWS
    assert [column.dtype for column in values.full_columns().values()] == [np.float32, np.int32]


@pytest.mark.parametrize("rows", [np.array([3, 0, 0]), np.array([], np.int64), slice(1, 3), slice(-9, 9), slice(3, 1)])
@pytest.mark.parametrize("given", [ROWS, [PLAIN_EDGE] * 4])
def test_values_are_taken_as_rows_are(given: list[tuple[float, ...]], rows: np.ndarray | slice) -> None:
    taken = EdgeValues.of_rows(given)[rows]
    expected = given[rows] if isinstance(rows, slice) else [given[row] for row in rows.tolist()]
    assert (len(taken), taken.rows()) == (len(expected), expected)


def test_attributes_go_with_their_edges() -> None:
    rows = [(0.5, -1, (1.0, 2.0)), (1.0, -1), (1.0, -1, (0.0, -3.0))]
    full = [(*row[:2], attr_of(row) or (0.0, 0.0)) for row in rows]
    values = EdgeValues.of_rows(rows)
    assert values.rows() == full
    assert EdgeValues.from_columns(values.columns(), 3).rows() == full
    assert values[np.array([2, 0])].rows() == [full[2], full[0]]
    both = EdgeValues.concatenate([EdgeValues.default(1), values[1:], EdgeValues.of_rows(rows[1:2])])
    assert both.rows() == [full[1], *full[1:], full[1]]
    assert [values.record(row) for row in range(3)] == [{WEIGHT: 0.5, ATTR: [1.0, 2.0]}, {}, {ATTR: [0.0, -3.0]}]
    assert values[1:2].columns() == {} and EdgeValues.default(2).full_attr(2).tolist() == [[0.0, 0.0]] * 2
    assert values.kept().tolist() == [[0.5, 1.0, 1.0]], "who keeps values of edges keeps no attributes"
    assert edge_row({}, [1.0]) == (*PLAIN_EDGE, (1.0,)) and edge_row({}) == PLAIN_EDGE


def test_joined_values_are_those_of_all_parts() -> None:
    parts = [EdgeValues.of_rows(ROWS[:1]), EdgeValues.default(2), EdgeValues.of_rows(ROWS[2:]), EdgeValues.default(0)]
    assert EdgeValues.concatenate(parts).rows() == [ROWS[0], PLAIN_EDGE, PLAIN_EDGE, *ROWS[2:]]
    assert not EdgeValues.concatenate([EdgeValues.default(2), EdgeValues.default(3)]).given


def test_defaults_travel_as_nothing() -> None:
    assert not EdgeValues.of_rows([PLAIN_EDGE, PLAIN_EDGE]).columns()
    assert not EdgeValues(2, {WEIGHT: np.ones(2, np.float32)}).columns()
    assert list(EdgeValues.of_rows([(1.0, 3)]).columns()) == [ATTR]


def test_the_graph_keeps_weights_alone() -> None:
    values = EdgeValues.of_rows(ROWS)
    assert values.kept().tolist() == [[0.5, 1, 1, 0]]
    assert values.kept().dtype == np.float32
    assert EdgeValues.of_kept(values.kept()).rows() == [(weight, -1) for weight, _ in ROWS]
    assert (values.dropped, EdgeValues.of_rows(ROWS[1:3]).dropped, EdgeValues.default(3).dropped) == (2, 0, 0)
    assert dropped_among(["src", "attr", "weight"]) == [ATTR]
    assert [values.record(row) for row in range(4)] == [{WEIGHT: 0.5}, {}, {}, {WEIGHT: 0.0}]


def test_a_single_kept_value_is_not_copied() -> None:
    weight = np.arange(3, dtype=np.float32)
    assert np.shares_memory(EdgeValues(3, {WEIGHT: weight}).kept(), weight)


@pytest.mark.parametrize(("rows", "is_view"), [([1, 2, 3], True), ([2], True), ([3, 1, 1], False), ([2, -2, 0], False)])
def test_feature_rows_are_taken_with_zeros_for_none(rows: list[int], is_view: bool) -> None:
    x = FeatureRows(np.arange(1, 9, dtype=np.float32).reshape(4, 2))
    taken = x.take(np.array(rows, np.int32))
    assert taken.matrix.tolist() == [x.matrix[row].tolist() if row >= 0 else [0, 0] for row in rows]
    assert np.shares_memory(taken.matrix, x.matrix) == is_view
    assert (len(x.take(np.empty(0, np.int32))), taken.features) == (0, Features(2))


def test_feature_rows_and_columns_are_inverses() -> None:
    features = Features(2)
    x = FeatureRows.of([features.row([1, 2]), features.row((3.0, 4.0))], features)
    both = FeatureRows.concatenate([x, FeatureRows.of([], features), x[1:]])
    assert both.matrix.tolist() == [[1, 2], [3, 4], [3, 4]]
    back = FeatureRows.from_columns(both.columns("x0"), "x0", features)
    assert back.matrix.tobytes() == both.matrix.tobytes()
    assert FeatureRows.from_columns({}, "x0", Features(5)).features == Features(5)


def test_a_single_edge_has_defaults_where_nothing_is_given() -> None:
    assert edge_row({}) is PLAIN_EDGE
    assert edge_row({ATTR: 2}) == (1, 2) and edge_row({WEIGHT: 0.5}) == (0.5, -1)
    assert [attr_size(row) for row in ROWS] == [2, -1, -1, 0]
    assert [kept_of(row) for row in ROWS] == [[0.5], [1], [1.0], [0.0]]


KINDS = Kinds(("user", "item", "none"), (2, 3, 0), (Relation(0, "buys", 1, edge_width=2), Relation(0, "knows", 0)))


def test_rows_of_several_kinds_are_taken_joined_and_moved_as_those_of_one() -> None:
    features = Features.of_kinds(KINDS)
    plain = [(0, [1.0, 2.0]), (1, [3.0, 4.0, 5.0]), (2, []), (1, [6.0, 7.0, 8.0]), (0, [9.0, 10.0])]
    x = FeatureRows.of([features.row(row, kind) for kind, row in plain], features)

    def rows_of(some: FeatureRows) -> list[tuple[int, list[float]]]:
        assert some.several is not None
        return [(int(kind), some.row(k).tolist()) for k, kind in enumerate(some.several.kind)]

    assert (rows_of(x), x.widths, len(x)) == (plain, (2, 3, 0), 5)
    for rows in (slice(1, 4), slice(4, 2), slice(0, 99), np.array([3, 0, 0, 2]), np.empty(0, np.int64)):
        expected = plain[rows] if isinstance(rows, slice) else [plain[k] for k in rows.tolist()]
        assert rows_of(x[rows]) == expected
    assert rows_of(FeatureRows.concatenate([x[:2], FeatureRows.none(features), x[2:]])) == plain
    for some in (x, x[:0]):
        columns = {"other": np.zeros(1)} | {name: one for name, one in some.columns("x").items() if one.size}
        assert rows_of(FeatureRows.from_columns(columns, "x", Features(7))) == rows_of(some)
    assert x.of_kind(1, np.array([3, -1, 1])).matrix.tolist() == [[6, 7, 8], [0, 0, 0], [3, 4, 5]]
    kind = np.array([kind for kind, _ in plain])
    by_kind = [np.array([row for k, row in plain if k == code], np.float32) for code in range(3)]
    assert rows_of(FeatureRows.of_kinds(kind, by_kind, features)) == plain
    assert str(features) == "2 features of user, 3 features of item, 0 features of none, 2 of each edge"
    assert (str(Features(3)), str(Features(3, 1)), features.row_bytes) == (
        "3 features",
        "3 features, 1 of each edge",
        12,
    )


def test_kinds_that_contradict_each_other_are_refused() -> None:
    buys, back = Relation(0, "buys", 1), Relation(1, "back", 0, mirrors=0)
    bad = [
        (("a", "a"), (1, 1), (buys,), "distinct names"),
        (("a", "b"), (1,), (buys,), "each with a width"),
        (("a", ""), (1, 1), (buys,), "expected a name for each of several"),
        (("a", "b"), (1, 1), (), "expected one or more, all distinct"),
        (("a", "b"), (1, 1), (buys, buys), "all distinct"),
        (("a", "b"), (1, 1), (Relation(0, "", 1),), "expected a type between kinds 0 to 1"),
        (("a", "b"), (1, 1), (Relation(0, "x", 2),), "expected a type between kinds 0 to 1"),
        (("a", "b"), (1, 1), (buys, Relation(0, "back", 1, mirrors=0)), "'back' mirrors no relation from its target"),
        (("a", "b"), (1, 1), (buys, Relation(1, "back", 0, mirrors=5)), "'back' mirrors no relation from its target"),
        (("a", "b"), (1, 1), (buys, back, Relation(0, "again", 1, mirrors=1)), "'again' mirrors no relation"),
        (("a", "b"), (1, 1), (buys, back, Relation(1, "too", 0, mirrors=0)), "'buys' has 2 mirrors, expected one"),
        (("a", "b"), (1, 1), (buys, Relation(1, "back", 0, edge_width=2, mirrors=0)), "attributes of another width"),
        (tuple(map(str, range(101))), (1,) * 101, (buys,), "expected 1 to 100"),
    ]
    for names, widths, relations, why in bad:
        with pytest.raises(KindsError, match=why):
            Kinds(names, widths, relations)


def test_names_and_fields_of_relations_say_them_alone() -> None:
    kinds = Kinds(
        ("a", "b"),
        (1, 1),
        (Relation(0, "to", 1), Relation(1, "to", 0), Relation(0, "in", 0), Relation(1, "to_too", 0, mirrors=0)),
    )
    assert kinds.relation_names == ("a,to,b", "b,to,a", "in", "to_too")
    assert [kinds.fields_of(k) for k in (1, 2)] == [{"type": "to", "src_kind": "b", "dst_kind": "a"}, {"type": "in"}]
    assert (kinds.types, kinds.type_says_all, kinds.mirrors().tolist()) == (["to", "in"], False, [3, -1, -1, -1])
    same = Kinds(("a", "b"), (1, 1), (Relation(0, "to", 1), Relation(1, "to", 0, mirrors=0)))
    assert (same.types, same.type_says_all, same.matching("to", 1, None)) == (["to"], True, [1])
