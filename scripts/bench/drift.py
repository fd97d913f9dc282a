"""Drift of a Storage's sums after long streams, channel by channel: `drift.py --plot drift.png`.

Each stream goes through the cores as blocks, and the sums are compared with sums in 80 bits over the same edges and
values; `softmax` has those of a GATConv of two heads, `moments` variances. An error is relative to the magnitude of the
terms (a channel's own scale), so 1e-7 is float32's own rounding; that of a variance is relative to itself plus 2^-24 of
the mean square, its change when values change by half an ulp. `--save` keeps the figures, `--before FILE` draws those
of another version beside them. Exit 1 past the tolerance.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.layers.base import LayerPlan
from freshet.gnn.model import build_model
from freshet.gnn.plan import compile_plan
from freshet.operators.aggregates.sums.store import SumStore
from freshet.operators.control import control_values
from freshet.operators.graph.part_rows import frozen
from freshet.operators.storage.layer import LayerStorage
from freshet.operators.storage.shape import LayerShape
from freshet.state.block_columns import SYNC
from freshet.state.codec import Block, Header
from freshet.state.task_parts import TaskParts
from scripts.plots.picture import picture, pyplot

ROOT = Path(__file__).resolve().parents[2]
QUIET = control_values()


class Sums:
    """A Storage of one part, and the same graph as plain arrays.

    Shapes: values (vertices, width) float32; edges are numbered, `present` says which are there.
    """

    def __init__(self, vertices: int, src: np.ndarray, dst: np.ndarray, width: int) -> None:
        self.layer = self._layer(width)
        self.core = LayerStorage(LayerShape(0, TaskParts.dealt(1, 1), 1, self.layer, None))
        self.src, self.dst = src.astype(np.int32), dst.astype(np.int32)
        self.values = np.zeros((vertices, self.layer.message_width), np.float32)
        self.present = np.zeros(src.size, bool)
        self.epoch = 0
        slots = np.arange(vertices, dtype=np.int32)
        self._apply({"m_slot": slots, "m_key": slots.astype(np.int64)})

    def _layer(self, width: int) -> LayerPlan:
        spec = {"type": "graph_conv", "in_channels": width, "out_channels": width, "edge_weights": False}
        eye, zeros = np.eye(width, dtype=np.float32), np.zeros((width, width), np.float32)
        weights = {f"layers.0.{name}": value for name, value in (("lin_rel.weight", eye), ("lin_root.weight", zeros))}
        weights["layers.0.lin_rel.bias"] = np.zeros(width, np.float32)
        return compile_plan(build_model(layers=[spec], head=[], edge_types=[], weights=weights)).layers[0]

    def step(self, changed: np.ndarray, rows: np.ndarray, add: np.ndarray, drop: np.ndarray) -> int:
        """One epoch; returns how many updates it had."""
        self.values[changed] = rows
        self.present[add], self.present[drop] = True, False
        columns = {"o_slot": changed.astype(np.int32), "zo": self._sent(rows)}
        for name, edges in (("add", add), ("del", drop)):
            ones = np.ones(edges.size, np.float32)
            columns |= {f"{name}_src": self.src[edges], f"{name}_dst": self.dst[edges], f"{name}_w": ones}
        self._apply(columns)
        return int(changed.size + add.size + drop.size)

    def _sent(self, rows: np.ndarray) -> np.ndarray:
        own = np.zeros((len(rows), self.layer.self_width), np.float32)
        return np.concatenate([rows, own], axis=1)

    def _apply(self, columns: dict[str, np.ndarray]) -> None:
        self.epoch += 1
        given = {name: frozen(column.view()) for name, column in columns.items()}  # as a block's columns are
        self.core.apply(self.epoch, [Block(Header(SYNC, self.epoch, 0, 0, 0), {"ctl": QUIET, **given})])

    def errors(self) -> np.ndarray:
        """The largest error of each channel beside its scale, over all vertices with in-edges."""
        src, dst = self.src[self.present], self.dst[self.present]
        true = np.zeros(self.values.shape, np.longdouble)
        scale = np.zeros(self.values.shape, np.float64)
        np.add.at(true, dst, self.values[src].astype(np.longdouble))
        np.add.at(scale, dst, np.abs(self.values[src].astype(np.float64)))
        kept = self.core.relations[0].store
        assert isinstance(kept, SumStore)
        got = kept.s.data[: len(true)]
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.where(scale > 0, np.abs(got - true) / scale, np.where(got != 0, np.inf, 0.0))
        return off.max(axis=0).astype(np.float64)


class Softmaxes(Sums):
    """The softmax sums of a GATConv of two heads; a row is [values | source's terms | target's terms]."""

    HEADS = 2

    def _layer(self, width: int) -> LayerPlan:
        spec = {"type": "gat_conv", "in_channels": width, "out_channels": width, "heads": self.HEADS}
        shapes = {
            "lin.weight": (width, width),
            "att_src": (2, width // 2),
            "att_dst": (2, width // 2),
            "bias": (width,),
        }
        weights = {f"layers.0.{name}": np.zeros(shape, np.float32) for name, shape in shapes.items()}
        return compile_plan(build_model(layers=[spec], head=[], edge_types=[], weights=weights)).layers[0]

    def errors(self) -> np.ndarray:
        """The largest error of each channel of N / D beside its scale, over all vertices with in-edges."""
        src, dst = self.src[self.present], self.dst[self.present]
        n, width = len(self.values), self.layer.out_width
        wide = self.values.astype(np.longdouble)
        logits = wide[src, width : width + self.HEADS] + wide[dst, width + self.HEADS :]
        logits = np.where(logits > 0, logits, np.longdouble(np.float32(0.2)) * logits)
        most = np.full((n, self.HEADS), -np.inf, np.longdouble)
        np.maximum.at(most, dst, logits)
        share = np.exp(logits - most[dst])
        total = np.zeros_like(most)
        np.add.at(total, dst, share)
        alpha = np.repeat(share / total[dst], width // self.HEADS, axis=1)
        true, scale = np.zeros((n, width), np.longdouble), np.zeros((n, width), np.longdouble)
        np.add.at(true, dst, alpha * wide[src, :width])
        np.add.at(scale, dst, alpha * np.abs(wide[src, :width]))
        state = self.core.relations[0].store.read(np.arange(n, dtype=np.int32))
        got = self.layer.synopsis.read(state, np.empty(0, np.int32))
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.where(scale > 0, np.abs(got - true) / scale, np.where(got != 0, np.inf, 0.0))
        return off.max(axis=0).astype(np.float64)


class Variances(Sums):
    """The variances of a GraphConv."""

    def _layer(self, width: int) -> LayerPlan:
        spec = {"type": "graph_conv", "in_channels": width, "out_channels": width, "aggr": "var", "edge_weights": False}
        shapes = {"lin_rel.weight": (width, width), "lin_root.weight": (width, width), "lin_rel.bias": (width,)}
        weights = {f"layers.0.{name}": np.zeros(shape, np.float32) for name, shape in shapes.items()}
        return compile_plan(build_model(layers=[spec], head=[], edge_types=[], weights=weights)).layers[0]

    def errors(self) -> np.ndarray:
        """The largest error of each channel beside its scale, over all vertices with in-edges."""
        src, dst = self.src[self.present], self.dst[self.present]
        messages, n = self.values[src].astype(np.longdouble), len(self.values)
        count = np.maximum(np.bincount(dst, minlength=n), 1)[:, None]
        mean, true, scale = (np.zeros(self.values.shape, np.longdouble) for _ in range(3))
        np.add.at(mean, dst, messages / count[dst])
        np.add.at(true, dst, (messages - mean[dst]) ** 2 / count[dst])
        np.add.at(scale, dst, messages**2 / count[dst])
        scale = true + scale * 2.0**-24
        state = self.core.relations[0].store.read(np.arange(n, dtype=np.int32))
        got = self.layer.synopsis.read(state, np.empty(0, np.int32))
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.where(scale > 0, np.abs(got - true) / scale, np.where(got != 0, np.inf, 0.0))
        return off.max(axis=0).astype(np.float64)


@dataclass
class Run:
    """Errors in a stream: by number of updates, the error of each channel."""

    name: str
    updates: list[int] = field(default_factory=list)
    errors: list[list[float]] = field(default_factory=list)
    seconds: float = 0.0

    def sample(self, updates: int, sums: Sums) -> None:
        """Take the errors now."""
        self.updates.append(updates)
        self.errors.append(sums.errors().tolist())


NONE = np.empty(0, np.int64)
Steps = Iterator[tuple[Sums, int]]


def stagnation(updates: int) -> Steps:
    """A hub of 10,000 whose neighbours all grow by 0.03% a step."""
    n, width = 10_000, 4
    sums = Sums(n + 1, np.arange(1, n + 1), np.zeros(n, np.int64), width)
    sources = np.arange(1, n + 1)
    yield sums, sums.step(sources, np.full((n, width), 10, np.float32), np.arange(n), NONE)
    for step in range(1, updates // n):
        yield sums, sums.step(sources, np.full((n, width), 10 + 0.003 * step, np.float32), NONE, NONE)


def ratchet(updates: int) -> Steps:
    """A heavy neighbour comes, light ones come, it goes, they go; over and over."""
    n, width = 2000, 4
    sums = Sums(n + 2, np.arange(1, n + 2), np.zeros(n + 1, np.int64), width)
    rng = np.random.default_rng(1)
    heavy, light = np.array([0]), np.arange(1, n + 1)
    sums.step(np.arange(1, n + 2), 1e-3 * rng.random((n + 1, width)).astype(np.float32), NONE, NONE)
    sums.step(np.array([1]), np.full((1, width), 20_000, np.float32), NONE, NONE)
    nothing = np.empty((0, width), np.float32)
    done = 0
    while done < updates:
        for add, drop in ((heavy, NONE), *((light[k::20], NONE) for k in range(20)), (NONE, heavy)):
            count = sums.step(NONE, nothing, add, drop)
            done += count
            yield sums, count
        for k in range(20):
            count = sums.step(NONE, nothing, NONE, light[k::20])
            done += count
            yield sums, count


def spikes(updates: int) -> Steps:
    """One channel is large for good, the others spike, by powers of ten up to 1e37, and come back."""
    width = 4
    sums = Sums(3, np.array([1, 2]), np.array([0, 0]), width)
    sums.step(np.array([1]), np.array([[5e7, 18.7, 18.7, 18.7]], np.float32), np.array([0]), NONE)
    for step in range(updates // 3):
        spike = 10.0 ** (step * 3 * 37 // updates) * np.array([0.0, 1.0, 3.0, -7.0])
        count = sums.step(np.array([2]), spike[None].astype(np.float32), np.array([1]), NONE)
        yield sums, count + sums.step(NONE, np.empty((0, width), np.float32), NONE, np.array([1]))


def everything(updates: int, kept: type[Sums] = Sums) -> Steps:
    """One vertex set under all kinds of changes: 1,000 vertices, 20,000 possible edges, values over six decades."""
    n, m, width, batch = 1000, 20_000, 16, 500
    rng = np.random.default_rng(2)
    dst = np.minimum(rng.pareto(1.2, m) * 20, n - 1).astype(np.int64)
    sums = kept(n, rng.integers(0, n, m), dst, width)
    decades = 10.0 ** np.linspace(-3, 3, width)
    yield sums, sums.step(np.arange(n), (rng.standard_normal((n, width)) * decades).astype(np.float32), NONE, NONE)
    for _ in range(updates // batch):
        edges = rng.choice(m, batch // 2, replace=False)
        changed = rng.choice(n, batch // 2, replace=False)
        rows = rng.standard_normal((changed.size, width)) * decades * 10.0 ** rng.integers(-1, 2, (changed.size, 1))
        here = sums.present[edges]
        yield sums, sums.step(changed, rows.astype(np.float32), edges[~here], edges[here])


def moments(updates: int) -> Steps:
    """The same for variances."""
    return everything(updates, Variances)


def softmax(updates: int) -> Steps:
    """The same for attention: scores over some 20 nats, values over six decades, neighbours that hold nearly all."""
    n, m, width, batch = 1000, 20_000, 16, 500
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, n, m), np.minimum(rng.pareto(1.2, m) * 20, n - 1).astype(np.int64)
    edges = src != dst
    sums = Softmaxes(n, src[edges], dst[edges], width)
    decades = 10.0 ** np.linspace(-3, 3, width)

    def rows(count: int) -> np.ndarray:
        values = rng.standard_normal((count, width)) * decades * 10.0 ** rng.integers(-1, 2, (count, 1))
        terms = rng.standard_normal((count, 4)) * 10.0 ** rng.uniform(-1, 1, (count, 1))
        return np.concatenate([values, terms], axis=1).astype(np.float32)

    yield sums, sums.step(np.arange(n), rows(n), NONE, NONE)
    for _ in range(updates // batch):
        some = rng.choice(sums.src.size, batch // 2, replace=False)
        changed = rng.choice(n, batch // 2, replace=False)
        here = sums.present[some]
        yield sums, sums.step(changed, rows(changed.size), some[~here], some[here])


STREAMS: dict[str, Callable[[int], Steps]] = {
    "stagnation": stagnation,
    "ratchet": ratchet,
    "spikes": spikes,
    "everything": everything,
    "moments": moments,
    "softmax": softmax,
}


def run(name: str, updates: int, samples: int) -> Run:
    """Take a stream through and sample its errors."""
    found, done, began = Run(name), 0, time.perf_counter()
    for sums, count in STREAMS[name](updates):
        done += count
        if done >= len(found.updates) * updates / samples:
            found.sample(done, sums)
            print(f"\r{name}: {done:,} updates, error {max(found.errors[-1]):.1e}", end="", file=sys.stderr, flush=True)
    found.sample(done, sums)
    found.seconds = round(time.perf_counter() - began, 1)
    print(file=sys.stderr)
    return found


def plot(runs: list[dict[str, Any]], before: list[dict[str, Any]], path: Path) -> None:
    """The error of each channel over the updates, before (grey) and after (blue)."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(runs), figsize=(4.2 * len(runs), 3.6), sharey=True, squeeze=False)
    for axis, one in zip(axes[0], runs, strict=True):
        former = [other for other in before if other["name"] == one["name"]]
        for shown, color, label in [*((f, "0.6", "before") for f in former), (one, "tab:blue", "now")]:
            errors = np.maximum(np.array(shown["errors"]), 1e-19)
            lines = axis.semilogy(shown["updates"], np.minimum(errors, 1e3), color=color, lw=1)
            lines[0].set_label(label)
        axis.axhline(2.0**-24, color="tab:red", lw=0.8, ls=":", label="half an ulp of float32")
        axis.set(title=one["name"], xlabel="updates")
    axes[0][0].set_ylabel("error of a channel / its scale")
    axes[0][-1].legend(loc="upper right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> int:
    """Run the streams, print a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1_000_000, help="updates of each stream")
    parser.add_argument("--samples", type=int, default=50, help="how often errors are taken")
    parser.add_argument("--streams", nargs="+", default=list(STREAMS), choices=list(STREAMS))
    bound = 2.0**-20  # of docs/design/sums.md
    parser.add_argument("--tolerance", type=float, default=bound, help="largest error beside a scale (default: 2^-20)")
    parser.add_argument("--save", type=Path, help="write the figures as JSON")
    parser.add_argument("--before", type=Path, help="figures of another version, to draw beside")
    parser.add_argument("--plot", type=picture, help="draw them to this file")
    options = parser.parse_args()
    runs = [vars(run(name, options.updates, options.samples)) for name in options.streams]
    if options.save:
        options.save.write_bytes(orjson.dumps(runs))
    if options.plot:
        plot(runs, orjson.loads(options.before.read_bytes()) if options.before else [], options.plot)
    worst = {one["name"]: float(np.max(one["errors"])) for one in runs}
    seconds = {one["name"]: one["seconds"] for one in runs}
    print(orjson.dumps({"updates": options.updates, "worst": worst, "seconds": seconds}).decode(), flush=True)
    return 0 if max(worst.values()) <= options.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
