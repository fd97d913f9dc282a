"""`freshet partition`: what each partitioner makes of a graph or a stream, without a model and without a job."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from job.errors import EXIT_DONE, UsageError
from operators.parser.core import Parser
from operators.parser.files import Chunk, ChunkReader, plan_chunks
from operators.snapshot.reader import open_snapshot
from partitioner.config import PartitionerConfig
from partitioner.core import Partitioner
from partitioner.event_builder import events_of
from partitioner.events import OP_ADD_EDGE, OP_DEL_EDGE, STRING, Events

EPOCH_EVENTS = 1000


def partition(
    *, parts: int, events: Sequence[str], snapshot: Path | None, partitioners: Sequence[str], undirected: bool
) -> int:
    """Print one JSON line per partitioner, and a table of them for people on stderr.

    The snapshot is placed whole, as a run does; events in epochs of 1,000. Features decide nothing and are left out.

    Raises:
        InputError: the input can't be read, or has nothing in it.
    """
    console = Console(stderr=True)
    with console.status("reading"):
        trials, rejected = _run(parts, list(events), snapshot, partitioners, undirected)
    lines = [trial.line(rejected) for trial in trials]
    for line in lines:
        print(orjson.dumps(line).decode())
    sys.stdout.flush()
    console.print(_table(lines))
    return EXIT_DONE


class Trial:
    """One partitioner, and the seconds that it took.

    Units: `edges` are edge events; an undirected one counts once.
    """

    def __init__(self, strategy: str, parts: int, id_kind: str, undirected: bool) -> None:
        config = PartitionerConfig(strategy=strategy, undirected=undirected, id_kind=id_kind)
        try:
            self.core = Partitioner(parts, 1, config)
        except ValueError as error:
            msg = f"--{error}"
            raise UsageError(msg) from None
        self.strategy = strategy
        self.seconds = 0.0
        self.events = self.edges = 0

    def apply(self, epoch: Events, *, snapshot: bool = False) -> None:
        """Place what an epoch changes, or a snapshot."""
        began = time.perf_counter()
        self.core.partition(epoch, snapshot=snapshot)
        self.seconds += time.perf_counter() - began
        self.events += len(epoch)
        self.edges += int(np.count_nonzero((epoch.op == OP_ADD_EDGE) | (epoch.op == OP_DEL_EDGE)))

    def line(self, rejected: int) -> dict[str, Any]:
        """What is said about it."""
        stats = {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in self.core.stats().to_dict().items()
        }
        per_s = round(self.edges / self.seconds) if self.seconds else None
        counts = {"events": self.events, "rejected": rejected, "seconds": round(self.seconds, 3), "edges_per_s": per_s}
        return {"partitioner": self.strategy, **stats, **counts}


def _run(
    parts: int, events: list[str], snapshot: Path | None, partitioners: Sequence[str], undirected: bool
) -> tuple[list[Trial], int]:
    """The trials after all of the input, and how many records were no events."""
    parser: Parser | None = None
    trials: list[Trial] = []
    id_kind: str | None = None
    if snapshot is not None:
        opened = open_snapshot(snapshot, _snapshot_width(snapshot))
        id_kind = opened.id_kind
        trials = _trials(partitioners, parts, id_kind, undirected)
        blocks = [_bare(block) for block in opened.blocks()]
        if blocks:
            whole = Events.concatenate(blocks)
            for trial in trials:
                trial.apply(whole, snapshot=True)
    rejected = 0
    if events:
        chunks = plan_chunks(events)
        parser = Parser(_event_width(chunks), id_kind)
        counted = _Counted(chunks, parser)
        for epoch in _epochs(counted):
            trials = trials or _trials(partitioners, parts, str(parser.id_kind), undirected)
            for trial in trials:
                trial.apply(epoch)
        rejected = counted.rejected
    if not any(trial.events for trial in trials):
        msg = f"nothing to partition: the input holds no event ({rejected} records were rejected)"
        raise UsageError(msg)
    return trials, rejected


def _trials(partitioners: Sequence[str], parts: int, id_kind: str, undirected: bool) -> list[Trial]:
    names = ("a", "b") if id_kind == STRING else (1, 2)
    warm = events_of([("add_edge", *names), ("del_edge", *names)], id_kind=id_kind)
    Trial(partitioners[0], parts, id_kind, undirected).apply(warm)  # so that no seconds are those of the compiler
    return [Trial(name, parts, id_kind, undirected) for name in partitioners]


class _Counted:
    """The blocks of the event files, and how many records of them were rejected."""

    def __init__(self, chunks: list[Chunk], parser: Parser) -> None:
        self._chunks, self._parser = chunks, parser
        self.rejected = 0

    def __iter__(self) -> Iterator[Events]:
        reader = ChunkReader()
        for chunk in self._chunks:
            block, letters = self._parser.parse_chunk(chunk, reader.read(chunk))
            self.rejected += len(letters)
            if len(block):
                yield _bare(block)


def _bare(events: Events) -> Events:
    """The events without features."""
    return replace(events, x=np.empty((0, 1), np.float32), x_row=np.full(len(events), -1, np.int32))


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
        with pq.ParquetFile(folder / "vertices.parquet") as file:
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
    table = Table(title=title, caption="balance: the fullest part over the mean", box=SIMPLE)
    table.add_column("partitioner", no_wrap=True)
    for name in ("rows per\nvertex", "edges\ncut", "vertex\nbalance", "edge\nbalance", "vertices\nsplit", "edges/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(
            line["partitioner"],
            f"{line['replication_factor']:.2f}",
            f"{line['cut_share']:.1%}",
            f"{line['vertex_balance']:.2f}",
            f"{line['edge_balance']:.2f}",
            f"{line['split_share']:.1%}",
            "-" if line["edges_per_s"] is None else f"{line['edges_per_s']:,}",
        )
    return table
