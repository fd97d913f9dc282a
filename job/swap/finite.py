"""A look at all embeddings of a job, before it serves."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq

from freshet.job.serving.protocol.columns import rows_of
from freshet.job.serving.tables.change_log_rows import again, rows_between
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.sink.log_proof import reading


def not_finite(job: ServedJob) -> int:
    """Return how many vertices have an embedding with a NaN or an infinity, as of the newest readable epoch."""
    if again(lambda: _is_clean(job)):
        return 0
    rows = rows_between(job.log, -1, job.complete_epoch(), job.strings, job.width).rows  # such rows may be replaced
    return int((~np.isfinite(rows).all(axis=1)).sum())


def _is_clean(job: ServedJob) -> bool:
    """Return whether all rows of the change log are finite, a row group in memory at a time."""
    for path in job.log.embeddings.glob("[!._]*.parquet"):
        with reading(path) as opened, pq.ParquetFile(opened) as file:
            for group in range(file.num_row_groups):
                column = file.read_row_group(group, columns=["embedding"])["embedding"].combine_chunks().drop_null()
                if not np.isfinite(rows_of(column)).all():
                    return False
    return True
