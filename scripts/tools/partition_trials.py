"""Quality of each partitioner on a graph or a stream, without a job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from freshet.gnn.any_plan import without_kinds
from freshet.gnn.plan import Plan
from freshet.job.errors import UsageError
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.options.run_config import option_values
from freshet.operators.factory import load_plan
from freshet.operators.graph.rules import graph_rules
from freshet.operators.parser.arrow.parquet_file import open_parquet
from freshet.operators.parser.core import Parser
from freshet.operators.parser.files import Chunk, ChunkReader, plan_chunks
from freshet.operators.snapshot.reader import open_snapshot
from freshet.partitioner.config import GraphRules, PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import OP_ADD_EDGE, OP_DEL_EDGE, Events
from freshet.partitioner.ids import STRING
from freshet.schema import FeatureRows, Features
from scripts.tools.partition_bytes import Layers

EPOCH_EVENTS = 1000


def run_trials(
    *,
    tried: Sequence[PartitioningOptions],
    events: Sequence[str],
    snapshot: Path | None,
    undirected: bool,
    model: Path | None = None,
) -> None:
    """Print one JSON line per partitioner, and a table of them for people on stderr.

    The snapshot is placed whole, as a run does; events in epochs of 1,000. Features decide nothing; without a model,
    whose layers send what they make of them, they are left out.

    Raises:
        InputError: the input can't be read, or has nothing in it.
    """
    console = Console(stderr=True)
    with console.status("reading"):
        trials, rejected = _run(Graph(undirected, model), list(events), snapshot, tried)
    lines = [trial.line(rejected) for trial in trials]
    for line in lines:
        print(orjson.dumps(line).decode())
    sys.stdout.flush()
    console.print(_table(lines))


@dataclass(frozen=True)
class Graph:
    """Inputs of all partitioners; `model`: whose layers run on the stream, if any."""

    undirected: bool = False
    model: Path | None = None

    @cached_property
    def plan(self) -> Plan | None:
        """The model, compiled."""
        return None if self.model is None else without_kinds(load_plan(str(self.model)), "this script")

    def features(self, found: Callable[[], int]) -> Features:
        """The features: the model's, else of the width that is found."""
        return Features(found()) if self.plan is None else self.plan.features

    def config(self, options: PartitioningOptions, id_kind: str) -> PartitionerConfig:
        """Settings of a Partitioner."""
        undirected = self.undirected
        rules = GraphRules(undirected) if self.plan is None else graph_rules(self.plan, undirected=undirected)
        return PartitionerConfig.of(rules, **option_values(options, PartitionerConfig), id_kind=id_kind)


class Trial:
    """One partitioner, and the seconds that it took.

    Units: `edges` are edge events; an undirected one counts once. `streamed` are events beside the snapshot's.
    """

    def __init__(self, options: PartitioningOptions, graph: Graph, id_kind: str) -> None:
        config, parts = graph.config(options, id_kind), options.parts or 1
        self.core = Partitioner(parts, graph.features(lambda: 1), config)
        self.strategy = options.strategy
        self.layers = None if graph.model is None else Layers(graph.model, parts, config)
        self.seconds = 0.0
        self.events = self.edges = self.streamed = 0

    def apply(self, epoch: Events, *, snapshot: bool = False) -> None:
        """Place what an epoch changes, or a snapshot."""
        began = time.perf_counter()
        change = self.core.partition(epoch, snapshot=snapshot)
        self.seconds += time.perf_counter() - began
        if self.layers is not None:
            self.layers.take(self.core, change, snapshot=snapshot)
        self.events += len(epoch)
        self.streamed += 0 if snapshot else len(epoch)
        self.edges += int(np.count_nonzero((epoch.op == OP_ADD_EDGE) | (epoch.op == OP_DEL_EDGE)))

    def line(self, rejected: int) -> dict[str, Any]:
        """Return the output line of a trial."""
        stats = {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in self.core.stats().to_dict().items()
        }
        per_s = round(self.edges / self.seconds) if self.seconds else None
        counts = {"events": self.events, "rejected": rejected, "seconds": round(self.seconds, 3), "edges_per_s": per_s}
        if self.layers is not None:
            counts["bytes_per_event"] = round(self.layers.nbytes / self.streamed) if self.streamed else None
        return {"partitioner": self.strategy, **stats, **counts}


def _run(
    graph: Graph, events: list[str], snapshot: Path | None, tried: Sequence[PartitioningOptions]
) -> tuple[list[Trial], int]:
    """The trials after all of the input, and how many records were no events."""
    parser: Parser | None = None
    trials: list[Trial] = []
    id_kind: str | None = None
    if snapshot is not None:
        opened = open_snapshot(snapshot, graph.features(lambda: _snapshot_width(snapshot)))
        id_kind = opened.id_kind
        trials = _trials(tried, graph, id_kind)
        blocks = [_told(graph, block) for block in opened.blocks()]
        if blocks:
            whole = Events.concatenate(blocks)
            for trial in trials:
                trial.apply(whole, snapshot=True)
    rejected = 0
    if events:
        chunks = plan_chunks(events)
        types = None if graph.plan is None else graph.plan.edge_types or None
        parser = Parser(graph.features(lambda: _event_width(chunks)), id_kind, types)
        counted = _Counted(chunks, parser, graph)
        for epoch in _epochs(counted):
            trials = trials or _trials(tried, graph, str(parser.id_kind))
            for trial in trials:
                trial.apply(epoch)
        rejected = counted.rejected
    if not any(trial.events for trial in trials):
        msg = f"nothing to partition: the input holds no event ({rejected} records were rejected)"
        raise UsageError(msg)
    return trials, rejected


def _trials(tried: Sequence[PartitioningOptions], graph: Graph, id_kind: str) -> list[Trial]:
    names = ("a", "b") if id_kind == STRING else (1, 2)
    warm = events_of([("add_edge", *names), ("del_edge", *names)], id_kind=id_kind)
    Trial(tried[0], Graph(graph.undirected), id_kind).apply(warm)  # so that no seconds are those of the compiler
    return [Trial(options, graph, id_kind) for options in tried]


class _Counted:
    """The blocks of the event files, and how many records of them were rejected."""

    def __init__(self, chunks: list[Chunk], parser: Parser, graph: Graph) -> None:
        self._chunks, self._parser, self._graph = chunks, parser, graph
        self.rejected = 0

    def __iter__(self) -> Iterator[Events]:
        reader = ChunkReader()
        for chunk in self._chunks:
            block, letters = self._parser.parse_chunk(chunk, reader.read(chunk))
            self.rejected += len(letters)
            if len(block):
                yield _told(self._graph, block)


def _told(graph: Graph, events: Events) -> Events:
    """The events, without a model without features."""
    if graph.model is not None:
        return events
    return replace(events, x=FeatureRows(Features(1).empty()), x_row=np.full(len(events), -1, np.int32))


def _epochs(blocks: Iterable[Events]) -> Iterator[Events]:
    """The same events, a thousand at a time."""
    rest: Events | None = None
    for block in blocks:
        waiting = block if rest is None else Events.concatenate([rest, block])
        whole = len(waiting) - len(waiting) % EPOCH_EVENTS
        for start in range(0, whole, EPOCH_EVENTS):
            yield waiting.slice(start, start + EPOCH_EVENTS)
        rest = waiting.slice(whole, len(waiting)) if whole < len(waiting) else None
    if rest is not None:
        yield rest


# -- how wide the features are, which nobody has said -----------------------------------------------------------------


def _snapshot_width(folder: Path) -> int:
    try:
        with open_parquet(folder / "vertices.parquet") as file:
            for batch in file.iter_batches(1024, columns=["x"]):
                width = _array_width(batch.column(0))
                if width is not None:
                    return width
    except (OSError, pa.ArrowException, KeyError, IndexError):
        pass  # open_snapshot says what is wrong with it
    return 1


def _event_width(chunks: list[Chunk]) -> int:
    """The width of the first features that any event has; 1 if none has any."""
    reader = ChunkReader()
    for chunk in chunks:
        data = reader.read(chunk)
        width = _line_width(data) if isinstance(data, bytes) else _column_width(data)
        if width is not None:
            return width
    return 1


def _line_width(data: bytes) -> int | None:
    for line in data.splitlines():
        if b'"x"' not in line:
            continue
        try:
            x = orjson.loads(line).get("x")
        except (orjson.JSONDecodeError, AttributeError):
            continue
        if isinstance(x, list):
            return len(x)
    return None


def _column_width(data: pa.RecordBatch) -> int | None:
    return _array_width(data.column("x")) if "x" in data.schema.names else None


def _array_width(x: pa.Array) -> int | None:
    first = next((value for value in x if value.is_valid), None)
    return len(first) if isinstance(first, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar) else None


# -- for people -------------------------------------------------------------------------------------------------------


def _table(lines: list[dict[str, Any]]) -> Table:
    first = lines[0]
    title = f"{first['vertices']:,} vertices, {first['edges']:,} edges, {first['parts']} parts"
    table = Table(title=title, caption="balance: the fullest part over the mean", box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("partitioner", no_wrap=True)
    columns = ["rows/\nvertex", "edges\ncut", "vertex\nbalance", "edge\nbalance", "vertices\nsplit", "edges/s"]
    sends = "bytes_per_event" in first
    for name in columns + ["bytes/\nevent"] * sends:
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(
            line["partitioner"],
            f"{line['replication_factor']:.2f}",
            f"{line['cut_share']:.1%}",
            f"{line['vertex_balance']:.2f}",
            f"{line['edge_balance']:.2f}",
            f"{line['split_share']:.1%}",
            _count(line["edges_per_s"]),
            *([_count(line["bytes_per_event"])] if sends else []),
        )
    return table


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
