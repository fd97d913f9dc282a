"""Rows of what has not happened: vertices with edges or features that they do not have, as the job would embed them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.job.serving.bounds.asked_ids import ids_of_values
from freshet.job.serving.protocol.errors import BadRequestError
from freshet.job.serving.protocol.wanted import Wanted, as_text
from freshet.job.serving.tables.computed import Computed
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import Answer

_NEW = "new"  # what stands for the id of a vertex without one, where ids are strings


def what_if(lookup: Lookup, asked: Any, wanted: Wanted, gone: Callable[[], bool] | None = None) -> Computed:
    """Answer {"id": ..., "x": ..., "in_edges": [...], ...}, or several such items as `vertices`, each by itself."""
    one = lookup.of(asked.get("kind"))
    hypotheses = one.hypotheses
    if hypotheses is None:
        msg = "what-if: this server does not answer it; start it as `freshet serve --tables O/tables --what-if base`"
        raise BadRequestError(msg)
    one.wait(wanted, gone)
    items = asked.get("vertices") or [asked]
    served = one.served
    tried = hypotheses.tried(items, served.job.kind_name, wanted.min_epoch, wanted.timeout_s, asked["max_touched"])
    new = np.array([id_ is None for id_ in tried.ids], bool)
    strings = served.table.strings
    stored = [(_NEW if strings else 0) if id_ is None else id_ for id_ in tried.ids]
    epochs = np.full(len(stored), tried.epoch)
    answer = Answer(tried.epoch, ids_of_values(stored, strings), epochs, tried.rows, len(stored), served)
    columns = {"vertex": tried.of} if asked.get("vertices") else {}

    def as_table(logits: bool) -> pa.Table:
        table = one.as_table(answer, columns, logits=logits)
        metadata = table.schema.metadata | as_text({"unknown": tried.unknown} if tried.unknown else {})
        ids = pa.array(table["id"].to_pylist(), table["id"].type, mask=new)
        return table.set_column(0, "id", ids).replace_schema_metadata(metadata)

    return Computed(served, tried.epoch, as_table, (answer, columns), {"unknown": tried.unknown}, new=new)
