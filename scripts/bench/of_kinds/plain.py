"""Cost of kinds and relations: SAGE of two layers on three kinds and five relations, beside plain SAGE of its widths.

    .venv/bin/python scripts/bench/of_kinds/plain.py
    .venv/bin/python scripts/bench/of_kinds/plain.py --epochs 1000 1 --rounds 9 --profile

Both graphs are synthetic and of one size, and their streams alike: 60% new edges, 20% deleted ones, 20% new features.
The operators of one part, from the Partitioner to the last Storage, take turns in one process: a slice of the stream
each in a round. Figures are processor time an event: medians of the rounds, and the median of each round's ratio.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from freshet.gnn.any_plan import AnyPlan, compile_any
from freshet.gnn.model import build_model
from freshet.kernels.blas import use_one_thread
from freshet.kernels.kernel_calls import CHECKED_FIRST
from freshet.operators.control import control_values
from freshet.operators.dataflow import SINK
from freshet.operators.epochs.config import SealingConfig
from freshet.operators.factory import dataflow_of, make_core
from freshet.operators.settings import Settings
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import Events
from freshet.state.codec import Block
from freshet.state.task_parts import TaskParts
from tests.support.graphs.kinds import by_kind, kinds_model, relation, sage_everywhere

KINDS = ("user", "item", "shop")
ENDS = [(0, 1), (1, 0), (2, 1), (1, 2), (0, 0)]
RELATIONS = [relation(KINDS[a], f"type_{k}", KINDS[b]) for k, (a, b) in enumerate(ENDS)]
Row = tuple[Any, ...]


class Stream:
    """Random events of a graph with kinds, as rows of both sorts of jobs: (with kinds, without)."""

    def __init__(self, vertices: int, width: int) -> None:
        self.rng, self.size, self.width = np.random.default_rng(0), vertices // len(KINDS), width
        self.edges: list[tuple[int, int, int]] = []

    def begin(self, edges: int) -> list[tuple[Row, Row]]:
        """Return all vertices and the first edges."""
        every = [(kind, v) for kind in range(len(KINDS)) for v in range(self.size)]
        return [self._features("add_vertex", *one) for one in every] + [self._edge() for _ in range(edges)]

    def more(self, events: int) -> list[tuple[Row, Row]]:
        """Return that many further events."""
        return [self._event() for _ in range(events)]

    def _event(self) -> tuple[Row, Row]:
        chance = self.rng.random()
        if chance < 0.6:
            return self._edge()
        if chance < 0.8:
            place = int(self.rng.integers(len(self.edges)))
            self.edges[place], self.edges[-1] = self.edges[-1], self.edges[place]
            return self._of_edge("del_edge", *self.edges.pop())
        return self._features("set_features", int(self.rng.integers(len(KINDS))), int(self.rng.integers(self.size)))

    def _edge(self) -> tuple[Row, Row]:
        relation, (src, dst) = int(self.rng.integers(len(ENDS))), self.rng.integers(self.size, size=2)
        self.edges.append((relation, int(src), int(dst)))
        return self._of_edge("add_edge", *self.edges[-1])

    def _of_edge(self, op: str, relation: int, src: int, dst: int) -> tuple[Row, Row]:
        a, b = ENDS[relation]
        weight = [1.0] if op == "add_edge" else []
        return (op, src, dst, *weight, f"type_{relation}"), (op, self._one(a, src), self._one(b, dst), *weight)

    def _features(self, op: str, kind: int, vertex: int) -> tuple[Row, Row]:
        x = self.rng.standard_normal(self.width, np.float32).tolist()
        return (op, (KINDS[kind], vertex), x), (op, self._one(kind, vertex), x)

    def _one(self, kind: int, vertex: int) -> int:
        return kind * self.size + vertex


class Job:
    """The operators of one part, from the Partitioner to the last Storage."""

    def __init__(self, plan: AnyPlan) -> None:
        self.plan, self.epoch = plan, 0
        settings = Settings("", "", 1, PartitionerConfig(), sealing=SealingConfig())
        self.partitioner = Partitioner(1, plan.features, settings.partitioning, TaskParts.dealt(1, 1))
        rows = [row for row in dataflow_of(settings, plan).staged if row.kind != SINK]
        self.cores = [make_core(settings, plan, row, 0) for row in rows]

    def take(self, rows: list[Row], size: int) -> list[Events]:
        """Return the rows as epochs of that many events."""
        return [
            events_of(rows[k : k + size], self.plan.features, "int", self.plan.edge_types or None)
            for k in range(0, len(rows), size)
        ]

    def run(self, epochs: list[Events]) -> float:
        """Run these epochs; returns the seconds of processor time."""
        gc.collect()
        begin = time.process_time()
        for events in epochs:
            self.epoch += 1
            change = self.partitioner.partition(events)
            (block,) = self.partitioner.split(change, control_values(), self.epoch)
            for core in self.cores:
                (message,) = core.apply(self.epoch, [block])
                assert isinstance(message.block, Block)
                block = message.block
        return time.process_time() - begin


def jobs(widths: list[int], returned: int) -> tuple[Job, Job]:
    """Return the job with kinds, which returns the first of them, and that without."""
    width, hidden, out = widths
    of_kinds, relu = dict.fromkeys(KINDS, width), [{"type": "relu"}]
    layers = [sage_everywhere(of_kinds, hidden, RELATIONS, aggr="mean"), by_kind(**dict.fromkeys(KINDS, relu))]
    layers.append(sage_everywhere(dict.fromkeys(KINDS, hidden), out, RELATIONS, aggr="mean"))
    model = kinds_model(layers, KINDS[:returned], of_kinds, RELATIONS)
    sage = {"type": "sage_conv", "aggr": "mean"}
    fields: list[dict[str, Any]] = [
        sage | {"in_channels": width, "out_channels": hidden},
        *relu,
        sage | {"in_channels": hidden, "out_channels": out},
    ]
    rng, sizes = np.random.default_rng(0), {0: (width, hidden), 2: (hidden, out)}
    weights = {
        f"layers.{k}.{name}": rng.standard_normal((b, a) if name.endswith("weight") else b).astype(np.float32) / 8
        for k, (a, b) in sizes.items()
        for name in ("lin_l.weight", "lin_l.bias", "lin_r.weight")
    }
    plain = build_model(layers=fields, head=[], edge_types=[], weights=weights)
    return Job(compile_any(model)), Job(compile_any(plain))


def main() -> None:
    """Measure, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=15_000)
    parser.add_argument("--edges", type=int, default=75_000)
    parser.add_argument("--widths", type=int, nargs=3, default=[64, 64, 32], metavar=("IN", "HIDDEN", "OUT"))
    parser.add_argument("--kinds", type=int, default=3, help="how many kinds are returned")
    parser.add_argument("--epochs", nargs="+", type=int, default=[1000, 1], metavar="EVENTS")
    parser.add_argument("--events", type=int, default=5000, help="of a slice; of epochs of one event a tenth")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--profile", action="store_true", help="print where a slice of the job with kinds spends its time"
    )
    options = parser.parse_args()
    use_one_thread()
    stream, both = Stream(options.vertices, options.widths[0]), jobs(options.widths, options.kinds)
    begun = stream.begin(options.edges)
    for k, job in enumerate(both):
        job.run(job.take([one[k] for one in begun], len(begun)))
    first = stream.more(10 * (CHECKED_FIRST + 1))  # epochs whose calls of kernels are compared with the first one
    for k, job in enumerate(both):
        job.run(job.take([one[k] for one in first], 10))
    for size in options.epochs:
        events, found = options.events // (10 if size == 1 else 1), [list[float](), list[float]()]
        for number in range(options.rounds + 1):
            rows = stream.more(events)
            for k in (0, 1) if number % 2 else (1, 0):
                figure = 1e6 * both[k].run(both[k].take([one[k] for one in rows], size)) / events
                found[k] += [figure] if number else []
        ratios = [a / b for a, b in zip(*found, strict=True)]
        of_kinds, plain = (round(statistics.median(one), 2) for one in found)
        told = {"events": size, "kinds_us": of_kinds, "plain_us": plain, "ratio": round(statistics.median(ratios), 3)}
        print(orjson.dumps(told | {"ratios": [round(one, 3) for one in ratios]}).decode(), flush=True)
        if options.profile:
            epochs, profile = (
                both[0].take([one for one, _ in stream.more(events)], size),
                cProfile.Profile(time.process_time),
            )
            profile.runcall(both[0].run, epochs)
            pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(28)


if __name__ == "__main__":
    main()
