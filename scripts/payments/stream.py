"""Payments between accounts, with laundering to find: `python scripts/payments/stream.py FOLDER [--accounts 100000]`.

Each payment is two edges, as messages flow: `sent` from the payer, `received` back to it. Both have its number as their
key, so that two accounts may have several payments, and carry its attributes: log10 of the amount, sine and cosine of
the hour of the day, and 1 or -1 for the direction. Ordinary payments follow the activity of accounts and the hours of
the day. Among them are patterns: cycles, fan-ins of sums below the limit that has to be reported, fan-outs, and chains
of layers. An account launders from its first payment in a pattern on.

FOLDER/snapshot has the first four fifths of the time, with labels, and FOLDER/events.jsonl (or .parquet, by --format)
the rest: payments, new accounts, payments that are taken back, and balances that change. FOLDER/truth.parquet has for
each account the time (ms) from which it launders, if it does. The same seed gives the same files.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.operators.snapshot.writer import write_snapshot
from scripts.payments.patterns import Transfers, join, make_patterns

DAYS, HOUR_MS = 60, 3_600_000
SNAPSHOT_SHARE = 0.8  # of the time
FEATURES, ATTRIBUTES = 4, 4
SENT, RECEIVED = "sent", "received"
NEVER = -1
NEW_ACCOUNTS = 0.05  # share of the accounts that come with the stream
TAKEN_BACK, BALANCES = 0.02, 0.1  # events that follow a payment of the stream, as shares of the payments
ROWS_PER_GROUP = 65_536


class Sizes(NamedTuple):
    """Amounts of everything."""

    accounts: int = 100_000
    payments: int = 300_000  # ordinary ones
    laundering: float = 0.02  # share of the accounts that are in a pattern, about


@dataclass(frozen=True)
class Payments:
    """All payments in the order of time, and the accounts.

    Shapes: x (accounts, 4) float32: is business, log10 of the balance, years, 1; launders_from (accounts,) int64 ms, or
    NEVER; is_new (accounts,) bool: it comes with the stream
    """

    x: np.ndarray
    transfers: Transfers
    launders_from: np.ndarray
    is_new: np.ndarray

    @property
    def cut_ms(self) -> int:
        """The time of the snapshot."""
        return int(SNAPSHOT_SHARE * DAYS * 24 * HOUR_MS)

    def labels(self, at_ms: int) -> np.ndarray:
        """Return which accounts launder by then, (accounts,) int64 of 0 and 1."""
        return ((self.launders_from != NEVER) & (self.launders_from <= at_ms)).astype(np.int64)


def make_payments(sizes: Sizes, seed: int) -> Payments:
    """Return payments by a seed."""
    rng = np.random.default_rng(seed)
    n = sizes.accounts
    business = rng.random(n) < 0.1
    columns = [business, rng.normal(3.3, 0.6, n) + 0.8 * business, rng.exponential(4, n), np.ones(n)]
    x = np.stack(columns, axis=1).astype(np.float32)
    is_new = np.zeros(n, bool)
    is_new[n - round(NEW_ACCOUNTS * n) :] = True
    ordinary = ordinary_payments(sizes, business, rng)
    cut_ms = int(SNAPSHOT_SHARE * DAYS * 24 * HOUR_MS)
    early = (ordinary.at_ms < cut_ms) & (is_new[ordinary.src] | is_new[ordinary.dst])
    members = rng.permutation(np.flatnonzero(~is_new & ~business))[: round(sizes.laundering * n)]
    patterns = make_patterns(members, DAYS * 24 * HOUR_MS, rng)
    first = np.full(n, np.iinfo(np.int64).max)
    for ends in (patterns.src, patterns.dst):
        np.minimum.at(first, ends, patterns.at_ms)
    first[first == np.iinfo(np.int64).max] = NEVER
    return Payments(x, join([ordinary.take(np.flatnonzero(~early)), patterns]).in_order(), first, is_new)


def ordinary_payments(sizes: Sizes, business: np.ndarray, rng: np.random.Generator) -> Transfers:
    """Return payments of people and businesses, most of them by day; a few are large and round, or at night."""
    n, m = sizes.accounts, sizes.payments
    activity, popularity = rng.pareto(1.5, n) + 0.2, (rng.pareto(1.2, n) + 0.1) * (1 + 8 * business)
    src, dst = (rng.choice(n, m, p=weight / weight.sum()) for weight in (activity, popularity))
    kept = src != dst
    src, dst = src[kept], dst[kept]
    size = src.size
    amount = 10 ** (rng.normal(1.8, 0.6, size) + 0.5 * business[src])
    near_the_limit = rng.random(size) < 0.01  # rents and invoices that look like parts of a sum
    amount[near_the_limit] = rng.uniform(9_000, 9_990, int(near_the_limit.sum()))
    hour = np.where(rng.random(size) < 0.1, rng.uniform(0, 24, size), rng.normal(14, 3, size) % 24)
    at_ms = (rng.integers(0, DAYS, size) * 24 + hour) * HOUR_MS
    return Transfers(src, dst, amount, at_ms.astype(np.int64))


def attributes(amount: np.ndarray, at_ms: np.ndarray, direction: float) -> np.ndarray:
    """Return the attributes of edges, (n, 4) float32."""
    angle = 2 * np.pi * (at_ms / HOUR_MS % 24) / 24
    columns = [np.log10(amount), np.sin(angle), np.cos(angle), np.full(amount.size, direction)]
    return np.stack(columns, axis=1).astype(np.float32)


def write_inputs(folder: Path, payments: Payments, seed: int, kind: str = "jsonl") -> int:
    """Write the snapshot, the events and the truth; returns the number of events."""
    write_training(folder / "snapshot", payments)
    events = events_of(payments, seed)
    if kind == "jsonl":
        with (folder / "events.jsonl").open("wb") as file:
            file.writelines(orjson.dumps(event, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n" for event in events)
    else:
        write_parquet(folder / "events.parquet", events)
    truth = {"id": np.arange(len(payments.x)), "launders_from": payments.launders_from}
    pq.write_table(pa.table(truth), folder / "truth.parquet")
    return len(events)


def write_training(folder: Path, payments: Payments) -> None:
    """Write the graph of the time of the snapshot, with its labels."""
    accounts = np.flatnonzero(~payments.is_new)
    numbers = np.flatnonzero(payments.transfers.at_ms < payments.cut_ms)
    some = payments.transfers.take(numbers)
    ends = np.concatenate([some.src, some.dst]), np.concatenate([some.dst, some.src])
    attr = np.concatenate([attributes(some.amount, some.at_ms, sign) for sign in (1, -1)])
    kinds = [SENT] * len(some) + [RECEIVED] * len(some)
    labels = payments.labels(payments.cut_ms)[accounts]
    keyed: dict[str, Any] = {"edge_type": kinds, "edge_key": np.tile(numbers, 2)}
    write_snapshot(folder, accounts, payments.x[accounts], *ends, label=labels, attr=attr, **keyed)


def events_of(payments: Payments, seed: int) -> list[dict[str, Any]]:
    """Return the events of the time after the snapshot, in their order."""
    rng = np.random.default_rng(seed + 1)
    numbers = np.flatnonzero(payments.transfers.at_ms >= payments.cut_ms)
    late = payments.transfers.take(numbers)
    sent, received = (attributes(late.amount, late.at_ms, sign) for sign in (1, -1))
    told: list[tuple[int, int, dict[str, Any]]] = []  # time, tie, event

    def tell(at_ms: int, **event: Any) -> None:
        told.append((at_ms, len(told), event | {"ts": at_ms}))

    known = ~payments.is_new
    x = payments.x.copy()
    draws = rng.random((len(late), 2))
    for i, (src, dst, at) in enumerate(zip(late.src.tolist(), late.dst.tolist(), late.at_ms.tolist(), strict=True)):
        for account in (src, dst):
            if not known[account]:
                known[account] = True
                tell(at, op="add_vertex", id=account, x=x[account])
        key, edges = int(numbers[i]), ((src, dst, SENT, sent[i]), (dst, src, RECEIVED, received[i]))
        for a, b, kind, attr in edges:
            tell(at, op="add_edge", src=a, dst=b, type=kind, key=key, attr=attr)
        if draws[i, 0] < TAKEN_BACK and late.amount[i] < 1_000:
            for a, b, kind, _ in edges:
                tell(at + 6 * HOUR_MS, op="del_edge", src=a, dst=b, type=kind, key=key)
        if draws[i, 1] < BALANCES:
            x[src, 1] = np.float32(np.log10(10 ** float(x[src, 1]) + float(late.amount[i])))
            tell(at, op="set_features", id=src, x=x[src].copy())
    return [event for _, _, event in sorted(told, key=lambda one: one[:2])]


def write_parquet(path: Path, events: list[dict[str, Any]]) -> None:
    """Write events as columns."""
    vector = pa.list_(pa.float32())
    names = {"op": pa.string(), "id": pa.int64(), "src": pa.int64(), "dst": pa.int64(), "type": pa.string()}
    schema = pa.schema([*names.items(), ("key", pa.int64()), ("x", vector), ("attr", vector), ("ts", pa.int64())])
    pq.write_table(pa.Table.from_pylist(events, schema), path, ROWS_PER_GROUP)


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accounts", type=int, default=Sizes().accounts)
    parser.add_argument("--payments", type=int, help="ordinary ones (default: three for each account)")
    parser.add_argument("--laundering", type=float, default=Sizes().laundering, help="share of the accounts")
    parser.add_argument("--format", choices=("jsonl", "parquet"), default="jsonl")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    sizes = Sizes(options.accounts, options.payments or 3 * options.accounts, options.laundering)
    payments = make_payments(sizes, options.seed)
    events = write_inputs(options.folder, payments, options.seed, options.format)
    counts = [int(payments.labels(at).sum()) for at in (payments.cut_ms, DAYS * 24 * HOUR_MS * 2)]
    told = {"accounts": sizes.accounts, "payments": len(payments.transfers), "events": events, "laundering": counts}
    print(orjson.dumps(told).decode())


if __name__ == "__main__":
    main()
