"""What if, of drawn jobs: rows after events that are tried equal a full pass after them, and nothing of them stays."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from freshet.gnn.any_plan import inner_plan
from freshet.gnn.model import Model, ModelError, save_model
from freshet.gnn.oracles import own_scale, whole_graph
from freshet.gnn.oracles.scaled import Scaled
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.live_graph import LiveState
from freshet.operators.what_if.core import ReachError, RefusalError, WhatIf
from freshet.partitioner.events import OP_DEL_VERTEX, Events
from freshet.partitioner.ids import Ids
from freshet.partitioner.reference.graph import ReferenceGraph
from tests.simulation.test_export import Graph, content, live_content
from tests.support.graphs.kind_reference import KindGraph
from tests.support.graphs.kinds import text_id
from tests.support.simulation.drawn import Case, draw
from tests.support.simulation.drawn_kinds import BY_DEGREES, MANY, MESSAGES, WRITTEN, draw_kinds, kinds_of
from tests.support.simulation.oracle import TOLERANCE, compare

MOST = 10**6


def tried(events: Events) -> Events:
    """What of a stream's events may be tried: those that need no time, and delete no vertex."""
    return replace(events.only(events.op != OP_DEL_VERTEX), ts=None)


def pieces(case: Case) -> Iterator[tuple[slice, slice]]:
    """Events that are applied, and then some that are tried; these are applied later, with others."""
    step = max(5, len(case.events) // 6)
    for k, begin in enumerate(range(0, len(case.events), step)):
        yield slice(begin, begin + step), slice(begin + step, begin + step + 1 + k % 4)


def opened(case: Case, folder: Path, inner: Computed | None = None) -> tuple[LiveState, WhatIf]:
    save_model(case.plan_model, folder / "model")
    widths = {} if inner is None else inner.widths(case)
    live = LiveState(replace(case.settings, model=str(folder / "model"), inner_widths=widths), CutLog())
    live.restore(lambda operator, part: ())
    return live, WhatIf(live, case.plan, inner)


class Computed:
    """Rows of the last inner layer, as a job with `--embeddings asked` writes them."""

    def __init__(self, case: Case) -> None:
        self._plan, self._rows = case.plan, np.zeros((0, 0), np.float32)
        self._places: dict[int | str, int] = {}

    @staticmethod
    def widths(case: Case) -> dict[str, int]:
        """Empty where the case can't be such a job."""
        try:
            return dict(inner_plan(case.plan).out)
        except ModelError:
            return {}

    def follow(self, truth: ReferenceGraph) -> None:
        arrays = truth.arrays()
        self._rows = whole_graph.forward(self._plan, arrays.graph)[-2]
        self._places = {id_: place for place, id_ in enumerate(arrays.ids)}

    def __call__(self, kind: int, ids: Ids) -> np.ndarray:
        return self._rows[[self._places[id_] for id_ in ids.to_list()]]


def weights(graph: Graph) -> tuple[object, object]:
    """Features, and weights of edges; the attributes are those that rows are computed of."""
    return graph[0], {edge: weight for edge, (weight, _) in graph[1].items()}


class Held:
    """Counts what was held against full passes."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hold(
        self, what: WhatIf, events: Events, kind: int, ids: list[int | str], wanted: Scaled | None, seed: int
    ) -> None:
        """`wanted`: None where the job would reject an event."""
        asked = Ids.of(events.a.kind, ids)
        if wanted is None:
            with pytest.raises(RefusalError):
                what.ask(events, kind, asked, MOST)
            self.counts["refused"] += 1
            return
        found = what.ask(events, kind, asked, MOST)
        assert found.there.all()
        if ids:
            compare(found.rows, wanted, ids, seed, bitwise=False)
        self.counts["rows"] += len(ids)
        self.counts["redone"] += found.redone
        if found.redone > 1:
            with pytest.raises(ReachError):
                what.ask(events, kind, asked, 0)
            self.counts["too far"] += 1


def of_one_kind(seed: int, folder: Path, held: Held) -> None:
    case = draw(seed)
    assert isinstance(case.plan_model, Model)
    truth = ReferenceGraph(case.plan.features, case.settings.partitioning.rules)
    inner = Computed(case) if seed % 2 and Computed.widths(case) else None
    held.counts["computed"] += inner is not None
    live, what = opened(case, folder, inner)
    for known, more in pieces(case):
        for graph in (live, truth):
            graph.apply(case.events.slice(known.start, known.stop))
        if inner is not None:
            inner.follow(truth)
        while what.refresh(3) and seed % 3 == 0:
            pass
        for events in (tried(case.events.slice(more.start, more.stop)), tried(case.events.slice(0, 0))):
            after = copy.deepcopy(truth)
            after.apply(events)
            arrays = after.arrays()
            wanted = own_scale.forward(case.plan_model, arrays.graph, tolerance=TOLERANCE)
            held.hold(what, events, 0, arrays.ids, wanted if after.rejected == truth.rejected else None, seed)
            assert weights(live_content(live)) == weights(content(truth)), f"seed {seed}: something has stayed"
    live.close()


@pytest.mark.parametrize("first", range(0, 90, 30))
def test_rows_after_tried_events_equal_a_full_pass(first: int, tmp_path: Path) -> None:
    held = Held()
    for seed in range(first, first + 30):
        of_one_kind(seed, tmp_path / str(seed), held)
    assert held.counts["computed"] > 2, held.counts
    assert held.counts["rows"] > 500 and held.counts["redone"] > 50 and held.counts["too far"] > 10, held.counts


def of_kinds(seed: int, family: int, folder: Path, held: Held) -> None:
    case = draw_kinds(seed, family)
    kinds, options = kinds_of(case), case.settings.partitioning
    truth = KindGraph(kinds, keyed=options.edge_keys != "", one_loop=options.one_loop_relations)
    case_with_model = replace(case, plan_model=case.trained)
    live, what = opened(case_with_model, folder)
    id_of = text_id if case.strings else int
    (returned,) = case.trained.out
    for known, more in pieces(case):
        live.apply(case.events.slice(known.start, known.stop))
        truth.apply(list(case.rows[known]), [])
        rows = [row for row in case.rows[more] if row[0] != "del_vertex"]
        after = copy.deepcopy(truth)
        after.apply(rows, [])
        ids, wanted = case.wanted(case.trained, after, id_of)
        before = case.wanted(case.trained, truth, id_of)
        events = tried(case.events.slice(more.start, more.stop))
        named = [id_of(one) for one in ids]
        held.hold(what, events, list(kinds.names).index(returned), named, None if after.rejected else wanted, seed)
        named = [id_of(one) for one in before[0]]
        held.hold(what, events.slice(0, 0), list(kinds.names).index(returned), named, before[1], seed)
    live.close()


@pytest.mark.parametrize("family", [0, MANY, BY_DEGREES, MESSAGES, WRITTEN])
def test_rows_of_kinds_after_tried_events_equal_a_full_pass(family: int, tmp_path: Path) -> None:
    held = Held()
    for seed in range(15):
        of_kinds(seed, family, tmp_path / str(seed), held)
    assert held.counts["rows"] > 100, held.counts
