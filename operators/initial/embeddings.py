"""The Sink's part of epoch 0: the embeddings of all vertices as the change log's rows of epoch 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from freshet.gnn.plan import Plan
from freshet.operators.control import control_values
from freshet.operators.dataflow import SINK, Place
from freshet.operators.factory import dataflow_of, make_core
from freshet.operators.graph.part_rows import frozen
from freshet.operators.initial.column_files import ColumnWriter, read_columns
from freshet.operators.initial.sent_rows import Sent, in_chunks
from freshet.operators.initial.topology import read_topology
from freshet.operators.settings import Settings
from freshet.operators.storage.head import names_of
from freshet.state.block_columns import ROWS
from freshet.state.codec import Block, Header, seal
from freshet.state.image import write_image

_CHUNK = 1 << 14


def write_sink(settings: Settings, plan: Plan, work: Path, part: int, vertices: int) -> None:
    """Write the image of a sink part, and below `settings.out` its share of the change log.

    Raises: EmbedError when the disk is full.
    """
    settings = replace(settings, tasks=(), outlet=None)
    row = dataflow_of(settings, plan)[SINK]
    folder = work / f"sink-{part}"
    control = frozen(control_values(vertices=vertices))
    core = make_core(settings, plan, row, part)
    try:
        core.apply(0, list(_blocks(settings, plan, work, folder, part, control)))
    finally:
        core.close()
    write_image(core.tables, Path(settings.image) / str(Place(SINK, part)), 0)


def _blocks(
    settings: Settings, plan: Plan, work: Path, folder: Path, part: int, control: np.ndarray
) -> Iterator[Block]:
    """The rows of a sink part, from each part of the last layer, mapped."""
    for source in range(settings.parts):
        topology = read_topology(work, source)
        mine = np.flatnonzero(topology.get("m_key") % settings.parts == part)
        slots = frozen(topology.get("m_slot")[mine])
        sent = Sent(work, len(plan.layers), source, plan.out_width)
        with ColumnWriter(folder.with_name(f"{folder.name}-{source}")) as out:
            out.add("key", topology.get("m_key")[mine])
            out.add("row", np.empty((0, plan.out_width), np.float32))
            for some in in_chunks(slots, _CHUNK):
                out.add("row", sent.gather(some))
            out.close()
        columns = {
            "ctl": control,
            **names_of(topology, range(part, part + 1), settings.parts),
            **read_columns(out.folder),
        }
        yield seal(Header(ROWS, 0, len(plan.layers), source), columns)
