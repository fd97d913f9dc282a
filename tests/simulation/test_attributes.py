"""Edges whose attributes come, change and go in every way that differs, for each layer that reads them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.graphs.attributed import EDGE_WIDTH, attending, attributed_layers, gine
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.streams import to_events
from tests.support.simulation.changing_edges import HUB, LEAVES, TYPES, Changes, crashes_of
from tests.support.simulation.oracle import NO_FAULTS, assert_exact, cuts_of, job_settings, run

WIDTHS = {"edge_channels": EDGE_WIDTH}
MODELS = attributed_layers(IN_WIDTH) | {
    "gat_conv-loops-of-means": [attending("gat", IN_WIDTH, 4, heads=2), {"type": "elu"}, attending("gat", 4, 3)],
    "res_gated_graph_conv": [conv("res_gated_graph_conv", IN_WIDTH, 4, **WIDTHS), {"type": "relu"}, gine(4, 3)],
}


@pytest.mark.parametrize("name", MODELS)
def test_each_layer_is_exact_however_attributes_change_and_through_crashes(name: str) -> None:
    number = list(MODELS).index(name)
    crashes = [_crashes(name, seed) for seed in (number, number + 2)]  # in 1 and 3 parts, or in 2 and 4
    assert any(crashes)


def _crashes(name: str, seed: int) -> int:
    """Hold a job against the full pass and against itself without crashes; how many there were."""
    return crashes_of(make_model(seed, MODELS[name]), seed)


@pytest.mark.parametrize("parts", [1, 3])
def test_equal_bits_are_no_change(parts: int) -> None:
    """Nor is another weight, where no layer reads weights; with other attributes it is."""
    changes = Changes(parts)
    for k, leaf in enumerate(LEAVES):
        changes.add(leaf, HUB, TYPES[k % 3], 1.0, (0.0, -0.0, float(k)))
    first = list(changes.edges.items())
    sizes = [len(changes.records)]

    def epoch(**other: Any) -> None:
        for ends, (weight, attr) in first:
            changes.add(*ends, other.get("weight", weight), other.get("attr", attr))
        sizes.append(len(first))

    epoch()
    epoch(weight=2.0)
    epoch(attr=None)
    epoch(attr=(0.0, 0.0, 0.0))
    epoch()
    model = make_model(1, [attending("gatv2", IN_WIDTH, 4, heads=2), {"type": "relu"}, gine(4, 3)])
    events = to_events(changes.records, IN_WIDTH, edge_width=EDGE_WIDTH)
    simulation = run(job_settings(model, parts), model, events, cuts_of(sizes, len(events)), parts, NO_FAULTS)
    assert [bool(rows) for rows in simulation.rows().values()] == [True, False, False, True, False, True]
    assert assert_exact(model, events, simulation)[0] == 6 * len(changes.records[: sizes[0] - len(LEAVES)])
