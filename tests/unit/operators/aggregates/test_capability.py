from dataclasses import dataclass

import pytest

from freshet.gnn.plan import compile_plan
from freshet.gnn.synopses.of_messages import InvertibleSynopsis, MonotonicSynopsis, Synopsis, synopsis_of
from freshet.operators.aggregates.capability import capability_of
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.aggregates.sums.store import SumStore
from tests.support.graphs.models import all_small_models


@dataclass(frozen=True)
class Median(Synopsis):
    """Nothing keeps one."""


def test_the_synopsis_chooses_its_kernels() -> None:
    assert capability_of(InvertibleSynopsis("mean")).store is SumStore
    assert capability_of(MonotonicSynopsis("max")).store is FoldStore
    assert capability_of(synopsis_of(("mean", "max"), weighted=False)).store is FoldStore
    with pytest.raises(TypeError, match="no storage keeps a Median"):
        capability_of(Median())


def test_only_sums_alone_are_scrubbed() -> None:
    """As docs/sums.md says: the other stores have no figures of a scrubber, since they have none."""
    layers = [layer for make in all_small_models().values() for layer in compile_plan(make()).layers]
    assert {capability_of(layer.synopsis).store for layer in layers} == {SumStore, FoldStore}
    for layer in layers:
        assert (capability_of(layer.synopsis).store is SumStore) == isinstance(layer.synopsis, InvertibleSynopsis)
    assert FoldStore.report is None
    assert isinstance(SumStore.report, property)
