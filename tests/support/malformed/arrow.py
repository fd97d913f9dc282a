"""Ways to be wrong for whole messages: tombstones, and Arrow IPC streams (see `records`)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.operators.parser.arrow.bounds import ROWS_MAX
from tests.support.graphs.attributed import EDGE_WIDTH
from tests.support.graphs.models import IN_WIDTH
from tests.support.malformed.records import (
    FLOOD,
    MEGABYTE,
    MESSAGE,
    ROW,
    Table,
    attributes,
    edge_event,
    features,
    vertex,
    vertex_event,
)

ARROW = Table()
way = ARROW.way
Record = dict[str, Any]

# What good and bad rows share: values that only Arrow has (NaN) fit in, other types do not.
SCHEMA = pa.schema(
    {
        "op": pa.string(),
        "id": pa.int64(),
        "src": pa.int64(),
        "dst": pa.int64(),
        "x": pa.list_(pa.float64()),
        "weight": pa.float64(),
        "attr": pa.list_(pa.float64()),
        "key": pa.float64(),
    }
)


def to_ipc(table: pa.Table) -> bytes:
    """A table as a message."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(allow_64bit=True)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def rows_to_ipc(records: Sequence[Record]) -> bytes:
    """Records as the rows of a message."""
    return to_ipc(pa.Table.from_pylist(list(records), SCHEMA))


def _deletions(ids: pa.Array) -> bytes:
    return to_ipc(pa.table({"op": ["del_vertex"] * len(ids), "id": ids}))


# -- messages that are no good as a whole ----------------------------------------------------------------------------


@way("no value", "tombstone", kind=MESSAGE)
def tombstone(rng: random.Random) -> None:
    return None


@way("not an Arrow IPC stream", kind=MESSAGE)
def arrow_mark_and_nothing_else(rng: random.Random) -> bytes:
    return b"\xff\xff\xff\xff" + rng.randbytes(rng.randrange(4))


@way("not an Arrow IPC stream", kind=MESSAGE)
def arrow_mark_and_random_bytes(rng: random.Random) -> bytes:
    return b"\xff\xff\xff\xff\xf0\xff\xff\x7f" + rng.randbytes(200)


@way("not an Arrow IPC stream", kind=MESSAGE)
def arrow_cut_short(rng: random.Random) -> bytes:
    return rows_to_ipc([edge_event(rng)])[: -rng.randint(9, 200)]


@way("not an Arrow IPC stream", kind=MESSAGE)
def arrow_offsets_that_point_outside(rng: random.Random) -> bytes:
    value = to_ipc(pa.table({"op": ["del_vertex"] * 3, "id": [vertex(rng)] * 3}))
    ends = np.array([0, 10, 20, 30], "<i4").tobytes()
    assert value.count(ends) == 1
    return value.replace(ends, np.array([0, 10, rng.randint(10**6, 10**9), 30], "<i4").tobytes())


@way("not an Arrow IPC stream", "UTF8", kind=MESSAGE)
def arrow_op_is_no_text(rng: random.Random) -> bytes:
    return to_ipc(pa.table({"op": pa.array([b"\xff\xfe"]).view(pa.string()), "id": [vertex(rng)]}))


@way("too many rows in an Arrow IPC stream", kind=MESSAGE)
def arrow_rows_of_nothing(rng: random.Random) -> bytes:
    return to_ipc(pa.table({"op": pa.Array.from_buffers(pa.null(), rng.randint(2**31, 2**50), [None])}))


@way("too many values in an Arrow IPC stream", kind=MESSAGE)
def arrow_list_of_nothing(rng: random.Random) -> bytes:
    many = rng.randint(2**30, 2**31 - 2)
    return to_ipc(pa.table({"x": pa.ListArray.from_arrays([0, many], pa.Array.from_buffers(pa.null(), many, [None]))}))


def _zstd(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@way("too much in an Arrow IPC stream", "64 MiB once it is decompressed", kind=MESSAGE, heavy=True)
def arrow_zstd_bomb(rng: random.Random) -> bytes:
    zeros = pa.array(np.zeros(MEGABYTE, np.int64))
    return _zstd(pa.table({"op": pa.nulls(MEGABYTE)} | {f"c{k}": zeros for k in range(rng.randint(9, 40))}))


@way("too many values in an Arrow IPC stream", kind=MESSAGE, heavy=True)
def arrow_zstd_bomb_of_lists(rng: random.Random) -> bytes:
    many = rng.randint(17, 40) * MEGABYTE
    return _zstd(pa.table({"x": pa.ListArray.from_arrays([0, many], pa.array(np.zeros(many, np.int8)))}))


@way("read row by row", kind=MESSAGE)
def arrow_run_ends_without_an_end(rng: random.Random) -> bytes:
    rows = rng.randint(70_000, 2**20)
    return to_ipc(pa.table({"op": pa.RunEndEncodedArray.from_arrays([rows], ["add_edge"])}))


@way("texts by dictionaries", kind=MESSAGE)
def arrow_rows_that_share_a_long_id(rng: random.Random) -> bytes:
    indices = np.zeros(rng.randint(70_000, 100_000), np.int8)
    ids = pa.DictionaryArray.from_arrays(indices, ["x" * rng.randint(1_000, 100_000)])
    return _zstd(pa.table({"op": pa.DictionaryArray.from_arrays(indices, ["del_vertex"]), "id": ids}))


# -- messages with very many bad records: a thousand letters, and one for the rest ------------------------------------


@way("op: missing", kind=FLOOD, heavy=True)
def arrow_rows_of_null(rng: random.Random) -> tuple[bytes, int]:
    rows = rng.randint(2_000, ROWS_MAX)
    return rng.choice([to_ipc, _zstd])(pa.table({"op": pa.nulls(rows)})), rows


@way("src: missing", kind=FLOOD, heavy=True)
def arrow_rows_without_ends(rng: random.Random) -> tuple[bytes, int]:
    rows = rng.randint(2_000, ROWS_MAX)
    ops = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int8), ["add_edge"])
    return _zstd(pa.table({"op": ops})), rows


@way("not JSON", kind=FLOOD, heavy=True)
def lines_of_a_letter(rng: random.Random) -> tuple[bytes, int]:
    lines = rng.randint(2_000, 100_000)
    return b"\n".join([b"x"] * lines), lines


# -- one row of a type that no event has: the letter shows it as Arrow does -------------------------------------------


@way("id: expected an integer", "the number", kind=MESSAGE, known_raw=False)
def arrow_ids_are_floats(rng: random.Random) -> bytes:
    return _deletions(pa.array([vertex(rng) + 0.5]))


@way("id: expected an integer", "date32", kind=MESSAGE, known_raw=False)
def arrow_ids_are_dates_past_all_calendars(rng: random.Random) -> bytes:
    return _deletions(pa.array([rng.randint(10**7, 10**9)], pa.int32()).cast(pa.date32()))


@way("id: expected an integer", "run_end_encoded", kind=MESSAGE, known_raw=False)
def arrow_ids_are_run_ends(rng: random.Random) -> bytes:
    return _deletions(pa.RunEndEncodedArray.from_arrays([1], [vertex(rng)]))


@way("id: expected an integer within int64", kind=MESSAGE, known_raw=False)
def arrow_id_past_int64(rng: random.Random) -> bytes:
    return _deletions(pa.array([rng.randrange(2**63, 2**64)], pa.uint64()))


@way("attr: expected", kind=MESSAGE, known_raw=False)
def arrow_attributes_of_a_type_that_is_none(rng: random.Random) -> bytes:
    kinds = (
        pa.list_(pa.string()),
        pa.list_(pa.bool_()),
        pa.list_(pa.list_(pa.int8())),
        pa.list_(pa.float32(), EDGE_WIDTH + 1),
    )
    row = {"op": ["add_edge"], "src": [vertex(rng)], "dst": [vertex(rng)]}
    values = ["1"] * EDGE_WIDTH, [True] * EDGE_WIDTH, [[1]] * EDGE_WIDTH, [1.0] * (EDGE_WIDTH + 1)
    attr, kind = rng.choice([*zip(values, kinds, strict=True), (1.5, pa.float64()), ("1,2,3", pa.string())])
    return to_ipc(pa.table({**row, "attr": pa.array([attr], kind)}))


@way("op: missing", kind=MESSAGE, known_raw=False)
def arrow_without_our_columns(rng: random.Random) -> bytes:
    return to_ipc(pa.table({"user": [vertex(rng)]}))


# -- a bad row among good ones ---------------------------------------------------------------------------------------


def _one_of_x(rng: random.Random, value: float) -> Record:
    x = features(rng)
    x[2] = value
    return vertex_event(rng, x=x)


@way("x: not finite in float32", "index 2", "nan", kind=ROW)
def arrow_feature_nan(rng: random.Random) -> Record:
    return _one_of_x(rng, float("nan"))


@way("x: not finite in float32", "index 2", "inf", kind=ROW)
def arrow_feature_infinite(rng: random.Random) -> Record:
    return _one_of_x(rng, rng.choice([1, -1]) * float("inf"))


@way("weight: not finite in float32", "nan", kind=ROW)
def arrow_weight_nan(rng: random.Random) -> Record:
    return edge_event(rng, weight=float("nan"))


@way(f"x: expected {IN_WIDTH} numbers", f"got {IN_WIDTH + 2}", kind=ROW)
def arrow_wrong_width(rng: random.Random) -> Record:
    return vertex_event(rng, x=[*features(rng), 1.0, 2.0])


@way("attr: not finite in float32", "index 2", kind=ROW)
def arrow_attribute_not_finite(rng: random.Random) -> Record:
    return edge_event(rng, attr=[*attributes(rng)[1:], rng.choice([float("nan"), float("inf"), float("-inf")])])


@way("attr: expected numbers", "null at index 0", kind=ROW)
def arrow_attribute_null(rng: random.Random) -> Record:
    return edge_event(rng, attr=[None, *attributes(rng)[1:]])


@way(f"attr: expected {EDGE_WIDTH} numbers", kind=ROW)
def arrow_attributes_of_another_width(rng: random.Random) -> Record:
    return edge_event(
        rng, attr=(2 * attributes(rng))[: rng.choice([0, EDGE_WIDTH - 1, EDGE_WIDTH + 1, 2 * EDGE_WIDTH])]
    )


@way("key: edges of this job have no keys", "--edge-key", kind=ROW)
def arrow_key_that_is_none(rng: random.Random) -> Record:
    return edge_event(rng, key=rng.choice([0.5, float("nan"), float("-inf"), 1e30]))


@way("op: expected one of", "fly", kind=ROW)
def arrow_unknown_op(rng: random.Random) -> Record:
    return edge_event(rng, op="fly")


@way("dst: missing", kind=ROW)
def arrow_edge_without_an_end(rng: random.Random) -> Record:
    record = edge_event(rng)
    del record["dst"]
    return record
