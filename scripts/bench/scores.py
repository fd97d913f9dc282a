"""Latency of scores of pairs beside that of lookups, over Flight and HTTP, by turns against one `freshet serve`.

    .venv/bin/python scripts/bench/scores.py --vertices 170000 --rounds 200

The server has users and items with rows of 40 numbers that do not change meanwhile, and the link head is a network of
two layers on both rows side by side. Prints a table of medians and first deciles in ms, and one JSON line.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet import EmbeddingClient
from freshet.state.block_columns import DTYPES, POSITIONS, ROWS, kind_prefix
from freshet.state.codec import Block, Header
from tests.support.graphs.kinds import KINDS, kinds_model, sage_everywhere
from tests.support.serving.kinds_job import HandKinds
from tests.support.serving.server import Server
from tests.support.stages.sunk import control

WIDTH, MANY = 40, 1_000
SERVED = ("user", "item")


class Head(torch.nn.Module):
    """A network on both rows side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2 * WIDTH, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Score pairs of rows."""
        scores: torch.Tensor = self.layers(torch.cat([left, right], -1))
        return scores


class Large(HandKinds):
    """Users and items, as many of each."""

    def model(self, seed: int, head: bool) -> Any:
        """The model without link heads."""
        return kinds_model([sage_everywhere(KINDS, WIDTH)], SERVED, KINDS, seed=seed)

    def fill(self, vertices: int) -> None:
        """Write epoch 1, which has all rows."""
        rng = np.random.default_rng(1)
        for part, sink in enumerate(self.sinks):
            columns: dict[str, np.ndarray] = {"ctl": control(arrival=1)}
            keys = np.arange(part, vertices, len(self.sinks), dtype=np.int64)
            for kind in SERVED:
                prefix = kind_prefix([*KINDS].index(kind))
                columns[f"{prefix}key"] = keys
                columns[f"{prefix}row"] = rng.standard_normal((len(keys), WIDTH)).astype(np.float32)
            if part == 0:
                positions = zip(POSITIONS, (0, 0, 10, 10), strict=True)
                columns |= {name: np.array([value], DTYPES[name]) for name, value in positions}
            sink.apply(1, [Block(Header(ROWS, 1, 1, 0), columns)])


def calls(at: dict[str, Any], vertices: int) -> dict[tuple[str, str], Callable[[], object]]:
    """Calls to measure, by name and way; all ids are others each time."""
    rng, client = np.random.default_rng(2), EmbeddingClient(at["flight"], kind="user", timeout=60)
    http = httpx.Client(base_url=f"http://{at['http']}", timeout=60, trust_env=False)

    def ids(count: int) -> np.ndarray:
        return rng.integers(0, vertices, count)

    def pairs(count: int) -> list[list[int]]:
        found: list[list[int]] = ids(2 * count).reshape(-1, 2).tolist()
        return found

    def post(path: str, **body: Any) -> None:
        http.post(path, json=body).raise_for_status()

    return {
        ("1 id", "Flight"): lambda: client.rows(ids(1)),
        ("1 pair", "Flight"): lambda: client.score(np.array(pairs(1))),
        ("1,000 ids", "Flight"): lambda: client.rows(ids(MANY)),
        ("1,000 pairs", "Flight"): lambda: client.score(np.array(pairs(MANY))),
        ("1 id", "HTTP"): lambda: http.get(f"/embeddings/{ids(1)[0]}", params={"kind": "user"}).raise_for_status(),
        ("1 pair", "HTTP"): lambda: post("/v1/score", pairs=pairs(1)),
        ("1,000 ids", "HTTP"): lambda: post("/embeddings", ids=ids(MANY).tolist(), kind="user"),
        ("1,000 pairs", "HTTP"): lambda: post("/v1/score", pairs=pairs(MANY)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=170_000, help="of each kind")
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "O"
        job = Large(out, link_head={SERVED: Head()})
        job.fill(options.vertices)
        server = Server(out, of=("--tables", str(out / "tables"), "--kind", ",".join(SERVED)), kind=SERVED[1])
        try:
            measured = calls(server.start(), options.vertices)
            times: dict[tuple[str, str], list[float]] = {name: [] for name in measured}
            for number in range(options.rounds + 5):
                for name, call in measured.items():  # by turns: all are slowed alike by what else runs
                    began = time.perf_counter()
                    call()
                    if number >= 5:
                        times[name].append(1e3 * (time.perf_counter() - began))
        finally:
            server.end()
            job.close()
    shown = {
        name: [statistics.median(one), statistics.quantiles(one, n=10, method="inclusive")[0]]
        for name, one in times.items()
    }
    print("| p50 / p10 | Flight | HTTP |\n|---|---|---|")
    for what in dict.fromkeys(what for what, _ in shown):
        by_way = (" / ".join(f"{one:.2f}" for one in shown[what, way]) for way in ("Flight", "HTTP"))
        print(f"| {what} | {' | '.join(f'{one} ms' for one in by_way)} |")
    rounded = {f"{what}, {way}": [round(one, 3) for one in found] for (what, way), found in shown.items()}
    load = [round(one, 1) for one in os.getloadavg()]
    print(orjson.dumps({"vertices": options.vertices, "rounds": options.rounds, "ms": rounded, "load": load}).decode())


if __name__ == "__main__":
    main()
