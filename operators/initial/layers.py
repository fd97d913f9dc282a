"""The Storages' and Tails' part of epoch 0: one operator's part at a time, its tables in files, its rows in chunks.

Each core does with its own methods and kernels what it does in `apply`; what differs is that messages lie in files by
slot, and that rows are computed and handed on some at a time.
Invariant: the image is that of `build_image`, bit by bit (tests/unit/operators/initial).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from freshet.gnn.plan import LayerPlan, Plan
from freshet.operators.dataflow import Place
from freshet.operators.factory import dataflow_of, make_core
from freshet.operators.graph.part_rows import frozen
from freshet.operators.graph.routing import route_partials
from freshet.operators.graph.row_kernels import gather, put
from freshet.operators.graph.sources import SourceRows
from freshet.operators.graph.topology import SPLIT
from freshet.operators.initial.column_files import ColumnWriter, read_block, read_columns, remove_columns
from freshet.operators.initial.graph_events import X
from freshet.operators.initial.sent_rows import Sent, SlotRows, SplitRows, in_chunks, incoming, remove_sent, rows_path
from freshet.operators.initial.topology import read_topology
from freshet.operators.settings import Settings
from freshet.operators.storage.layer import FeatureStorage, LayerStorage
from freshet.operators.storage.tail import LayerTail
from freshet.state.block_columns import PARTIAL
from freshet.state.codec import Block, Header
from freshet.state.image import write_image

EVENTS = "events"
_MIB = 1 << 20
LISTS = "out.", "in."  # tables of edges, which are written at random places and are smaller than what placing took


class LayerImages:
    """Writes the images of Storages and Tails, in their order; `work` has the rows sent between them.

    Units: `memory` bytes, of which chunks of rows take a part and the sums of a pass another.
    """

    def __init__(self, settings: Settings, plan: Plan, work: Path, memory: int) -> None:
        self._settings, self._plan, self._work, self._memory = replace(settings, tasks=()), plan, work, memory
        self._flow = dataflow_of(self._settings, plan)

    def make(self, operator: str, part: int) -> dict[str, int]:
        """Write the image of one part of an operator, and what it sends; checksums of that by file."""
        row = self._flow[operator]
        core = make_core(self._settings, self._plan, row, part)
        image = Path(self._settings.image) / str(Place(operator, part))
        core.tables.keep_in(image, LISTS)
        block = read_topology(self._work, part)
        following = self._plan.layers[row.layer] if row.layer < len(self._plan.layers) else None
        if isinstance(core, LayerTail):
            sums = self._make_tail(core, part, row.layer, block, following)
        elif isinstance(core, LayerStorage):
            sums = self._make_storage(core, part, row.layer, block, following)
        else:
            assert isinstance(core, FeatureStorage) and following is not None
            sums = self._make_features(core, part, block, following)
        write_image(core.tables, image, 0)
        return sums

    def _rows(self, *widths: int) -> int:
        return rows_at_once(self._memory, *widths)

    def _make_features(self, core: FeatureStorage, part: int, block: Block, following: LayerPlan) -> dict[str, int]:
        owner = core.owner
        core.at.reserve(block, "m")
        core.masters.take_over(block)
        features = read_columns(self._work / EVENTS)[X]
        slots, rows = block.get("x0_slot"), block.get("x0").reshape(-1)
        size = self._rows(3 * self._plan.features.width)
        for some, of in zip(in_chunks(slots, size), in_chunks(rows, size), strict=True):
            owner.store(some, gather(features, of), some)
            core.tables.let_go()
        chunks = ((some, owner.rows(some)) for some in in_chunks(block.get("m_slot"), size))
        return self._send(core, part, 0, chunks, following)

    def _send(
        self,
        core: FeatureStorage | LayerStorage,
        part: int,
        number: int,
        chunks: Iterator[tuple[np.ndarray, np.ndarray]],
        following: LayerPlan | None,
    ) -> dict[str, int]:
        """Write what these vertices, given as slots and rows, send to the next layer, or their embeddings."""
        path = rows_path(self._work, number, part)
        width = self._plan.out_width if following is None else following.message_width + following.self_width
        out = SlotRows(path, int(core.at.needs[0]), width)
        for slots, x in chunks:
            out.put(slots, x if following is None else following.send(x, core.owner.send_context(slots)))
            core.tables.let_go()
        return {path.name: out.finish()}

    def _make_storage(
        self, core: LayerStorage, part: int, number: int, block: Block, following: LayerPlan | None
    ) -> dict[str, int]:
        layer, owner, values = core.shape.layer, core.owner, core.values
        core.topology.take_over(block)
        sent = self._sent(number, layer)
        incoming = self._work / f"incoming-{number}-{part}"
        sources = self._sources(core, block, sent, part, incoming)
        row_bytes = 8 * layer.message_width + 16
        values.synopses.load(block, sources, values.own, max(16, self._memory // 2 // row_bytes))
        del sources
        incoming.unlink(missing_ok=True)
        core.tables.let_go()
        touched = values.synopses.touched()
        touched.sort()
        active = owner.choose(0, [touched, block.get("m_slot")])
        active.sort()
        size = self._rows(layer.synopsis_width, layer.message_width, layer.self_width, 3 * layer.out_width)
        chunks = ((some, core.new_rows(some).x) for some in in_chunks(active, size))
        sums = self._send(core, part, number, chunks, following)
        if self._settings.parts > 1:
            self._write_partials(core, part, number, block, touched)
        return sums

    def _sent(self, number: int, layer: LayerPlan) -> list[Sent]:
        """Return the rows sent by the layer before, by part."""
        width = layer.message_width + layer.self_width
        return [Sent(self._work, number - 1, part, width) for part in range(self._settings.parts)]

    def _sources(self, core: LayerStorage, block: Block, sent: list[Sent], part: int, path: Path) -> SourceRows:
        """The values of the part's masters and replicas; own rows go to their table."""
        masters, width = block.get("m_slot"), core.shape.layer.message_width
        size = self._rows(2 * sent[part].whole.shape[1])
        own = core.values.own
        if own is not None:
            for some in in_chunks(masters, size):
                put(own.view, some, frozen(sent[part].gather(some)), width)
                core.tables.let_go()
        return incoming(block, sent, part, (path, slice(0, width)), size)

    def _write_partials(self, core: LayerStorage, part: int, number: int, block: Block, touched: np.ndarray) -> None:
        """The partial synopses of the part's split vertices, for the tails of their masters."""
        owner, splits = core.owner, block.get("s_slot")
        slots = np.concatenate([touched, splits[~owner.are_in(splits, touched)]])
        known, split = core.topology, owner.owned | SPLIT
        partials = route_partials(slots, known.masters.flags.data, split, known.home.data, core.at)
        size = self._rows(2 * core.shape.layer.synopsis_width)
        for to in range(self._settings.parts):
            chosen = slice(*partials.ends[to : to + 2])
            with ColumnWriter(self._partials(number, part, to)) as out:
                rows, there = partials.rows[chosen], partials.slot[chosen]
                for some, slot in zip(in_chunks(rows, size), in_chunks(there, size), strict=True):
                    out.add("p_slot", slot)
                    out.add("p_count", core.values.synopses.in_edges(some))
                    out.add("p", core.values.synopses.read(some))
                    core.tables.let_go()
                out.close()

    def _partials(self, number: int, part: int, to: int) -> Path:
        return self._work / f"partials-{number}-{part}-{to}"

    def _make_tail(
        self, core: LayerTail, part: int, number: int, block: Block, following: LayerPlan | None
    ) -> dict[str, int]:
        layer, owner, parts = core.shape.layer, core.owner, range(self._settings.parts)
        core.take_over(block)
        splits = np.sort(block.get("s_slot"))
        size = self._rows(layer.synopsis_width, 2 * core.own_width, 3 * layer.out_width)
        sent = self._sent(number, layer)[part]
        own_from = 0 if layer.self_is_message else layer.message_width
        for some in in_chunks(splits, size) if core.own_width else ():
            core.own.touch_rows(some)
            core.own.data[some] = sent.gather(some)[:, own_from : own_from + core.own_width]
            core.tables.let_go()
        blocks = [read_block(self._partials(number, one, part), Header(PARTIAL, 0, number, one)) for one in parts]
        active = owner.choose(0, [splits, *map(core.keep, blocks)])
        active.sort()
        out = SplitRows(self._work, number, part)
        for some in in_chunks(active, size):
            slots, x, *_ = core.new_rows(some, some)
            out.put(slots, x if following is None else following.send(x, owner.send_context(slots)))
            core.tables.let_go()
        out.finish()
        return {}

    def forget(self, number: int) -> None:
        """Remove what was sent to a layer, and partials of it, once all its parts are done."""
        parts = range(self._settings.parts)
        remove_sent(self._work, number - 1, parts)
        for folder in (self._partials(number, part, to) for part in parts for to in parts):
            remove_columns(folder)


def rows_at_once(memory: int, *widths: int) -> int:
    """Return the number of rows in a chunk that has arrays of these widths, of all the memory for chunks and sums."""
    return max(16, min(32 * _MIB, memory // 16) // (4 * sum(widths) + 64))
