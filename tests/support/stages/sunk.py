"""Sinks, what they are given and what they leave, by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from freshet.operators.control import control_values
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log import ChangeLog
from freshet.operators.sink.core import Sink
from freshet.operators.sink.kind_outputs import KindOutputs
from freshet.operators.sink.log_output import FileLimits, LogOutput
from freshet.operators.sink.output import Output
from freshet.operators.sink.tail.output import TailOutput
from freshet.state.block_columns import DTYPES, POSITIONS, ROWS
from freshet.state.codec import Block, Header

WIDTH = 3
SOURCES = ["events.jsonl", "kafka://host:9092/topic"]


def vector(key: int, epoch: int) -> np.ndarray:
    return np.array([key, epoch, key * epoch], np.float32)


def block(
    epoch: int,
    rows: Sequence[int] = (),
    dead: Sequence[int] = (),
    control: np.ndarray | None = None,
    names: Mapping[int, str] | None = None,
    positions: Sequence[tuple[int, ...]] | None = None,
    source: int = 0,
) -> Block:
    """rows: keys that changed; names: {key: id}; positions: (source, partition, next, events) tuples."""
    columns: dict[str, np.ndarray] = {
        "key": np.array(rows, np.int64),
        "row": np.array([vector(key, epoch) for key in rows], np.float32).reshape(-1, WIDTH),
        "del_key": np.array(dead, np.int64),
    }
    if control is not None:
        columns["ctl"] = control
    if names:
        texts = [text.encode() for text in names.values()]
        columns["m_key"] = np.array(list(names), np.int64)
        columns["m_off"] = np.cumsum([0] + [len(text) for text in texts]).astype(np.int64)
        columns["m_name"] = np.frombuffer(b"".join(texts), np.uint8)
    if positions:
        for name, values in zip(POSITIONS, zip(*positions, strict=True), strict=True):
            columns[name] = np.array(values, DTYPES[name])
    return Block(Header(ROWS, epoch, 2, source), {name: column for name, column in columns.items() if column.size})


def control(events: int = 1, arrival: float = 0, **values: int) -> np.ndarray:
    """Control values, by default of an epoch of one event."""
    return control_values(events=events, arrival_ms=arrival, **{"last_arrival_ms": int(arrival), **values})


def log_of(sink: Sink) -> LogOutput:
    """The change log of a sink."""
    return next(one for one in sink.outputs if isinstance(one, LogOutput))


def tail_of(sink: Sink) -> TailOutput:
    """The recent changes of a sink."""
    return next(one for one in sink.outputs if isinstance(one, TailOutput))


def sink_of(
    out: Path,
    part: int = 0,
    kind: str = "int",
    *,
    width: int = WIDTH,
    sources: Sequence[str] = SOURCES,
    tail: Callable[[LogOutput], TailOutput] | None = None,
    topic: Output | None = None,
    clock_ms: Callable[[], float] = lambda: 0.0,
    **limits: Any,
) -> Sink:
    """A sink with a change log whose files have these limits; `tail` makes recent changes beside that log."""
    log = LogOutput(ChangeLog(LogFolders(out), part, width, kind, list(sources)), FileLimits(**limits))
    outputs: list[Output] = [*([tail(log)] if tail else []), log, *([topic] if topic else [])]
    return Sink(part, out, [KindOutputs(width, outputs)], kind, clock_ms)


def rows_in(path: Path) -> list[tuple[Any, ...]]:
    table = pq.read_table(path)
    return [(r["id"], r["epoch"], r["embedding"], r["deleted"]) for r in table.to_pylist()]


def files(out: Path, folder: str = "embeddings") -> list[str]:
    return sorted(path.name for path in (out / folder).iterdir())


def digest(out: Path) -> dict[str, str]:
    """Every visible file of the change log with the hash of its bytes."""
    paths = [*(out / "embeddings").glob("*.parquet"), *(out / "epochs").glob("*.parquet")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
