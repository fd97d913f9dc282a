"""The Sink's part of epoch 0: the embeddings of all vertices as the change log's rows, with its state or alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from freshet.gnn.any_plan import AnyPlan, returned_of
from freshet.operators.control import control_values
from freshet.operators.dataflow import SINK, Place
from freshet.operators.embed.output import write_embeddings
from freshet.operators.factory import dataflow_of, make_core
from freshet.operators.graph.part_rows import frozen
from freshet.operators.initial.column_files import ColumnWriter, read_columns
from freshet.operators.initial.sent_rows import Sent, in_chunks
from freshet.operators.initial.topology import read_topology
from freshet.operators.output_folders import LogFolders
from freshet.operators.settings import Settings
from freshet.operators.storage.epoch_topology import prefixed
from freshet.operators.storage.head import names_of
from freshet.partitioner.ids import INT, STRING, Ids
from freshet.state.block_columns import ROWS, kind_prefix
from freshet.state.codec import Block, Header, seal, view
from freshet.state.image import write_image

_CHUNK = 1 << 14


def write_sink(settings: Settings, plan: AnyPlan, work: Path, part: int, vertices: int) -> None:
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
    settings: Settings, plan: AnyPlan, work: Path, folder: Path, part: int, control: np.ndarray
) -> Iterator[Block]:
    """The rows of a sink part, from each part of the last layer, mapped."""
    for source in range(settings.parts):
        topology, columns = read_topology(work, source), {"ctl": control}
        for kind, number, width in returned_of(plan):
            code = None if plan.features.kinds is None else number
            section = view(topology, kind_prefix(code))
            mine = np.flatnonzero(section.get("m_key") % settings.parts == part)
            slots = frozen(section.get("m_slot")[mine])
            sent = Sent(work, len(plan.layers), source, width, code)
            with ColumnWriter(folder.with_name(f"{folder.name}-{source}-{number}")) as out:
                out.add("key", section.get("m_key")[mine])
                out.add("row", np.empty((0, width), np.float32))
                for some in in_chunks(slots, _CHUNK):
                    out.add("row", sent.gather(some))
                out.close()
            found = {**names_of(section, range(part, part + 1), settings.parts), **read_columns(out.folder)}
            columns |= prefixed(kind_prefix(number) if kind else "", found)
        yield seal(Header(ROWS, 0, len(plan.layers), source), columns)


def write_rows(settings: Settings, plan: AnyPlan, work: Path, part: int, progress: Callable[[str], None]) -> None:
    """Write the embeddings of a part's vertices below `settings.out`, and no state; some rows are in memory at a time.

    Raises: EmbedError when the disk is full.
    """
    topology = read_topology(work, part)
    for kind, number, width in returned_of(plan):
        code = None if plan.features.kinds is None else number
        section = view(topology, kind_prefix(code))
        rows = _PartRows(Sent(work, len(plan.layers), part, width, code), section, settings.id_kind)
        folder = LogFolders(Path(settings.out), kind).embeddings
        write_embeddings(folder, rows, rows.ids, settings.id_kind, progress, part)


class _PartRows:
    """Embeddings of a part's vertices, perhaps of one kind, in the order of their slots."""

    def __init__(self, sent: Sent, section: Block, id_kind: str) -> None:
        self._sent, self._slots = sent, section.get("m_slot")
        self.vertices, self.width = len(self._slots), sent.whole.shape[1]
        self.blocks = -(-self.vertices // _CHUNK)
        self.ids = _PartIds(section, id_kind)

    def read(self, block: int) -> np.ndarray:
        """Return the rows of a block."""
        return self._sent.gather(self._slots[block * _CHUNK : (block + 1) * _CHUNK])


class _PartIds:
    """Ids of these vertices."""

    def __init__(self, section: Block, id_kind: str) -> None:
        self._ids = Ids(INT, section.get("m_key"))
        if id_kind == STRING:
            self._ids = Ids(STRING, offsets=section.get("m_off"), data=section.get("m_name"))

    def read(self, first: int, last: int) -> Ids:
        """Return the ids of these vertices."""
        return self._ids.slice(first, last).compact()
