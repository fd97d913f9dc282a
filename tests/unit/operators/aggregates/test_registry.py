"""One table says which room keeps which synopsis."""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import dataclass
from importlib import import_module
from typing import get_args

import pytest

from freshet.gnn import synopses
from freshet.gnn.convs.base import Aggregator
from freshet.gnn.plan import compile_plan
from freshet.gnn.synopses.by_name import OF_NAMES, synopsis_of
from freshet.gnn.synopses.of_messages import GatedSynopsis, Synopsis
from freshet.gnn.synopses.redone import OfAllMessages
from freshet.gnn.synopses.softmax import Score, SoftmaxSynopsis
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.aggregates.registry import AGGREGATES, aggregate_of, is_known
from freshet.operators.aggregates.sums.store import SumStore
from freshet.operators.graph.edge_lists import EdgeLists
from freshet.operators.graph.part_rows import PartRows
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts
from tests.support.graphs.models import all_small_models


@dataclass(frozen=True)
class Median(Synopsis):
    """Nothing keeps one."""


def synopsis_classes() -> set[type[Synopsis]]:
    """All kinds of synopses of gnn/synopses."""
    found = set()
    for module in pkgutil.iter_modules(synopses.__path__):
        members = vars(import_module(f"{synopses.__name__}.{module.name}")).values()
        found |= {one for one in members if inspect.isclass(one) and issubclass(one, Synopsis)}
    return found - {Synopsis, OfAllMessages}


def test_each_synopsis_has_an_entry() -> None:
    assert synopsis_classes() == set(AGGREGATES)


def test_another_synopsis_is_refused_by_name() -> None:
    assert not is_known(Median())
    with pytest.raises(
        TypeError, match=r"nothing keeps a Median; .*registry\.py has ColumnsSynopsis, EdgeSoftmaxSynopsis, Gated"
    ):
        aggregate_of(Median())


def test_only_folds_of_messages_stand_beside_others() -> None:
    alone = {kind.__name__ for kind, aggregate in AGGREGATES.items() if aggregate.message_fold is None}
    assert alone == {"EdgeSoftmaxSynopsis", "GatedSynopsis", "NetworkSynopsis"}
    gated = GatedSynopsis(3)
    with pytest.raises(TypeError, match="a GatedSynopsis reads more of an edge than its message"):
        aggregate_of(gated).fold_of(TableSet(), "", 9, gated)
    softmax = SoftmaxSynopsis(Score("additive", 1, 2, 2, 3, 4))
    with pytest.raises(TypeError, match="a softmax of additive scores reads both ends of an edge"):
        aggregate_of(softmax).fold_of(TableSet(), "", 4, softmax)


def test_only_sums_alone_are_scrubbed() -> None:
    """As docs/design/sums.md says: the other stores have no figures of a scrubber, since they have none."""
    layers = [layer for make in all_small_models().values() for layer in compile_plan(make()).layers]
    stores = set()
    for layer in layers:
        at, tables = PartRows(0, TaskParts.dealt(1, 1)), TableSet()
        store = aggregate_of(layer.synopsis).store(tables, EdgeLists(tables, at, at, layer), layer, "storage 1 task 0")
        assert (type(store) is SumStore) == layer.synopsis.is_linear
        assert (store.report is not None) == layer.synopsis.is_linear
        stores.add(type(store))
    assert stores == {SumStore, FoldStore}


def test_each_aggregator_of_a_model_has_a_synopsis() -> None:
    assert set(OF_NAMES) == {*get_args(Aggregator), "mul"}
    for name in OF_NAMES:
        assert name.replace("mul", "product") in synopsis_of(name, weighted=False).name
