"""Convs that were read, their messages by hand, and written layers: in 1 to 4 parts, exact through crashes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.graphs.attributed import EDGE_WIDTH
from tests.support.graphs.messages import message_layers, weighed_attributes, written_models
from tests.support.graphs.models import IN_WIDTH, make_model
from tests.support.simulation.changing_edges import crashes_of, pyg_pass

LAYERS = message_layers(IN_WIDTH) | weighed_attributes(IN_WIDTH)
MAKERS = written_models(IN_WIDTH) | {
    name: partial(make_model, seed, layers) for seed, (name, layers) in enumerate(LAYERS.items())
}
READ: dict[str, tuple[tuple[Any, ...], str]] = {  # its arguments behind the width of rows, and what it reads of edges
    "GatedConv": ((5,), ""),
    "DifferenceConv": ((3,), ""),
    "AttentionConv": ((3,), ""),
    "EdgeMeanConv": ((3, EDGE_WIDTH), "attr"),
    "PlainConv": ((3,), "weight"),
    "DegreeConv": ((3, "add_self_loops"), ""),
    "LoopsConv": ((3, "add_self_loops"), "weight"),
    "FiveConvs": ((EDGE_WIDTH,), "attr"),
    "WeighedAttributesConv": ((3, EDGE_WIDTH), "weight attr"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_messages_of_ones_own_are_exact_through_crashes(name: str) -> None:
    first = list(MAKERS).index(name) % 2
    assert any([crashes_of(MAKERS[name](), seed) for seed in (first, first + 2)])  # in 1 and 3 parts, or in 2 and 4


@pytest.mark.parametrize("name", READ)
def test_a_conv_that_was_read_is_what_pyg_computes_in_float64(name: str, tmp_path: Path) -> None:
    """After every epoch, of a stream with deletions."""
    pytest.importorskip("torch_geometric")
    import torch

    from freshet.gnn.pyg.export import export_model
    from tests.support.graphs import read_convs

    torch.manual_seed(5)
    more, reads = READ[name]
    module: Any = getattr(read_convs, name)(IN_WIDTH, *more).eval()
    model = export_model(module, tmp_path, features=IN_WIDTH, edge_features=EDGE_WIDTH if "attr" in reads else None)
    by_pyg = pyg_pass(module.double(), reads)
    # In 1 to 4 parts, in turn; the longest one in 2 and 3.
    seeds = (1, 2) if name == "FiveConvs" else (list(READ).index(name) % 4,)
    assert all([crashes_of(model, seed, by_pyg) for seed in seeds])
