from dataclasses import dataclass

import pytest

from gnn.synopses import InvertibleSynopsis, Synopsis
from operators.storage.capability import capability_of
from operators.storage.sums import SumStore


@dataclass(frozen=True)
class Median(Synopsis):
    """Nothing keeps one."""


def test_the_synopsis_chooses_its_kernels() -> None:
    assert capability_of(InvertibleSynopsis("mean")).store is SumStore
    with pytest.raises(TypeError, match="no storage keeps a Median, expected an InvertibleSynopsis"):
        capability_of(Median())
