"""Parquet files of events: their sizes, and batches of the columns that are wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.operators.parser.arrow.parquet_file import open_parquet

_BATCH_ROWS = 8000


class ParquetFiles:
    """The `TableFiles` of Parquet files."""

    skips_columns = True

    def schema(self, path: str) -> pa.Schema:
        """The columns of a file."""
        return pq.read_schema(path)

    def size(self, path: str) -> tuple[int, int]:
        """Rows and bytes of a file."""
        metadata = pq.read_metadata(path)
        groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
        return metadata.num_rows, sum(group.total_byte_size for group in groups)

    def batches(self, path: str, first: int, wanted: Collection[str] | None) -> tuple[Iterator[pa.RecordBatch], int]:
        """Batches from the row group that row `first` is in, and the row that they begin at."""
        file = open_parquet(path, memory_map=True)
        sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
        starts = np.cumsum([0, *sizes])
        group = int(np.searchsorted(starts, first, "right")) - 1
        names = file.schema_arrow.names
        columns = names if wanted is None else [name for name in wanted if name in names]
        groups = list(range(group, len(sizes)))
        # one thread: the job has its own, and every process of it reads
        return file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=columns, use_threads=False), int(starts[group])
