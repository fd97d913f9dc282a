"""Changed rows as clients yield them: a table for each answer of a stream of changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson
import pyarrow as pa

Piece = tuple[pa.RecordBatch, bytes]  # rows, and JSON that says what they are


def tables_of(pieces: Iterable[Piece]) -> Iterator[pa.Table | None]:
    """Yield a table for each change: id, epoch, embedding, deleted; None where nothing has changed for a moment.

    Its metadata has `epoch`, as of which the rows are, and `whole`: `true` where these are all rows.
    """
    batches: list[pa.RecordBatch] = []
    for batch, metadata in pieces:
        head = orjson.loads(metadata)
        batches.append(_with_deleted(batch, not head["lives"]))
        if "told" not in head:  # more of this change follows
            continue
        table = pa.Table.from_batches(batches)
        batches = []
        facts = {"epoch": str(head["epoch"]), "whole": "true" if head["whole"] else "false"}
        yield table.replace_schema_metadata(facts) if table.num_rows or head["whole"] else None


def _with_deleted(batch: pa.RecordBatch, deleted: bool) -> pa.RecordBatch:
    flags: Any = pa.repeat(pa.scalar(deleted), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, flags], [*batch.schema.names, "deleted"])
