"""Snapshots that are wrong about kinds of vertices and relations, each with words of the reason for its refusal.

They are for models of the graph of `shop_kinds`, and for those of `IN_WIDTH` features without kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.graphs.models import IN_WIDTH
from tests.support.malformed.kinds import EVERY, RATES, TYPES

_Columns = Mapping[str, Sequence[Any] | pa.Array | None]


class WrongSnapshot(NamedTuple):
    """A good snapshot but for some columns of one of its files; None: a column that is not there."""

    file: str
    columns: _Columns
    reason: str
    kinds: bool = True
    """True if the model that reads it has kinds."""

    def write(self, folder: Path) -> None:
        """Write it into a new folder."""
        folder.mkdir(parents=True)
        for name, good in (_SHOP if self.kinds else _ONE_KIND).items():
            columns = {**good, **(self.columns if name == self.file else {})}
            arrays = {column: pa.array(values) for column, values in columns.items() if values is not None}
            pq.write_table(pa.table(arrays), folder / f"{name}.parquet")


_SHOP: dict[str, _Columns] = {
    "vertices": {
        "id": [1, 2, 1],
        "kind": ["user", "user", "item"],
        "x": pa.array([[1, 2], [3, 4], [5, 6, 7]], pa.list_(pa.float32())),
    },
    "edges": {
        "src": [1, 1],
        "dst": [1, 2],
        "type": ["buys", "rates"],
        "src_kind": [None, "user"],
        "dst_kind": [None, "item"],
    },
}
_ONE_KIND: dict[str, _Columns] = {
    "vertices": {"id": [1, 2], "x": [[1.0] * IN_WIDTH, [2.0] * IN_WIDTH]},
    "edges": {"src": [1], "dst": [2]},
}
WRONG_SNAPSHOTS = [
    WrongSnapshot("vertices", {"kind": ["user", "item"]}, "has kind, but the model has no kinds", kinds=False),
    WrongSnapshot("vertices", {"id": [1, 1], "kind": [0, 1]}, "has kind, but the model has no kinds", kinds=False),
    WrongSnapshot("edges", {"src_kind": ["user"]}, "has src_kind, but the model has no kinds", kinds=False),
    WrongSnapshot(
        "edges",
        {"src_kind": ["user"], "dst_kind": ["item"], "type": ["buys"]},
        "has src_kind and dst_kind, but the model has no kinds of vertices",
        kinds=False,
    ),
    WrongSnapshot("vertices", {"kind": None}, f"missing kind; {EVERY}"),
    WrongSnapshot("vertices", {"kind": [0, 0, 1]}, "row 0: kind: expected a string, got the integer 0"),
    WrongSnapshot("vertices", {"kind": ["user", None, "item"]}, "row 1: kind: missing"),
    WrongSnapshot("vertices", {"kind": ["user", "User", "item"]}, f"row 1: kind: expected one of {EVERY}, got the"),
    WrongSnapshot("vertices", {"kind": ["user", "item", "item"]}, "row 1: x: expected 3 numbers for the kind 'item'"),
    WrongSnapshot("edges", {"type": None}, f"missing type; {TYPES}"),
    WrongSnapshot("edges", {"type": [0, 1]}, "row 0: type: expected a string, got the integer 0"),
    WrongSnapshot("edges", {"type": ["buys", None]}, "row 1: type: missing"),
    WrongSnapshot("edges", {"type": ["rev_buys", "rates"]}, "row 0: type: edges of 'rev_buys' follow those of 'buys'"),
    WrongSnapshot("edges", {"src_kind": [0, 0]}, "row 0: src_kind: expected a string, got the integer 0"),
    WrongSnapshot("edges", {"src_kind": None, "dst_kind": None}, f"row 1: src_kind: missing, {RATES}"),
    WrongSnapshot("edges", {"src_kind": ["item", "user"]}, "row 0: src_kind: edges of 'buys' lead from user to item"),
    WrongSnapshot("edges", {"attr": [[1, 2], [1, 2]]}, "row 1: attr: expected 1 numbers for edges of 'rates', got 2"),
]
