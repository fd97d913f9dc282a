"""A checkpoint of a small job, kept as files: what this version saved, every later one must read or refuse by version.

`python -m tests.support.simulation.savepoint FOLDER` makes one (in a new folder), for a new format of states.

A folder holds job.json (settings, position of the input, epoch reached), model/, events.bin (a block of events),
cuts.jsonl (a cut a line) and entries.bin.xz: a block with the columns key, key_off, value, value_off.
"""

from __future__ import annotations

import itertools
import lzma
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import orjson

from freshet.gnn.model import Model, load_model, save_model
from freshet.gnn.plan import compile_plan
from freshet.operators.epochs.cut import Cut
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.settings import Settings
from freshet.operators.sink.core import Sink
from freshet.operators.sink.task import of_task
from freshet.partitioner.events import Events
from freshet.state.codec import Header, decode, encode
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.streams import random_records, to_events
from tests.support.simulation.oracle import job_settings
from tests.support.simulation.simulator import Faults, Simulation
from tests.support.simulation.survivors import Checkpoint
from tests.support.stages.sunk import sink_of


@dataclass
class Savepoint:
    """A job that stands still."""

    settings: Settings
    model: Model
    events: Events
    checkpoint: Checkpoint
    epoch: int  # reached when it was saved
    folder: Path

    def resume(self, out: Path, log: Path, seed: int, faults: Faults) -> Simulation:
        """The job from here to its end, with its change log in `out` and its cut log at `log`."""
        simulation = start(self.settings, self.model, self.events, self.open_log(log), seed, faults, out)
        simulation.checkpoint = self.checkpoint
        simulation.run()
        return simulation

    def open_log(self, path: Path) -> CutLog:
        """A cut log with the cuts that were saved."""
        log = CutLog(path)
        for line in (self.folder / "cuts.jsonl").read_bytes().splitlines():
            cut = Cut.decode(line)
            assert cut is not None, line
            log.append(cut)
        return log


def start(
    settings: Settings, model: Model, events: Events, log: CutLog, seed: int, faults: Faults, out: Path
) -> Simulation:
    """A simulation with the real Sink."""
    plan = compile_plan(model)
    simulation = Simulation(settings, plan, events, log, seed, faults)

    def sink(part: int) -> Sink:
        return sink_of(out, part, settings.id_kind, width=plan.out_width, sources=["events"])

    simulation.make_sink = lambda parts: of_task([sink(part) for part in parts], settings.parts)
    return simulation


def load(folder: Path) -> Savepoint:
    """The savepoint in a folder."""
    job = orjson.loads((folder / "job.json").read_bytes())
    block = decode(lzma.decompress((folder / "entries.bin.xz").read_bytes()))
    keys, values = _texts(block.columns, "key"), _texts(block.columns, "value")
    checkpoint = Checkpoint((job["position"],))
    for name, value in zip(keys, values, strict=True):
        operator, part, key = name.decode().split("|", 2)
        checkpoint.states.setdefault((operator, int(part)), {})[key] = value
    return Savepoint(
        Settings.from_dict(job["settings"]),
        load_model(folder / "model"),
        Events.decode((folder / "events.bin").read_bytes()),
        checkpoint,
        job["epoch"],
        folder,
    )


def _texts(columns: dict[str, np.ndarray], name: str) -> list[bytes]:
    data, bounds = columns[name].tobytes(), columns[f"{name}_off"].tolist()
    return [data[begin:end] for begin, end in itertools.pairwise(bounds)]


def _columns(name: str, texts: list[bytes]) -> dict[str, np.ndarray]:
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    return {name: np.frombuffer(b"".join(texts), np.uint8), f"{name}_off": offsets}


class _Saved(Exception):
    """The checkpoint is there."""


def make(folder: Path) -> None:
    """Run a job with string ids, typed and weighted edges, split vertices and four markers up to a checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    layers = [
        conv("graph_conv", IN_WIDTH, 4, aggr="mean"),
        {"type": "relu"},
        conv("gcn_conv", 4, 3),
    ]
    model = make_model(4, layers)
    records = random_records(random.Random(4), 240, IN_WIDTH, vertices=12, types=("a", "b"), strings=True)
    events = to_events(records, IN_WIDTH)
    settings = job_settings(model, 3, 8, hybrid_threshold=2, id_kind="string")
    save_model(model, folder / "model")
    (folder / "events.bin").write_bytes(events.encode())
    log = CutLog()
    faults = Faults(barrier=0.05, tick=0.02, crashes=0, feed=0.01)
    with TemporaryDirectory() as out:
        simulation = start(settings, model, events, log, 4, faults, Path(out))
        saved = simulation.take_snapshot

        def snapshot(place: tuple[str, int]) -> None:
            saved(place)
            (position,) = simulation.checkpoint.positions
            done = simulation._barrier_at is None and position < 0.7 * len(events)
            if done and "meta@4" in simulation.checkpoint.states["partitioner", 0]:
                raise _Saved

        simulation.take_snapshot = snapshot  # type: ignore[method-assign]
        try:
            simulation.run()
        except _Saved:
            simulation.close_attempt(write=False)
        else:
            raise AssertionError("no checkpoint came at the right time")
    (folder / "cuts.jsonl").write_bytes(b"".join(cut.encode() for cut in log.cuts.values()))
    states = simulation.checkpoint.states
    sealed = orjson.loads(states["partitioner", 0]["sealed"])
    (position,) = simulation.checkpoint.positions
    job = {"settings": settings.to_dict(), "position": position, "epoch": sealed["epoch"]}
    (folder / "job.json").write_bytes(orjson.dumps(job, option=orjson.OPT_INDENT_2))
    entries = {
        f"{op}|{part}|{key}": value for (op, part), held in sorted(states.items()) for key, value in held.items()
    }
    columns = _columns("key", [key.encode() for key in entries]) | _columns("value", list(entries.values()))
    (folder / "entries.bin.xz").write_bytes(lzma.compress(encode(Header(0), columns), preset=9))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
