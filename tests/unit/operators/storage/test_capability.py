from dataclasses import dataclass

import pytest

from gnn.synopses import InvertibleSynopsis, MonotonicSynopsis, Synopsis, synopsis_of
from operators.storage.capability import capability_of
from operators.storage.folds import FoldStore
from operators.storage.sums import SumStore


@dataclass(frozen=True)
class Median(Synopsis):
    """Nothing keeps one."""


def test_the_synopsis_chooses_its_kernels() -> None:
    assert capability_of(InvertibleSynopsis("mean")).store is SumStore
    assert capability_of(MonotonicSynopsis("max")).store is FoldStore
    assert capability_of(synopsis_of(("mean", "max"), weighted=False)).store is FoldStore
    with pytest.raises(TypeError, match="no storage keeps a Median"):
        capability_of(Median())
