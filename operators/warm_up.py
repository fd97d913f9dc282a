"""Compiles, or loads from numba's cache, every kernel of a job before its first event waits for them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import freshet.operators.sink.parquet_writer  # noqa: F401  # loaded by now, not amid the stream
from freshet.gnn.any_plan import AnyPlan, returned_of
from freshet.gnn.own.loading import install_layers
from freshet.kernels.processor import hold
from freshet.kinds import NO_MIRROR, Kinds
from freshet.operators.dataflow import FEATURES, PARTITIONER, LayerTasks, Place
from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.factory import make_outlet, open_network, plan_of
from freshet.operators.graph.layer_of_kinds import LayerOfKinds
from freshet.operators.parser.json_lines import guards
from freshet.operators.parser.text_tables import scan
from freshet.operators.settings import Settings
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import Events
from freshet.schema import NO_ATTR

_lock = threading.Lock()
_done: set[tuple[str, bool, bool, LayerTasks, str]] = set()


def warm_up(config: dict[str, Any]) -> None:
    """Take a few events of all kinds through throwaway cores of the job's shape; once per process and shape.

    Callers of other threads wait until it is done.
    Raises: ProcessorError when this process would compute other bits than the job has so far.
    """
    settings = Settings.from_dict(config)
    hold(settings.processor)
    with _lock:
        of = settings.model, bool(settings.inner_widths), bool(settings.outlet)
        shape = (*of, settings.task_parts, settings.id_kind)
        if shape not in _done:
            _run(settings)
            _done.add(shape)
            gc.freeze()  # what is loaded by now stays; looking through it again costs 2% of a stream's time


def _run(settings: Settings) -> None:
    install_layers(settings.layers)
    plan = plan_of(settings)
    plan.warm_up()
    if settings.outlet:
        for returned in returned_of(plan):
            make_outlet(settings, returned, 0).warm_up()
    take_events(replace(settings, image=""), plan, sinks=False)  # a Sink would write files


def take_events(settings: Settings, plan: AnyPlan, *, sinks: bool) -> None:
    """Take a few events of all kinds through the stages of a job, from its base image on if it has one."""
    image = settings.image_of(Place(PARTITIONER, 0))
    core = Partitioner(settings.parts, plan.features, settings.partitioning, settings.task_parts.of(FEATURES))
    sealing = SealingConfig(epoch_events=4, marker_interval_ms=1)
    partitioner = PartitionerStage(core, sealing, CutLog(), image, None, settings.sources)
    partitioner.restore(())
    network = open_network(settings, plan, sinks=sinks)
    guards.warm_up()
    scan.warm_up()
    events = throwaway_events(settings, plan)
    for at in range(0, len(events), 4):
        outcome = partitioner.receive(events.slice(at, at + 4).encode(), float(at * 10 + 1))
        network.run(Place(PARTITIONER, 0), outcome.messages)
    partitioner.close()
    network.close()  # or a Sink would still write


def throwaway_events(settings: Settings, plan: AnyPlan) -> Events:
    """Events of every kind and with every effect on the tables, in four epochs and two that wear a sum out.

    Where vertices have kinds, these for each relation whose messages differ from those of others.
    """
    ids: list[Any] = [1, 2, 3, 4] if settings.id_kind == "int" else ["a", "b", "c", "d"]
    features, kinds = plan.features, plan.features.kinds
    if kinds is not None:
        records = [
            record for number in _different_relations(plan, kinds) for record in _of_relation(kinds, number, ids)
        ]
    else:
        name = (plan.edge_types or ("type",))[0]
        records = _records(ids, np.ones(features.width, np.float32).tolist(), name, features.given_edge_width)
    return events_of(records, plan.features, settings.id_kind, plan.edge_types or None)


def _different_relations(plan: AnyPlan, kinds: Kinds) -> list[int]:
    """The relations, less those whose messages are computed and aggregated as those of an earlier one."""
    seen = dict[Any, int]()
    layers: Sequence[LayerOfKinds] = plan.layers
    for number, one in enumerate(kinds.relations):
        there = [
            (str(found.synopsis), found.edge, found.name)
            for layer in layers
            for found in layer.relations
            if number in found.numbers
        ]
        if one.mirrors == NO_MIRROR:
            seen.setdefault((*there, one.edge_width, one.source == one.target), number)
    return list(seen.values())


def _of_relation(kinds: Kinds, number: int, ids: list[Any]) -> Iterator[tuple[Any, ...]]:
    """The records for one relation: what is of vertices, of the kinds of both its ends."""
    one, name = kinds.relations[number], kinds.relation_names[number]
    attr = NO_ATTR, (1.0,) * one.edge_width + (0.0,) * (kinds.edge_width - one.edge_width)
    for op, first, *more in _records(ids, [1.0], name, one.edge_width):
        if op == "add_edge":
            yield op, first, more[0], (more[1] if len(more) > 1 else 1.0), name, *(attr if len(more) > 3 else ())
        elif op == "del_edge":
            yield op, first, more[0], name
        else:
            for kind in dict.fromkeys((one.source, one.target)):
                x = [more[0] * kinds.widths[kind]] if more else []
                yield op, ((kinds.names[kind], first) if kinds.are_named else first), *x


def _records(ids: list[Any], x: list[float], name: str, edge_width: int) -> list[tuple[Any, ...]]:
    """The rows of events, as `events_of` takes them."""
    a, b, c, d = ids
    records: list[tuple[Any, ...]] = [
        ("add_vertex", a, x),
        ("add_edge", a, b, 0.5),
        ("add_edge", b, c),
        ("add_edge", c, b),
        ("add_edge", d, b),
        ("add_edge", a, c, 1.0, name),
        ("add_edge", b, b),
        ("set_features", b, x),
        ("add_edge", a, b, 2.0),
        ("del_edge", b, c),
        ("del_edge", c, a),
        ("set_features", c, x),
        ("del_edge", a, c, name),
        ("del_vertex", b),
        ("add_vertex", a),
        ("add_vertex", c),
        ("add_edge", a, d),
        ("add_edge", c, d),
        ("set_features", c, x),
        ("set_features", a, [1e20] * len(x)),
        ("set_features", a, x),
        ("add_vertex", b),
        ("set_features", d, x),
        ("set_features", b, x),
    ]
    if edge_width:
        attr = NO_ATTR, (1.0,) * edge_width
        records.insert(10, ("add_edge", a, b, 2.0, None, *attr))
        records.insert(1, ("add_edge", a, b, 1.0, None, *attr))
    return records
