"""Batches that clients of any language take: gRPC refuses messages past 4 MiB."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from freshet.job.serving.feeds.change_stream import batches_of
from freshet.job.serving.protocol import columns
from freshet.job.serving.protocol.columns import PIECE_BYTES, column_of_ids, numbers, pieces_of, vectors
from freshet.state.served.ids import Texts
from freshet.state.served.reader import Change

GRPC_BYTES_MAX = 4 << 20


def made(ids, width: int) -> pa.RecordBatch:
    rows = np.arange(len(ids) * width, dtype=np.float32).reshape(len(ids), width)
    own = np.arange(len(ids), dtype=np.int64)
    return pa.RecordBatch.from_arrays([column_of_ids(ids), numbers(own), vectors(rows)], ["id", "epoch", "embedding"])


def texts(*lengths: int) -> Texts:
    return Texts.encode([chr(97 + k % 26) * length for k, length in enumerate(lengths)])


@pytest.mark.parametrize(
    ("batch", "pieces"),
    [
        (made(np.arange(20_000), 128), 4),
        (made(np.arange(20_000), 1), 1),
        (made(np.arange(5), 600_000), 5),
        (made(np.arange(3), 900_000), 3),
        (made(np.arange(0), 8), 1),
        (made(texts(*[8] * 20_000), 128), 4),
        (made(texts(*[2_000_000] * 4, *[1] * 100_000), 4), 6),
        (made(np.arange(60_000), 128).slice(20_000, 20_000), 4),
    ],
    ids=["ints", "small", "wide", "widest", "empty", "texts", "long texts", "a slice"],
)
def test_rows_come_in_pieces(batch: pa.RecordBatch, pieces: int) -> None:
    found = list(pieces_of(batch))
    assert all(one.serialize().size < GRPC_BYTES_MAX - 65_536 for one in found)
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([batch]))
    assert pieces <= len(found) <= 4 * pieces
    assert all(one.nbytes <= PIECE_BYTES for one in found if one.num_rows > 1)


def test_long_texts_are_several_columns_and_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of 100 million ids of 24 bytes, whose text is past what 32-bit offsets reach."""
    ids = texts(5, 5, 5, 30, 1, 1, 0, 0)
    monkeypatch.setattr(columns, "TEXT_BYTES", 10)
    spans = columns.spans_of(ids)
    assert spans == [(0, 2), (2, 3), (3, 4), (4, 8)]
    parts = pa.chunked_array([column_of_ids(ids.slice(*span)) for span in spans])
    for kind in (pa.string(), pa.large_string()):
        assert columns.ids_of_column(parts.cast(kind)).decode() == ids.decode()
    assert columns.spans_of(np.arange(7)) == [(0, 7)]
    assert columns.spans_of(texts()) == [(0, 0)]


def test_what_other_servers_feed_from_comes_in_pieces() -> None:
    count, width = 3_000, 2_000
    change = Change(
        7,
        True,
        np.arange(count),
        np.full(count, 7),
        np.zeros((count, width), np.float32),
        np.arange(count, 2 * count),
    )
    found = list(batches_of(change, {"told": 1}))
    assert sum(batch.num_rows for batch, _ in found) == 2 * count
    assert max(batch.nbytes for batch, _ in found) <= PIECE_BYTES
    assert [b'"told"' in head for _, head in found] == [False] * (len(found) - 1) + [True]
