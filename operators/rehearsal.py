"""Plays small jobs of every shape in plain Python and lists their kernels: `python -m freshet.operators.rehearsal`.

With `--model FOLDER` those of that model alone, in one part or with `--several-parts` in several, and with
`--many-parts` also in more than have columns (state/task_parts.py); with `--ids KIND` of one kind of ids, with
`--no-topic` without what goes to a topic, and with `--layers MODULE` with layers that a user wrote.

What is noted is what `freshet warm-up` compiles, so whatever decides the types that a kernel gets must differ between
these jobs: kinds of ids, one part or several in a task, weights, a base image, a topic, every activation.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from freshet.gnn.any_plan import returned_of, unmerged, without_kinds
from freshet.gnn.declarations import AnyLayer, Conv
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.gnn.model import build_model, save_model
from freshet.gnn.own.loading import load_layers
from freshet.gnn.rows.chains import chain_tensors
from freshet.gnn.synopses.attend import merge_heads
from freshet.kernels.kernel_calls import encode, noted_calls
from freshet.operators.aggregates.exact_sums import read_means
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.base_image import build_image
from freshet.operators.embed.embedding import Embedding
from freshet.operators.embed.engine import EngineOptions, unsupported
from freshet.operators.factory import load_plan, make_outlet
from freshet.operators.graph.edge_lists import EdgeLists
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.rules import graph_rules
from freshet.operators.graph.sources import SourceRows
from freshet.operators.initial.image import InitialImage
from freshet.operators.settings import OutletConfig, Settings
from freshet.operators.sink.string_ids import FIRST_ROWS, Names
from freshet.operators.snapshot.reader import open_snapshot
from freshet.operators.snapshot.writer import write_snapshot
from freshet.operators.warm_up import take_events, throwaway_events
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.hash_index import FIRST_CAPACITY, grown, make_index
from freshet.partitioner.ids import INT, STRING
from freshet.schema import Features
from freshet.state import table
from freshet.state.adjacency import Lists
from freshet.state.block_columns import TOPOLOGY
from freshet.state.codec import Block, Header
from freshet.state.salt import scratch_salt
from freshet.state.served.ids import Ids, Texts, frozen
from freshet.state.served.inverted import InvertedLists, trained
from freshet.state.served.layout import TableShape
from freshet.state.served.mapped import NEWEST
from freshet.state.served.near_kernels import COSINE
from freshet.state.served.nearest import Target, at_one_epoch
from freshet.state.served.reader import ChangeReader, TableReader
from freshet.state.served.writer import TableWriter
from freshet.state.table import TableSet
from freshet.state.task_parts import DENSE_PARTS, TaskParts

_WIDTH, _EDGE_WIDTH = 3, 2
_KINDS = (INT, STRING)
_ACTIVATIONS: tuple[dict[str, Any], ...] = (
    {"type": "leaky_relu"},
    {"type": "prelu", "channels": 1},
    {"type": "elu"},
    {"type": "selu"},
    {"type": "gelu"},
    {"type": "gelu", "approximate": "tanh"},
    {"type": "tanh"},
    {"type": "sigmoid"},
    {"type": "silu"},
    {"type": "clamp", "low": 0.0, "high": 6.0},
    {"type": "softplus"},
    {"type": "celu"},
    {"type": "mish"},
    {"type": "log_sigmoid"},
    {"type": "sqrt"},
    {"type": "power"},
    {"type": "sin"},
    {"type": "cos"},
    {"type": "scale", "factor": 0.5},
    {"type": "normalize"},
    {"type": "softmax"},
    {"type": "log_softmax"},
    {"type": "layer_norm", "channels": _WIDTH},
    {"type": "rms_norm", "channels": _WIDTH, "eps": 1e-6},
    {"type": "frozen_norm", "of": "pair_norm", "channels": _WIDTH, "length": 1.0},
    {"type": "keep", "name": "rows"},
    {"type": "join", "operation": "times_length", "of": [".", "rows"]},
)


def _conv(kind: str, **options: Any) -> dict[str, Any]:
    return {"type": kind, "in_channels": _WIDTH, "out_channels": _WIDTH, **options}


_RELU = {"type": "relu"}
_PROGRAM: list[dict[str, Any]] = [
    {"op": "add", "of": ["source", "target"]},
    {"op": "exp", "of": ["0"]},
    {"op": "log", "of": ["1"]},
    {"op": "sum_columns", "of": ["2"]},
    {"op": "mul", "of": ["3", "source"]},
]
_MATRIX = {"type": "linear", "in_channels": _EDGE_WIDTH, "out_channels": _WIDTH * _WIDTH}
# Between them: sums with weights and without, own inputs and none, sums and means, rows of length 1; extrema, several
# aggregators, scores that are additive and others; variances; messages of a network; attributes of edges.
_MODELS: tuple[list[dict[str, Any]], ...] = (
    [_RELU, _conv("graph_conv"), *_ACTIVATIONS, _conv("sage_conv", normalize=True), _RELU, _conv("gin_conv", nn=[])],
    [_conv("gcn_conv"), _RELU, _conv("sage_conv"), _RELU, _conv("graph_conv", aggr="mean", edge_weights=False)],
    [_conv("sage_conv", aggr=["max", "sum"]), _conv("graph_conv", aggr="min"), _conv("gat_conv"), _conv("gatv2_conv")],
    [_conv("graph_conv", aggr="std"), _conv("res_gated_graph_conv"), _conv("pna_conv", aggregators=["std", "mean"])],
    [_conv("edge_conv", aggr=["max", "std", "sum"], nn=[{"type": "linear", "in_channels": 6, "out_channels": 1}])],
    [
        _conv("gine_conv", edge_channels=_EDGE_WIDTH, nn=[]),
        _RELU,
        _conv("gcn_conv"),
        _conv("message_conv", program=_PROGRAM),
    ],
    [_conv(f"{kind}_conv", edge_channels=_EDGE_WIDTH) for kind in ("gat", "gatv2", "transformer")],
    [
        _conv("gmm_conv", edge_channels=_EDGE_WIDTH, kernels=2),
        _conv("nn_conv", edge_channels=_EDGE_WIDTH, nn=[_MATRIX]),
        _conv("cg_conv", edge_channels=_EDGE_WIDTH),
    ],
)

_ATTENTION = "2"  # which of them has attention

# Kind of ids, how many parts each task of a Storage has, and which of the models runs there.
_SHAPES = (
    ("int", (1,), 0),
    ("string", (2, 1), 1),
    ("int", (2,), 0),
    ("string", (1, 1), 1),
    ("int", (1,), 2),
    ("int", (2, 1), 2),
    ("int", (2, 1), 3),
    ("int", (2, 1), 4),
    ("int", (2, 1), 5),
    ("int", (2, 1), 6),
    ("int", (2, 1), 7),
    ("int", (DENSE_PARTS, 1), 0),
)
_SEVERAL, _MANY = ((2, 1), (2,), (1, 1)), ((DENSE_PARTS, 1),)


def save_models(folder: Path) -> list[Path]:
    """Write the models that the jobs run."""
    found = []
    for number, layers in enumerate(_MODELS):
        declared: list[Any] = TypeAdapter(list[AnyLayer]).validate_python(layers)
        shapes = chain_tensors(declared, "layers")
        weights = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
        edges = max(layer.edge.attributes for layer in declared if isinstance(layer, Conv))
        model = build_model(layers=layers, head=[], edge_types=[], edge_features=edges, weights=weights)
        save_model(model, folder / str(number))
        found.append(folder / str(number))
    return found


def jobs(folder: Path) -> Iterator[Settings]:
    """Settings of jobs that between them have every shape; their files lie in `folder`."""
    models = save_models(folder / "models")
    for number, (kind, tasks, model) in enumerate(_SHAPES):
        yield _settings(folder / str(number), kind, tasks, models[model])


def jobs_of(model: Path, dealt: Sequence[tuple[int, ...]], kinds: Sequence[str], folder: Path) -> Iterator[Settings]:
    """Settings of jobs of one model, for each kind of ids and way to deal parts; their files lie in `folder`."""
    whole = {"strategy": "hash"} if unmerged(load_plan(str(model))) else {}  # no vertex may be split among parts
    for kind in kinds:
        for number, tasks in enumerate(dealt):
            yield _settings(folder / f"{kind}{number}", kind, tasks, model, **whole)


def _settings(out: Path, kind: str, tasks: tuple[int, ...], model: Path, **options: Any) -> Settings:
    return Settings(
        model=str(model),
        out=str(out),
        image=str(out / "image"),
        parts=sum(tasks),
        tasks=tasks,
        sources=("events",),
        partitioning=PartitionerConfig(id_kind=kind, hybrid_threshold=1, **options),
        outlet=OutletConfig(model_tag="0" * 16),
    )


def play(settings: Settings, to_topic: bool = True) -> None:
    """A base image of some events, then epochs upon it and upon nothing, with all that a job's stages do."""
    plan = load_plan(settings.model)
    rules = graph_rules(plan, undirected=False)
    degrees = rules.degree_relations
    partitioning = replace(settings.partitioning, out_degrees=rules.out_degrees, degree_relations=degrees)
    settings = replace(settings, partitioning=partitioning)
    plan.warm_up()
    if to_topic:
        for returned in returned_of(plan):
            make_outlet(settings, returned, 0).warm_up()
    settings = replace(settings, outlet=None)  # what goes to a topic leaves the network
    events = throwaway_events(settings, plan).slice(0, 6)
    initial = replace(settings, image=f"{settings.image}-of-parts")
    InitialImage(initial, plan, Path(settings.out) / "initial", 1).run(lambda: [events])
    build_image(settings, [events])
    for image in (settings.image, ""):
        take_events(replace(settings, image=image), plan, sinks=True)


def embed(settings: Settings) -> None:
    """Embed a snapshot of some events out of core, each vertex in turn in the one slot of the hot store."""
    plan, folder = load_plan(settings.model), Path(settings.out) / "embedding"
    if isinstance(plan, KindsPlan) or unsupported(plan):
        return
    work = folder / "work"
    work.mkdir(parents=True)
    ids: list[Any] = [1, 2, 3] if settings.id_kind == "int" else ["a", "b", "c"]
    x, src, dst = plan.features.zeros(3) + np.float32(1), [ids[0], ids[1], ids[1]], [ids[1], ids[2], ids[1]]
    write_snapshot(folder, ids, x, src, dst, np.ones(3, np.float32))
    options = EngineOptions(1 << 20, slots=1, eviction="next-use")
    Embedding(plan, open_snapshot(folder, plan.features), work, work, options, order="completion").run()


def grow(kinds: Sequence[str]) -> None:
    """Have tables grow that small jobs do not fill."""
    grown(make_index(scratch_salt()), FIRST_CAPACITY)
    if STRING in kinds:
        Names(TableSet())._rehash(2 * FIRST_ROWS)
    Lists(TableSet(), "out").make_index(frozen(np.zeros(0, np.int32)))


def relate(model: Path) -> None:
    """Have messages read rows of two kinds of vertices, and vertices the synopses of several relations."""
    plan = without_kinds(load_plan(str(model)), "a rehearsal")
    layer = next(layer for layer in plan.layers if layer.synopsis.reads_targets)
    relation, tables = copy(layer), TableSet()
    relation.target_width = relation.message_width
    sources, targets = (PartRows(0, TaskParts.dealt(1, 1)) for _ in range(2))
    lists = EdgeLists(tables, sources, targets, relation)
    store = aggregate_of(relation.synopsis).store(tables, lists, relation, "a rehearsal")
    one = frozen(np.zeros(1, np.int32))
    born = Block(Header(TOPOLOGY), {"m_slot": one})
    for at in (sources, targets):
        at.reserve(born, "m")
    rows = SourceRows(one, one, frozen(np.ones((1, relation.message_width), np.float32)), [])
    store.merge(0, born, rows, None, rows)
    merge_heads(*np.ones((2, 1, 3), np.float32), 1)  # softmaxes over several relations
    for slots in (one, np.zeros(1, np.int32)):  # means of several relations side by side
        read_means(np.zeros((1, 1)), np.ones((1, 4), np.int32), slots, True, np.zeros((1, 2), np.float32), 1)


def expire() -> None:
    """Have an edge expire, and another one have a key."""
    core = Partitioner(1, Features(1), PartitionerConfig(edge_ttl_ms=1))
    for ts in (0, 2):
        core.partition(events_of([("add_edge", ts, 1)], ts=[ts]))
    core.after_restore()
    Partitioner(1, Features(1), PartitionerConfig(edge_keys=STRING)).partition(
        events_of([("add_edge", 0, 1)], keys=["a"])
    )


def serve(folder: Path) -> None:
    """Run the operations of a server and its readers on a table, with both kinds of ids."""
    for strings in (False, True):
        path = folder / f"{strings}.table"
        writer = TableWriter(path, TableShape.of(_WIDTH, strings, 8, 64, 1), 1, 1)
        ids = Texts.encode(["a", "b"]) if strings else np.array([1, 2])
        for epoch in range(3):
            writer.put(epoch, ids, np.ones((2, _WIDTH), np.float32))
            writer.remove(epoch, ids)
            writer.set_positions(np.zeros((1, 4), np.int64))
            writer.publish(epoch)
        reader = TableReader(path)
        asked = ids if isinstance(ids, Texts) else frozen(ids)
        reader.get(asked)
        reader.few(asked, 0)
        following = ChangeReader(reader)
        for epoch in (3, 4):
            following.next()
            writer.put(epoch, ids, np.ones((2, _WIDTH), np.float32))
            writer.publish(epoch)
        find_neighbours(reader, asked)
        TableWriter.take_over(path).content()


def find_neighbours(reader: TableReader, ids: Ids) -> None:
    """Find neighbours in a table: exactly, by a function, and by lists."""
    one = Target(np.ones(_WIDTH, np.float32), COSINE)
    at_one_epoch(reader, NEWEST, lambda _: one, 1)
    at_one_epoch(reader, NEWEST, lambda _: one._replace(scores=lambda rows: rows[:, 0]), 1)
    at_one_epoch(reader, NEWEST, lambda _: one, 1, reader.slots_of(ids))
    lists = InvertedLists(reader, COSINE, trained(reader, COSINE))
    lists.take(np.arange(2), reader.epoch)
    lists.slots_in(lists.best_lists(one.vector, 1, 1))


class Notes:
    """Prints the calls that are new, one encoded call a line."""

    def __init__(self) -> None:
        self._printed = 0

    def print_new(self) -> None:
        """Print those since the last time, at once: others compile them while the rehearsal goes on."""
        calls = noted_calls()
        for call in calls[self._printed :]:
            sys.stdout.buffer.write(encode(call))
        sys.stdout.buffer.flush()
        self._printed = len(calls)


def main() -> None:
    """Print the calls, one encoded call a line, after each job those that are new."""
    np.seterr(all="ignore")  # compiled kernels let integers overflow in silence
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--several-parts", action="store_true")
    parser.add_argument("--many-parts", action="store_true")
    parser.add_argument("--ids", choices=_KINDS, action="append")
    parser.add_argument("--no-topic", action="store_true")
    parser.add_argument("--layers", action="append", default=[])
    options = parser.parse_args()
    load_layers(options.layers)
    table.PAGE_BYTES = 1 << 10  # plain Python copies a page value by value
    notes, kinds = Notes(), options.ids or _KINDS
    with tempfile.TemporaryDirectory() as folder:
        if options.model:
            dealt = (_SEVERAL if options.several_parts else ((1,),)) + (_MANY if options.many_parts else ())
            for settings in jobs_of(options.model, dealt, kinds, Path(folder)):
                play(settings, not options.no_topic)
                notes.print_new()
        else:
            for settings in jobs(Path(folder)):
                play(settings)
                embed(settings)
                notes.print_new()
            relate(Path(folder) / "models" / _ATTENTION)
            serve(Path(folder))
        grow(kinds)
        expire()
        notes.print_new()


if __name__ == "__main__":
    main()
