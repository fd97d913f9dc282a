"""A snapshot's rows as events whose columns lie in files, so that the graph's topology need not be in memory twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from freshet.operators.initial.column_files import ColumnWriter, read_columns, read_meta
from freshet.partitioner.events import DEFAULT_TYPE, NO_TS, Events
from freshet.partitioner.ids import INT, STRING, Ids, no_keys
from freshet.schema import EdgeValues, FeatureRows, Features

X, _KEYS = "x", "edge_key"


def write_events(
    blocks: Iterable[Events],
    folder: Path,
    features: Features,
    id_kind: str,
    progress: Callable[[str], None],
    *,
    is_timed: bool = False,
    key_kind: str = "",
) -> None:
    """Write the events of all blocks into a folder, as `Events.concatenate` would put them together.

    `is_timed`: with their `ts`; `key_kind`: the kind of the keys of edges, if they have any.

    Raises: EmbedError when the disk is full; SnapshotError for bad rows.
    """
    codes: dict[str, int] = {}
    count = x_rows = 0
    given = set[str]()
    bases = {"a": 0, "b": 0} | ({_KEYS: 0} if key_kind else {})
    with ColumnWriter(folder) as out:
        for name, column in FeatureRows.none(features).columns(X).items():
            out.add(name, column)
        for block in blocks:
            table = np.array([codes.setdefault(name, len(codes)) for name in block.types], np.int32)
            out.add("op", block.op)
            rows = {name: column for name, column in block.x.columns(X).items() if name != f"{X}_widths"}
            for name, column in (block.values.full_columns(features) | rows).items():
                out.add(name, column)
            if features.kinds is not None:
                out.add("kind", np.zeros(len(block), np.uint8) if block.kind is None else block.kind)
            given |= block.values.names
            out.add("etype", table[block.etype])
            if is_timed:
                out.add("ts", np.full(len(block), NO_TS, np.int64) if block.ts is None else block.ts)
            out.add("x_row", np.where(block.x_row >= 0, block.x_row + x_rows, -1).astype(np.int32))
            keys = no_keys(key_kind, len(block)) if key_kind and block.keys is None else block.keys
            for name, ids in {"a": block.a, "b": block.b, _KEYS: keys}.items():
                if name in bases and ids is not None:
                    bases[name] = _add_ids(out, name, ids, bases[name])
            count, x_rows = count + len(block), x_rows + len(block.x)
            progress(f"reading the snapshot: {count:,} rows")
        for name, end in bases.items():
            if (key_kind if name == _KEYS else id_kind) != INT:
                out.add(f"{name}_off", np.array([end], np.int64))
        out.close({"types": list(codes) or [DEFAULT_TYPE], "values": sorted(given), "count": count})


def _add_ids(out: ColumnWriter, name: str, ids: Ids, base: int) -> int:
    """Add a block's ids; returns where the text of the next ones begins."""
    if ids.kind == INT:
        out.add(name, ids.ints)
        return 0
    packed = ids.compact()
    out.add(f"{name}_off", packed.offsets[:-1] + base)
    out.add(name, packed.data)
    return base + len(packed.data)


def read_events(folder: Path, features: Features, id_kind: str, key_kind: str = "") -> Events:
    """The events that were written there, mapped as writable, since kernels are compiled for such columns.

    Positions, sources and partitions are left out: no Partitioner reads them.
    """
    meta, columns = read_meta(folder), read_columns(folder, writable=True)
    if not meta["count"]:
        return Events.empty(features, id_kind)

    def ids(name: str, kind: str = id_kind) -> Ids:
        if kind == INT:
            return Ids(INT, columns[name])
        return Ids(STRING, offsets=columns[f"{name}_off"], data=columns[name])

    none = np.empty(0, np.int64)
    return Events(
        op=columns["op"],
        a=ids("a"),
        b=ids("b"),
        values=EdgeValues.from_columns({name: columns[name] for name in meta["values"]}, meta["count"]),
        etype=columns["etype"],
        x_row=columns["x_row"],
        x=FeatureRows.from_columns(columns, X, features),
        position=none,
        source=none,
        partition=none,
        types=tuple(meta["types"]),
        ts=columns.get("ts"),
        kind=columns.get("kind"),
        keys=ids(_KEYS, key_kind) if key_kind else None,
    )


def read_features(folder: Path, features: Features) -> FeatureRows:
    """Return the features that the events bring, mapped."""
    return FeatureRows.from_columns(read_columns(folder), X, features)
