"""The graph that an export takes out of any checkpoint of drawn jobs, and a new job that goes on behind it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from freshet.gnn.model import save_model
from freshet.operators.epochs.cut import FILES, Lane
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.live_graph import LiveState
from freshet.operators.settings import Settings
from freshet.operators.snapshot.reader import open_snapshot
from freshet.operators.snapshot.writer import write_live_graph
from freshet.partitioner.ids import NO_KEY
from freshet.partitioner.reference.graph import GraphArrays, ReferenceGraph, vertex_of
from freshet.schema import attr_of, kept_of
from freshet.state.codec import UnknownFormatError
from freshet.state.sweep import STATE_FORMAT
from tests.support.simulation.drawn import Case, draw, eager, simulate
from tests.support.simulation.lanes import lanes_of
from tests.support.simulation.oracle import events_between, references
from tests.support.simulation.pages import page_bytes
from tests.support.simulation.savepoint import load
from tests.support.simulation.simulator import Simulation
from tests.support.simulation.survivors import Checkpoint
from tests.support.stages.cuts import ends_by_epoch

SAVED = Path(__file__).resolve().parents[1] / "data" / "state" / f"format-{STATE_FORMAT}"
Graph = tuple[dict[object, bytes], dict[tuple[object, object, str, object], tuple[float, tuple[float, ...]]]]


def reference_at(case: Case, log: CutLog, epoch: int) -> ReferenceGraph:
    """The truth after an epoch."""
    begin = dict[Lane, int]()
    graph = ReferenceGraph(case.plan.features, case.settings.partitioning.rules)
    lanes = lanes_of(case.events, case.settings.topics)
    by_epoch = ends_by_epoch(log, case.settings.topics)
    for number in range(1, epoch + 1):
        ends = by_epoch[number]
        graph.apply(events_between(lanes, begin, ends))
        begin = ends
    return graph


def content(graph: ReferenceGraph) -> Graph:
    """Features by id, and weights and attributes by source, destination, type and key."""
    arrays: GraphArrays = graph.arrays()
    zeros = (0.0,) * graph.features.edge_width
    edges = {
        (src, vertex_of(dst), name, getattr(dst, "key", None)): (kept_of(values)[0], attr_of(values) or zeros)
        for name, edges in graph.edges.items()
        for src, ends in edges.out.items()
        for dst, values in ends.items()
    }
    return dict(zip(arrays.ids, map(np.ndarray.tobytes, arrays.x), strict=True)), edges


def live_content(live: LiveState) -> Graph:
    graph = live.graph()
    ids, x = graph.ids.to_list(), live.features(graph).matrix
    attr = map(tuple, graph.values.full_attr(live.core.features.edge_width).tolist())
    carried = zip(graph.values.weight.tolist(), attr, strict=True)
    ends = zip(graph.src.tolist(), graph.dst.tolist(), graph.etype.tolist(), carried, strict=True)
    keys = [None] * len(graph.src) if graph.edge_keys is None else graph.edge_keys.to_list()
    keys = [None if key in (NO_KEY, "") else key for key in keys]
    edges = {
        (ids[src], ids[dst], graph.types[etype], key): values
        for (src, dst, etype, values), key in zip(ends, keys, strict=True)
    }
    assert len(edges) == len(graph.src)
    return dict(zip(ids, map(np.ndarray.tobytes, x), strict=True)), edges


def checkpoints(case: Case) -> tuple[list[Checkpoint], CutLog]:
    """All checkpoints of a run of the case, and its cuts."""
    found: list[Checkpoint] = []

    def hook(simulation: Simulation) -> None:
        taken = simulation.take_snapshot

        def snapshot(place: tuple[str, int]) -> None:
            taken(place)
            if simulation._barrier_at is None:
                found.append(simulation.checkpoint)

        simulation.take_snapshot = snapshot  # type: ignore[method-assign]

    log = CutLog()
    simulate(case, log, case.seed, replace(case.faults, crashes=0), hook)
    return found, log


def restored(settings: Settings, log: CutLog, checkpoint: Checkpoint) -> LiveState:
    live = LiveState(settings, log)
    live.restore(lambda operator, part: checkpoint.states[operator, part].items())
    list(live.replay())
    return live


def test_every_checkpoint_has_the_graph_of_its_epoch_and_goes_on_in_another_number_of_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.operators.live_attributes._FORMER_MIN", 0)
    taken = replayed = finished = within_topics = undirected = timed = keyed = 0
    for seed in range(300, 322):
        case, folder = replace(eager(draw(seed)), snapshot=None), tmp_path / str(seed)
        save_model(case.plan_model, folder / "model")
        settings = replace(case.settings, model=str(folder / "model"))
        with page_bytes(case.page_bytes):
            found, log = checkpoints(case)
            for number, checkpoint in enumerate(found[:: max(1, len(found) // 4)]):
                live = LiveState(settings, log)
                live.restore(lambda operator, part, at=checkpoint: at.states[operator, part].items())  # type: ignore[misc]
                replayed += len(list(live.replay()))
                truth = reference_at(case, log, live.epoch)
                assert live_content(live) == content(truth), f"seed {seed}: epoch {live.epoch}"
                ends = ends_by_epoch(log, settings.topics)[live.epoch]
                finished += live.finish_messages()
                saved = written(settings, live, folder / f"images-{number}")
                go_on(case, settings, live, truth, folder / f"snapshot-{number}", ends)
                follows(case, saved, live, folder / f"later-{number}")
                taken += 1
                within_topics += bool(settings.topics)
                undirected += settings.partitioning.undirected
                timed += settings.partitioning.edge_ttl_ms > 0
                keyed += settings.partitioning.edge_keys != ""
    assert taken > 44
    assert replayed > 110
    assert finished > 2, "some epochs must end within a message"
    assert within_topics > 10
    assert undirected > 5
    assert timed > 5
    assert keyed > 5


def written(settings: Settings, live: LiveState, folder: Path) -> LiveState:
    """Return a graph as it is read from its images."""
    folder.mkdir(parents=True)
    live.write(folder)
    other = LiveState(settings, CutLog(), folder)
    other.load()
    assert live_content(other) == live_content(live)
    return other


def follows(case: Case, saved: LiveState, live: LiveState, folder: Path) -> None:
    """A graph that was written, and is written once more on its way, goes on as the one that it was written of."""
    some = next(iter(lanes_of(case.events, case.settings.topics).values()))
    half = len(some) // 2
    for events in (some.slice(0, half), some.slice(half, len(some))):
        if len(events):
            saved.apply(events)
            live.apply(events)
        folder = folder / "again"
        saved = written(saved.settings, saved, folder)
    assert live_content(saved) == live_content(live)


def go_on(
    case: Case, settings: Settings, live: LiveState, truth: ReferenceGraph, folder: Path, ends: dict[Lane, int]
) -> None:
    """The snapshot and the rest of the events, in another number of parts, lead to what the whole input leads to."""
    folder.mkdir()
    graph = live.graph()
    write_live_graph(folder, graph, live.features(graph), {"epoch": live.epoch, "event_ts": live.core.event_ts or 0})
    types, is_timed = case.plan.edge_types or None, live.core.event_ts is not None
    snapshot = open_snapshot(folder, case.plan.features, settings.id_kind, types, is_timed=is_timed)
    # A new job does not know the last times that came to the old one, so it may believe others.
    settings = replace(settings, partitioning=replace(settings.partitioning, ts_jump_ms=0))
    other = LiveState(replace(settings, parts=1 + settings.parts % 4), CutLog())
    other.restore(lambda operator, part: ())
    for block in snapshot.blocks(7):
        other.apply(block)
    assert live_content(other) == live_content(live), f"seed {case.seed}: the snapshot is not the graph"
    positions = {place if place[0] in settings.topics else FILES: offset for place, offset in live.positions.items()}
    lanes, firsts = lanes_of(case.events, settings.topics), {}
    for lane in sorted(lanes):
        sealed, events = ends.get(lane, 0), lanes[lane]
        # Epochs before the one that the replay begins behind are in `epochs/`, which simulations do not write.
        offset = positions.get(lane, int(events.position[sealed - 1]) if sealed else 0)
        firsts[lane] = int(np.searchsorted(events.position, offset, "right"))
        assert firsts[lane] >= sealed, "nothing is read twice"
    truth.apply(events_between(lanes, ends, firsts))
    truth.times.jump_ms = 0
    for lane in sorted(lanes):
        rest = lanes[lane].slice(firsts[lane], len(lanes[lane]))
        if len(rest):
            other.apply(rest)
            truth.apply(rest)
    assert live_content(other) == content(truth), f"seed {case.seed}: the new job comes to another graph"


def test_a_checkpoint_of_an_earlier_version(tmp_path: Path) -> None:
    saved = load(SAVED)
    log = saved.open_log(tmp_path / "cuts")
    live = restored(replace(saved.settings, model=str(SAVED / "model")), log, saved.checkpoint)
    assert live.epoch == saved.epoch
    truth = dict(references(saved.events, log, saved.settings))[saved.epoch]
    features, edges = live_content(live)
    assert features == dict(zip(truth.ids, map(np.ndarray.tobytes, truth.x), strict=True))
    ends = zip(truth.src.tolist(), truth.dst.tolist(), truth.values.weight.tolist(), strict=True)
    found = sorted((src, dst, weight) for (src, dst, *_), (weight, _) in edges.items())
    assert found == sorted((truth.ids[src], truth.ids[dst], weight) for src, dst, weight in ends)
    log.close()
    assert live.positions == {(0, 0): int(saved.events.position[log.cut_of(saved.epoch).end - 1])}
    graph = live.graph()
    assert graph.ids.kind == "string"
    assert set(graph.types) == {"", "a", "b"}


@pytest.mark.parametrize("missing", ["storage0", "partitioner"])
def test_state_of_another_format_is_refused(tmp_path: Path, missing: str) -> None:
    saved = load(SAVED)
    saved.checkpoint.states[missing, 0]["format"] = b"99"
    with pytest.raises(UnknownFormatError, match="state format 99"):
        restored(
            replace(saved.settings, model=str(SAVED / "model")), saved.open_log(tmp_path / "cuts"), saved.checkpoint
        )
