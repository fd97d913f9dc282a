"""The Storages' and Tails' part of epoch 0 where vertices have kinds: as layers.py, by kind and by relation.

Rows of each kind that the next layer reads lie in a file of their own. A relation's messages read columns of its
sources' rows, which are put side by side in a file where they do not begin the rows.
Invariant: the image is that of `build_image`, bit by bit (tests/unit/operators/initial).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from freshet.gnn.kind_layers.plans import KindPlan, KindsPlan, RelationPlan
from freshet.operators.dataflow import Place
from freshet.operators.factory import dataflow_of, make_core
from freshet.operators.graph.part_rows import frozen
from freshet.operators.graph.routing import route_partials
from freshet.operators.graph.sources import NO_SOURCES, SourceRows
from freshet.operators.graph.topology import MASTER, SPLIT
from freshet.operators.initial.column_files import ColumnWriter, read_block, remove_columns
from freshet.operators.initial.graph_events import read_features
from freshet.operators.initial.layers import EVENTS, LISTS, rows_at_once
from freshet.operators.initial.sent_rows import Sent, SlotRows, SplitRows, in_chunks, incoming, remove_sent, rows_path
from freshet.operators.initial.topology import read_topology
from freshet.operators.settings import Settings
from freshet.operators.storage.kinds.handing import KindsTopology
from freshet.operators.storage.kinds.layer import KindsFeatureStorage, KindsLayerStorage
from freshet.operators.storage.kinds.learned import ids_of
from freshet.operators.storage.kinds.relations import RelationSynopses
from freshet.operators.storage.kinds.tail import KindsTail
from freshet.operators.storage.kinds.vertices import KindVertices, sending
from freshet.operators.storage.owner import Owner
from freshet.state.block_columns import PARTIAL, kind_prefix, relation_prefix
from freshet.state.codec import Block, Header, view, views
from freshet.state.image import write_image

Rows = Iterator[tuple[np.ndarray, np.ndarray]]
"""Slots and rows of some vertices at a time."""


class KindLayerImages:
    """Writes the images of Storages and Tails, in their order; `work` has the rows sent between them.

    Units: `memory` bytes, of which chunks of rows take a part and the sums of a pass another.
    """

    def __init__(self, settings: Settings, plan: KindsPlan, work: Path, memory: int) -> None:
        self._settings, self._plan, self._work, self._memory = replace(settings, tasks=()), plan, work, memory
        self._flow = dataflow_of(self._settings, plan)
        self._parts = range(settings.parts)

    def make(self, operator: str, part: int) -> dict[str, int]:
        """Write the image of one part of an operator, and what it sends; checksums of that by file."""
        row = self._flow[operator]
        core = make_core(self._settings, self._plan, row, part)
        image = Path(self._settings.image) / str(Place(operator, part))
        relations = range(len(self._plan.edge_types))
        core.tables.keep_in(image, tuple(relation_prefix(one) + name for one in relations for name in LISTS))
        block = read_topology(self._work, part)
        if isinstance(core, KindsTail):
            sums = self._make_tail(core, part, row.layer, block)
        elif isinstance(core, KindsLayerStorage):
            sums = self._make_storage(core, part, row.layer, block)
        else:
            assert isinstance(core, KindsFeatureStorage)
            sums = self._make_features(core, part, block)
        write_image(core.tables, image, 0)
        return sums

    def _make_features(self, core: KindsFeatureStorage, part: int, block: Block) -> dict[str, int]:
        features, sums = read_features(self._work / EVENTS, self._plan.features), dict[str, int]()
        topology = KindsTopology([views(block)])
        for kind, owner in enumerate(core.owners):
            section = view(block, kind_prefix(kind))
            core.take_over(kind, section, topology)
            slots, rows = section.get("x0_slot"), section.get("x0").reshape(-1)
            size = rows_at_once(self._memory, 3 * owner.x.data.shape[1])
            learned, born = core.learned.get(kind), section.get("m_slot")
            if learned is not None:
                for at in range(0, born.size, size):
                    learned.look_up(ids_of(section, at, at + size), born[at : at + size])
                    core.tables.let_go()
            for some, of in zip(in_chunks(slots, size), in_chunks(rows, size), strict=True):
                x = features.of_kind(kind, of).matrix
                owner.store(some, x if learned is None else learned.beside(some, x), some)
                core.tables.let_go()
            if (following := sending(self._plan.layers[0], kind)) is not None:
                chunks = ((some, owner.rows(some)) for some in in_chunks(section.get("m_slot"), size))
                sums |= self._send(core, owner, (0, part, kind), chunks, following)
        return sums

    def _send(
        self,
        core: KindsFeatureStorage | KindsLayerStorage,
        owner: Owner,
        place: tuple[int, int, int],
        chunks: Rows,
        following: KindPlan | None,
    ) -> dict[str, int]:
        """Write what vertices of a kind send to the next layer, or their embeddings; `place`: layer, part and kind."""
        path, width = rows_path(self._work, *place), _sent_width(following, owner.x.data.shape[1])
        out = SlotRows(path, int(owner.at.needs[0]), width)
        for slots, x in chunks:
            out.put(slots, x if following is None else following.send(x, owner.send_context(slots)))
            core.tables.let_go()
        return {path.name: out.finish()}

    def _sent(self, number: int, kind: int, plan: KindPlan) -> list[Sent]:
        """Return the rows of a kind that the layer before has sent, by part."""
        return [Sent(self._work, number - 1, part, _sent_width(plan), kind) for part in self._parts]

    def _make_storage(self, core: KindsLayerStorage, part: int, number: int, block: Block) -> dict[str, int]:
        sent: dict[int, list[Sent]] = {}
        topology = KindsTopology([views(block)])
        for kind, one in core.kinds.items():
            section = view(block, one.prefix)
            one.take_over(section)
            one.take_degrees(topology)
            if one.plan.sends:
                sent[kind] = self._sent(number, kind, one.plan)
                self._keep_selves(core, one, section, sent[kind][part])
        touched = self._load(core, part, number, block, sent)
        sums: dict[str, int] = {}
        for kind, one in core.kinds.items():
            if one.owner is None:
                continue
            into = [core.relations[place] for place in one.plan.relations]
            candidates = [touched[place] for place in one.plan.relations] + [view(block, one.prefix).get("m_slot")]
            chunks = self._updated(one, candidates, into)
            following = sending(core.shape.following, kind)
            if following is not None or core.shape.following is None:
                sums |= self._send(core, one.owner, (number, part, kind), chunks, following)
            else:
                for _ in chunks:
                    core.tables.let_go()
            if self._settings.parts > 1:
                self._write_partials(core, one, part, number, block, touched)
        return sums

    def _keep_selves(self, core: KindsLayerStorage, one: KindVertices, section: Block, sent: Sent) -> None:
        for some in in_chunks(section.get("m_slot"), self._rows_of(one.plan)):
            one.keep_selves(some, frozen(sent.gather(some)))
            core.tables.let_go()

    def _rows_of(self, plan: KindPlan, synopses: int = 0) -> int:
        widths = 2 * (plan.message_width + plan.self_width), 3 * plan.out_width
        return rows_at_once(self._memory, synopses, *widths)

    def _updated(self, one: KindVertices, candidates: list[np.ndarray], into: list[RelationSynopses]) -> Rows:
        """Yield the new rows of whole vertices of a kind."""
        assert one.owner is not None
        active = one.owner.choose(0, candidates)
        active.sort()
        size = self._rows_of(one.plan, sum(relation.plan.synopsis_width for relation in into))
        return ((some, one.new_rows(some, some, into).x) for some in in_chunks(active, size))

    def _load(
        self, core: KindsLayerStorage, part: int, number: int, block: Block, sent: dict[int, list[Sent]]
    ) -> list[np.ndarray]:
        """Merge the messages of all relations, one after the other; of each the targets that it touched."""
        touched, topology = [], KindsTopology([views(block)])

        def rows_of(kind: int, to: tuple[Path, slice]) -> SourceRows:
            end = core.kinds[kind]
            return incoming(view(block, end.prefix), sent[kind], part, to, self._rows_of(end.plan))

        for one in core.relations:
            plan = one.plan
            path = self._work / f"incoming-{number}-{part}"
            read = self._work / f"read-{number}-{part}"
            sources = rows_of(plan.source, (path, plan.source_columns))
            targets = rows_of(plan.target, (read, plan.target_columns)) if plan.target_width else NO_SOURCES
            size = max(16, self._memory // 2 // (8 * plan.message_width + 16))
            touched.append(one.load(topology, sources, targets, size))
            del sources, targets
            for file in (path, read):
                file.unlink(missing_ok=True)
            core.tables.let_go()
        return touched

    def _write_partials(
        self, core: KindsLayerStorage, one: KindVertices, part: int, number: int, block: Block,
        touched: list[np.ndarray],
    ) -> None:  # fmt: skip
        """Write the partial synopses of the part's split vertices of a kind, for the tails of their masters."""
        assert one.owner is not None and one.home is not None
        flags, splits = one.owner.masters.flags.data, view(block, one.prefix).get("s_slot")
        route = partial(route_partials, flags=flags, split=MASTER | SPLIT, home=one.home.data, at=one.at)
        for place in one.plan.relations:
            relation = core.relations[place]
            found = relation.partials(touched[place], splits, route, core.shape.tasks)
            for to, columns in enumerate(found):
                with ColumnWriter(self._partials(number, place, part, to)) as out:
                    for name, column in columns.items():
                        out.add(name.removeprefix(relation.prefix), column)
                    out.close()
            core.tables.let_go()

    def _partials(self, number: int, place: int, part: int, to: int) -> Path:
        return self._work / f"partials-{number}-{place}-{part}-{to}"

    def _make_tail(self, core: KindsTail, part: int, number: int, block: Block) -> dict[str, int]:
        topology = KindsTopology([views(block)])
        for kind, one, into in core.kinds:
            section = view(block, one.prefix)
            core.take_over(one, into, section)
            one.take_degrees(topology)
            splits, owner = np.sort(section.get("s_slot")), one.owner
            assert owner is not None
            if one.own is not None:
                (sent,) = self._sent(number, kind, one.plan)[part : part + 1]
                for some in in_chunks(splits, self._rows_of(one.plan)):
                    one.own.touch_rows(some)
                    one.own.data[some] = one.own_columns(sent.gather(some))
                    core.tables.let_go()
            candidates = [splits]
            for place, partials in zip(one.plan.relations, into, strict=True):
                for of in self._parts:
                    found = read_block(self._partials(number, place, of, part), Header(PARTIAL, 0, number, of))
                    candidates.append(partials.keep(found, owner.masters.flags.data, MASTER | SPLIT))
            active = owner.choose(0, candidates)
            active.sort()
            following = sending(core.shape.following, kind)
            out = SplitRows(self._work, number, part, kind)
            for some in in_chunks(active, self._rows_of(one.plan, _widths(core.shape.layer.relations, one.plan))):
                x = one.new_rows(some, some, into).x
                out.put(some, x if following is None else following.send(x, owner.send_context(some)))
                core.tables.let_go()
            out.finish()
        return {}

    def forget(self, number: int) -> None:
        """Remove what was sent to a layer, and partials of it, once all its parts are done."""
        for kind in range(len(self._plan.features.widths)):
            remove_sent(self._work, number - 1, self._parts, kind)
        for folder in self._work.glob(f"partials-{number}-*"):
            remove_columns(folder)


def _sent_width(following: KindPlan | None, width: int = 0) -> int:
    return width if following is None else following.message_width + following.self_width


def _widths(relations: list[RelationPlan], plan: KindPlan) -> int:
    return sum(relations[place].synopsis_width for place in plan.relations)
