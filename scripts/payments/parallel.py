"""Compares a job on a table of payments with the user's own model: `python scripts/payments/parallel.py [--folder F]`.

The table is as people have it: `payments.parquet` with a row for each payment (payment_id, payer, payee, amount, hour,
by_card), a quarter of whose pairs of accounts repeat, and `accounts.parquet`. `freshet run` reads both through
`events-map`, where `key: payment_id` makes each payment an edge, and `freshet serve` answers with the rows. They are
compared with those of the module itself in float64, on a `Data` in which each payment is a column of `edge_index`.

Prints a line of JSON: rows compared, the largest difference (and of the largest value), seconds, and how many rows a
graph with the last payment of each pair alone gets wrong. Ends with 1 if a row is missing or differs. Needs torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet import EmbeddingClient, export_model
from freshet.job.dev.script import unwind_at_signals
from tests.support.runs.jobs import FRESHET

FEATURES = ("business", "balance", "years")
ATTRIBUTES = ("amount", "hour", "by_card")
WIDTH = 16
SERVE_S = 300.0  # for the first answer
REPEATED = 0.25  # share of the pairs that have several payments
EQUAL = 1e-5  # largest difference, of the largest value
EVENTS_MAP = [
    {"when": "account", "op": "`add_vertex`", "id": "account", "x": f"[{', '.join(FEATURES)}]"},
    {"when": "payer", "op": "`add_edge`", "src": "payer", "dst": "payee", "key": "payment_id"}
    | {"attr": f"[{', '.join(ATTRIBUTES)}]"},
]
Figures = dict[str, Any]


class Scorer(nn.Module):
    """Two GINEConvs that read the attributes of payments, and an embedding of each account."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = _gine(len(FEATURES)), _gine(WIDTH)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
        """Return the embeddings, (accounts, WIDTH)."""
        return self.second(torch.relu(self.first(x, edge_index, edge_attr)), edge_index, edge_attr)


def _gine(width: int) -> GINEConv:
    return GINEConv(
        nn.Sequential(nn.Linear(width, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)), edge_dim=len(ATTRIBUTES)
    )


def make_tables(accounts: int, payments: int, seed: int) -> tuple[pa.Table, pa.Table]:
    """Return the accounts and the payments, in an order in which a pair's payments are not beside each other."""
    rng = np.random.default_rng(seed)
    once = round(payments / (1 + 2 * REPEATED))  # pairs, of which REPEATED have two to four payments, three on average
    pairs = np.unique(rng.integers(0, accounts, (2 * once, 2)), axis=0)
    pairs = rng.permutation(pairs[pairs[:, 0] != pairs[:, 1]])[:once]
    several = round(REPEATED * len(pairs))
    more = np.repeat(pairs[:several], rng.integers(1, 4, several), axis=0)
    rows = np.concatenate([pairs, more])[:payments]
    rest = payments - len(rows)  # what chance has left open: further payments of repeated pairs
    rows = rng.permutation(np.concatenate([rows, pairs[rng.integers(0, several, rest)]]))
    columns = {
        "payment_id": 1_000_000 + rng.permutation(payments),
        "payer": rows[:, 0],
        "payee": rows[:, 1],
        "amount": np.round(rng.lognormal(0, 1, payments), 2),
        "hour": np.round(rng.uniform(0, 1, payments), 3),
        "by_card": rng.integers(0, 2, payments).astype(np.float64),
    }
    known = {"account": np.arange(accounts), "business": rng.integers(0, 2, accounts).astype(np.float64)}
    known |= {"balance": np.round(rng.normal(3, 1, accounts), 2), "years": np.round(rng.exponential(4, accounts), 1)}
    return pa.table(known), pa.table(columns)


def data_of(accounts: pa.Table, payments: pa.Table) -> Data:
    """Return the tables as a user of PyTorch Geometric has them: a column of `edge_index` for each payment."""

    def columns(table: pa.Table, names: tuple[str, ...]) -> torch.Tensor:
        # what float32 holds, as the job has it
        return torch.from_numpy(np.stack([table[name].to_numpy().astype(np.float32) for name in names], 1)).double()

    ends = np.stack([payments[end].to_numpy() for end in ("payer", "payee")])
    edge_index = torch.from_numpy(ends)
    return Data(x=columns(accounts, FEATURES), edge_index=edge_index, edge_attr=columns(payments, ATTRIBUTES))


def last_of_each_pair(data: Data) -> Data:
    """Return the graph that keeps the last payment of each pair alone."""
    ends = data.edge_index.numpy()[:, ::-1]
    _, last = np.unique(ends, axis=1, return_index=True)
    kept = torch.from_numpy(np.sort(ends.shape[1] - 1 - last))
    return Data(x=data.x, edge_index=data.edge_index[:, kept], edge_attr=data.edge_attr[kept])


def rows_of(model: Scorer, data: Data) -> np.ndarray:
    """Return the module's rows in float64."""
    with torch.no_grad():
        return model.double()(data.x, data.edge_index, data.edge_attr).numpy()


def run(folder: Path, runtime: str) -> Figures:
    """Run the job; returns its summary."""
    (folder / "map.yaml").write_text(yaml.safe_dump({"events-map": EVENTS_MAP}))
    events = [word for name in ("accounts", "payments") for word in ("--events", folder / f"{name}.parquet")]
    given = ["--model", folder / "model", *events, "--config", folder / "map.yaml", "--out", folder / "out"]
    command = [FRESHET, "run", *given, "--runtime", runtime, "--edge-key", "key"]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"freshet run: exit {done.returncode}")
    found: Figures = orjson.loads(done.stdout.splitlines()[-1])
    return found


def served(folder: Path, accounts: int, epoch: int) -> np.ndarray:
    """Return the rows that a server answers at an epoch, (accounts, WIDTH), NaN where it has none."""
    rows, tables = np.full((accounts, WIDTH), np.nan), folder / "out" / "tables"
    command = [FRESHET, "serve", "--tables", tables, "--port", 0, "--http-port", 0]
    with (folder / "serve.log").open("wb") as log, subprocess.Popen(list(map(str, command)), stderr=log) as server:
        try:
            with EmbeddingClient(tables, timeout=SERVE_S) as client:
                found = client.all(min_epoch=epoch)
        finally:
            server.terminate()
    rows[found["id"].to_numpy()] = found["embedding"].combine_chunks().flatten().to_numpy().reshape(-1, WIDTH)
    return rows


def compare(folder: Path, accounts: int, payments: int, seed: int, runtime: str) -> Figures:
    """Make the tables and the model, and compare the job's rows with the module's."""
    tables = make_tables(accounts, payments, seed)
    for name, table in zip(("accounts", "payments"), tables, strict=True):
        pq.write_table(table, folder / f"{name}.parquet")
    torch.manual_seed(seed)
    model = Scorer().eval()
    export_model(model, folder / "model", edge_features=len(ATTRIBUTES), overwrite=True)
    began = time.perf_counter()
    summary = run(folder, runtime)
    ran = time.perf_counter()
    rows = served(folder, accounts, summary["epochs"])
    answered = time.perf_counter()
    data = data_of(*tables)
    own, simple = rows_of(model, data), last_of_each_pair(data)
    largest = float(np.abs(own).max())
    wrong = np.abs(rows_of(model, simple) - own).max(axis=1) > EQUAL * largest
    difference = float(np.abs(rows - own).max())  # NaN where a row is missing
    return {
        "rows": len(rows),
        "missing": int(np.isnan(rows).any(axis=1).sum()),
        "max_difference": difference,
        "max_value": largest,
        "payments": payments,
        "pairs": simple.edge_index.shape[1],
        "pairs_repeated": _repeated(data),
        "rejected": summary["rejected"],
        "rows_wrong_without_keys": int(wrong.sum()),
        "run_s": round(ran - began, 1),
        "serve_s": round(answered - ran, 1),
        "module_s": round(time.perf_counter() - answered, 1),
        "is_good": difference <= EQUAL * largest and not summary["rejected"],
    }


def _repeated(data: Data) -> int:
    _, counts = np.unique(data.edge_index.numpy(), axis=1, return_counts=True)
    return int((counts > 1).sum())


def main() -> int:
    """Compare, and print a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="for the tables, the model and the job; new or empty")
    parser.add_argument("--accounts", type=int, default=100_000)
    parser.add_argument("--payments", type=int, default=200_000)
    parser.add_argument("--runtime", choices=("local", "flink"), default="local")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="freshet-payments-") as work:
        folder = Path(work) if options.folder is None else options.folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        found = compare(folder, options.accounts, options.payments, options.seed, options.runtime)
    print(orjson.dumps(found).decode())
    return 0 if found["is_good"] else 1


if __name__ == "__main__":
    unwind_at_signals()
    sys.exit(main())
