"""Cost of keys of edges: bytes an edge, speed beside edges without keys, and pairs with many parallel edges.

    .venv/bin/python scripts/bench/edge_keys.py                       # 200,000 edges, 100,000 parallel ones
    .venv/bin/python scripts/bench/edge_keys.py --edges 20000 --parallel 10000 --rounds 2

The cores run in one thread (engine.py), of two layers whose messages are weighted and one that counts. Keyless jobs and
those with keys take the same distinct edges, in turn. Times of parallel edges are those of an event in epochs of a
hundred: of a pair with few parallel edges, and with many; likewise of self-loops of one vertex. The destination of the
pair is a hub, which is split where there are several parts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.partitioner.config import EDGE_KEYS, PartitionerConfig
from freshet.partitioner.events import OP_ADD_EDGE, OP_DEL_EDGE, Events
from freshet.partitioner.ids import Ids
from freshet.schema import WEIGHT, EdgeValues
from scripts.bench.engine import Cores, events_of
from tests.support.graphs.models import IN_WIDTH, conv, make_model

LAYERS = (
    conv("graph_conv", IN_WIDTH, 16),
    {"type": "relu"},
    conv("graph_conv", 16, 16),
    {"type": "relu"},
    conv("sage_conv", 16, 8),
)
SIZES, EPOCH = (1, 100, 1000), 100
_OF_GRAPH = "edge", "edge_key"


def keys_of(kind: str, numbers: np.ndarray) -> Ids | None:
    """Return a key for each number; none without a kind."""
    if not kind:
        return None
    return Ids.of_ints(numbers) if kind == "int" else Ids.of_strings([f"payment-{number}" for number in numbers])


def cores(kind: str, parts: int = 1) -> Cores:
    """Return the cores of a job whose edges have such keys."""
    return Cores(make_model(1, LAYERS), parts, PartitionerConfig(edge_keys=kind, hybrid_threshold=100))


def epochs(
    op: int, src: np.ndarray, dst: np.ndarray, kind: str, numbers: np.ndarray, size: int = EPOCH, weight: float = 1.0
) -> Iterator[Events]:
    """Yield events of one kind about these edges."""
    for first in range(0, src.size, size):
        of = slice(first, first + size)
        n = src[of].size
        values = EdgeValues(n, {WEIGHT: np.full(n, weight, np.float32)})
        none = np.full(n, -1)
        x = np.empty((0, IN_WIDTH), np.float32)
        yield events_of(np.full(n, op), src[of], dst[of], none, x, values, keys_of(kind, numbers[of]))


def timed(engine: Cores, given: Iterator[Events]) -> float:
    """Take all epochs, and return the microseconds of an event."""
    every = list(given)
    begin = perf_counter()
    for events in every:
        engine.take(events)
    return (perf_counter() - begin) * 1e6 / max(1, sum(map(len, every)))


def graph(edges: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of distinct edges, in random order."""
    rng, vertices = np.random.default_rng(1), max(2, edges // 2)
    pairs = np.unique(rng.integers(0, vertices**2, edges + edges // 8))
    pairs = rng.permutation(pairs)[:edges]
    return pairs // vertices, pairs % vertices


def show_distinct(edges: int, rounds: int) -> None:
    """Print bytes an edge, and the speeds of the same events."""
    src, dst = graph(edges)
    held, numbers = edges * 3 // 4, np.arange(edges)
    engines = {kind: cores(kind) for kind in EDGE_KEYS}
    for kind, engine in engines.items():
        for events in epochs(OP_ADD_EDGE, src[:held], dst[:held], kind, numbers[:held], 10_000):
            engine.take(events)
        tables = {table.name: table for table in engine.partitioner.tables}
        own = sum(tables[name].nbytes for name in _OF_GRAPH if name in tables) / held
        words = tables["words"].nbytes / held
        layers = " ".join(f"{engine.edge_bytes(layer):.0f}" for layer in engine.layers)
        index = engine.partitioner.index_bytes / held
        print(f"{kind or 'no':6} keys, bytes an edge: graph {own:.0f}, texts {words:.0f}, index {index:.0f}; ", end="")
        print(f"layers {layers}")
    for size in SIZES:
        n = min(edges - held, 40 * size if size > 1 else 400)
        of = slice(held, held + n)
        found: dict[str, list[float]] = {kind: [] for kind in EDGE_KEYS}
        for round_ in range(rounds + 1):
            for kind, engine in engines.items():
                steps = [
                    timed(engine, epochs(op, src[of], dst[of], kind, numbers[of], size, weight))
                    for op, weight in ((OP_ADD_EDGE, 1.0), (OP_ADD_EDGE, 2.0), (OP_DEL_EDGE, 1.0))
                ]
                found[kind] += [sum(steps) / 3] if round_ else []
        best = {kind: min(times) for kind, times in found.items()}
        text = ", ".join(f"{kind or 'no'} keys {1e6 / us:,.0f} ({best[''] / us - 1:+.1%})" for kind, us in best.items())
        print(f"epochs of {size}: events/s {text}")


def show_parallel(parallel: int, parts: int, dst: int) -> None:
    """Print the cost of an event about a pair, from vertex 1, with few and with many parallel edges."""
    for kind in EDGE_KEYS[1:]:
        _show_pair(cores(kind, parts), kind, parallel, parts, dst)


def _show_pair(engine: Cores, kind: str, parallel: int, parts: int, dst: int) -> None:
    few = 10 * EPOCH
    numbers = np.arange(parallel)
    ends = np.ones(parallel, np.int64), np.full(parallel, dst)
    around = np.arange(3, 3 + few)
    for events in epochs(OP_ADD_EDGE, around, np.full(few, dst), kind, around, 1000):  # a hub, split in many parts
        engine.take(events)

    def step(op: int, first: int, last: int, weight: float) -> float:
        src, to = (one[first:last] for one in ends)
        return timed(engine, epochs(op, src, to, kind, numbers[first:last], weight=weight))

    def all_steps(first: int, last: int) -> list[float]:
        added = step(OP_ADD_EDGE, first, last, 1.0)
        return [added, step(OP_ADD_EDGE, first, last, 2.0), step(OP_DEL_EDGE, first, last, 1.0)]

    all_steps(0, few)
    one, added = all_steps(0, few), step(OP_ADD_EDGE, 0, parallel - few, 1.0)
    many = all_steps(parallel - few, parallel)
    other = timed(engine, epochs(OP_ADD_EDGE, around, np.full(few, dst), kind, around, weight=3.0))
    changed = step(OP_ADD_EDGE, 0, parallel - few, 2.0)
    deleted = step(OP_DEL_EDGE, 0, parallel - few, 1.0)
    what = "self-loops" if dst == 1 else "parallel edges"
    words = ["/".join(f"{us:.1f}" for us in of) for of in (one, many, [added, changed, deleted])]
    print(f"{parts} part(s), {kind} keys, {what}: us to add/change/delete one of {few:,}: {words[0]}; ", end="")
    print(f"of {parallel:,}: {words[1]}; each of these: {words[2]}; another in-edge there: {other:.1f}")


def main() -> int:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=200_000, help="distinct edges (default: %(default)s)")
    parser.add_argument("--parallel", type=int, default=100_000, help="edges of one pair (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the speeds (default: %(default)s)")
    parser.add_argument("--parts", type=int, nargs="*", default=[1, 4], help="parts of the hub (default: 1 4)")
    options = parser.parse_args()
    show_distinct(options.edges, options.rounds)
    for dst in (2, 1):
        for parts in options.parts:
            show_parallel(options.parallel, parts, dst)
    return 0


if __name__ == "__main__":
    sys.exit(main())
