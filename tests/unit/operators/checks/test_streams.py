"""Tiny streams for models with kinds: breaks of convs of one's own are found by a few events, and no model is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from freshet.gnn.kind_layers.messages import MessageRelation, _EndsMessage
from freshet.gnn.kinds.model import KindsModel
from freshet.operators.aggregates.exact_sums import merge_partial_sums
from freshet.operators.checks.layers import check_streams
from freshet.operators.storage import partial_rows
from tests.support.graphs.kinds import (
    KINDS,
    hetero,
    kinds_model,
    many_relations,
    random_model_of_kinds,
    relation,
    sage_everywhere,
)
from tests.support.graphs.messages import messages_by_kind, relation_message

Patch = pytest.MonkeyPatch
EVENTS = ("add_vertex", "set_features", "del_vertex", "add_edge", "del_edge")


def of_a_kind(aggr: str) -> KindsModel:
    """A model of one relation, whose messages are those of a program."""
    kinds = {"user": 2, "item": 2}
    one = relation_message("weighted max" if aggr == "max" else "gate", 2, 2, 2)
    return kinds_model([hetero({0: one})], ["item"], kinds, [relation("user", "buys", "item")])


def wrong_end(patch: Patch) -> None:
    of = _EndsMessage.message
    patch.setattr(_EndsMessage, "message", lambda self, x, y, w, e: of(self, np.ascontiguousarray(x[:, ::-1]), y, w, e))


def whole_batch(patch: Patch) -> None:
    of = MessageRelation.update
    patch.setattr(MessageRelation, "update", lambda *given: (rows := of(*given)) - rows.mean(axis=0))


def added_parts(patch: Patch) -> None:
    of = partial_rows.aggregate_of
    patch.setattr(partial_rows, "aggregate_of", lambda one: replace(of(one), merger=lambda _: merge_partial_sums))


@pytest.mark.parametrize(("break_it", "aggr"), [(wrong_end, "mean"), (whole_batch, "mean"), (added_parts, "max")])
def test_a_break_is_found_by_at_most_six_events(
    break_it: Callable[[Patch], None], aggr: str, monkeypatch: Patch
) -> None:
    model = of_a_kind(aggr)
    assert check_streams(model, streams=6).answers[0].answer == "searched"
    break_it(monkeypatch)
    (answer,) = check_streams(model).answers
    assert answer.answer == "refuted" and answer.claim.startswith("streams along buys in several parts")
    *events, result = answer.case.splitlines()
    assert 1 <= len(events) <= 6, answer
    assert all(line.split()[0] in EVENTS for line in events) and result.startswith("vertex item ")


@pytest.mark.parametrize(
    "model",
    [
        lambda: messages_by_kind(2),
        lambda: many_relations(1),
        lambda: random_model_of_kinds(4),
        lambda: kinds_model([sage_everywhere(KINDS, 3)], ["shop", "item"]),
    ],
    ids=["programs", "many relations", "built-in", "several returned"],
)
def test_models_with_kinds_make_what_a_full_pass_makes(model: Callable[[], KindsModel]) -> None:
    (answer,) = check_streams(model(), streams=8).answers
    assert (answer.answer, answer.cases) == ("searched", 8), answer
