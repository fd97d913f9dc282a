"""The outlet under crashes: a read-committed reader sees each (id, epoch) once, and the last record of each vertex is
its state after the last interval, whether what was written after a checkpoint is taken back or stays.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.operators.control import FLUSH, LAST, REPLAY, control_values
from freshet.operators.sink.kafka_records import RecordBlocks
from freshet.operators.sink.outlet import Outlet, OutletStage
from freshet.state.block_columns import ROWS
from freshet.state.codec import Block, Header
from tests.support.kafka.records import parse, split
from tests.support.stages.sunk import sink_of

WIDTH = 2
VERTICES = range(4)
Record = tuple[int, int, float | None]  # vertex, epoch (-1: a tombstone has none), first value


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[dict[int, float], set[int], int]]:
    """Per epoch: rows, deletions, and what it is: 0 ordinary, 1 the end of an interval, 2 a marker."""
    epochs, live = [], set[int]()
    for number in range(1, draw(st.integers(4, 16))):
        dead = {v for v in live if draw(st.integers(0, 3)) == 0}
        rows = {v: number + v / 8 for v in VERTICES if v not in dead and draw(st.booleans())}
        live = (live | rows.keys()) - dead
        epochs.append((rows, dead, draw(st.sampled_from([0, 0, 1, 2]))))
    return epochs


class Run:
    """A sink part with its keyed state, checkpoints of it, and the topic."""

    def __init__(self, epochs: list[tuple[dict[int, float], set[int], int]], out: Path, held: int) -> None:
        self.epochs, self.out, self.held = epochs, out, held
        self.state: dict[str, bytes] = {}
        self.saved: tuple[int, dict[str, bytes]] = (0, {})
        self.committed: list[Record] = []
        self.pending: list[Record] = []  # since the last checkpoint
        self.all: list[Record] = []  # what a reader of uncommitted records sees
        self.stage = self._restored(0)

    def _restored(self, at: int) -> OutletStage:
        self.sent = self.sent_bytes = 0
        outlet = Outlet(0, WIDTH, "int", RecordBlocks("m"), self.held)
        core = sink_of(self.out, width=WIDTH, sources=["events"], topic=outlet)
        stage = OutletStage("sink-0", core, 1)
        stage.restore(self.state.items())
        for epoch in range(stage.epoch + 1, at + 1):
            assert self._act(stage, epoch, REPLAY) == [], "a replay repeats nothing"
        return stage

    def step(self) -> None:
        self.pending += (records := self._act(self.stage, self.stage.epoch + 1, 0))
        self.all += records

    def checkpoint(self) -> None:
        self.saved = (self.stage.epoch, dict(self.state))
        self.committed += self.pending
        self.pending = []

    def crash(self) -> None:
        self.stage.core.close(write=False)
        at, self.state = self.saved[0], dict(self.saved[1])
        self.pending = []
        self.stage = self._restored(at)

    def _act(self, stage: OutletStage, epoch: int, flags: int) -> list[Record]:
        rows, dead, kind = self.epochs[epoch - 1]
        if kind == 1:
            flags |= FLUSH
        if epoch == len(self.epochs):
            flags |= LAST
        columns = {
            "key": np.array(list(rows), np.int64),
            "row": np.array([[value, epoch] for value in rows.values()], np.float32).reshape(-1, WIDTH),
            "del_key": np.array(list(dead), np.int64),
            "ctl": control_values(epoch if kind == 2 else -1, 1, flags=flags, accepted=epoch),
        }
        block = Block(Header(ROWS, epoch, 1, 0), columns)
        waiting = stage.offer(block)
        assert waiting is not None
        outcome = stage.act(waiting)
        self.state.update(outcome.puts)
        for key in outcome.deletes:
            self.state.pop(key, None)
        level = stage.levels["outlet_bytes"]
        if flags & (FLUSH | LAST) or kind == 2:
            assert level.now == 0, "nothing is held after an interval"
        assert level.now < self.held or level.now == 0, "what is too much ends the interval"
        assert level.peak <= level.bound
        found: list[Record] = []
        for message in outcome.messages:
            assert isinstance(message.block, bytes)
            for key, value in split(message.block):
                parsed = None if value is None else parse(value)
                entry = (-1, None) if parsed is None else (parsed["epoch"], float(parsed["embedding"][0]))
                found.append((int(key), *entry))
                self.sent_bytes += len(key) + len(value or b"")
        self.sent += len(found)
        assert (stage.traffic.messages, stage.traffic.bytes) == (self.sent, self.sent_bytes)
        return found


@settings(max_examples=100, deadline=None)
@given(histories(), st.data(), st.sampled_from([1, 60, 1 << 20]))
def test_the_topic_after_crashes(epochs: list[tuple[dict[int, float], set[int], int]], data: st.DataObject, held: int):
    oracle: dict[int, Record] = {}
    for number, (rows, dead, _) in enumerate(epochs, 1):
        oracle |= {v: (v, number, value) for v, value in rows.items()}
        oracle |= {v: (v, -1, None) for v in dead}
    with tempfile.TemporaryDirectory() as folder:
        run = Run(epochs, Path(folder), held)
        crashes = 0
        while run.stage.epoch < len(epochs):
            run.step()
            what = data.draw(st.sampled_from(["go on", "go on", "checkpoint", "crash"]))
            if what == "checkpoint":
                run.checkpoint()
            elif what == "crash" and crashes < 5:
                crashes += 1
                run.crash()
        run.checkpoint()
        run.stage.core.close()
    values = [(vertex, epoch) for vertex, epoch, _ in run.committed if epoch >= 0]
    assert len(values) == len(set(values)), "exactly once"
    for seen in (run.committed, run.all):
        assert {vertex: record for record in seen for vertex in record[:1]} == oracle, "the last record of each vertex"
        assert all((v, e) in {(o, n) for n, (r, _, _) in enumerate(epochs, 1) for o in r} for v, e, x in seen if e >= 0)
