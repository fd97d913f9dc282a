"""The Storage cores of one task where vertices have kinds: layer 0 and layer l."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from freshet.gnn.kind_layers.plans import KindsLayer
from freshet.gnn.kinds.learned import LearnedRows
from freshet.operators.core import Core
from freshet.operators.dataflow import TAIL
from freshet.operators.graph.part_rows import PartRows, frozen
from freshet.operators.graph.routing import route_partials
from freshet.operators.graph.row_kernels import gather, put
from freshet.operators.graph.sources import NO_SOURCES, SourceRows
from freshet.operators.graph.topology import MASTER, SPLIT
from freshet.operators.outcome import Message
from freshet.operators.storage.featured import Featured
from freshet.operators.storage.kinds.handing import Handed, KindsTopology, hand_on_kinds, prefixed
from freshet.operators.storage.kinds.learned import LearnedColumns
from freshet.operators.storage.kinds.masters import KindMasters
from freshet.operators.storage.kinds.pairs import synopses_of
from freshet.operators.storage.kinds.relations import RelationSynopses
from freshet.operators.storage.kinds.tables import PrefixedTables
from freshet.operators.storage.kinds.vertices import KindsShape, KindVertices, sending
from freshet.operators.storage.layer import EMPTY_SLOTS, set_features
from freshet.operators.storage.owner import Owner
from freshet.operators.telemetry.figures import LEARNED, UNLEARNED, Figures
from freshet.operators.telemetry.level import Level
from freshet.operators.telemetry.sum_report import SumReport, all_sums
from freshet.schema import Features
from freshet.state.block_columns import PARTIAL, Columns, kind_prefix
from freshet.state.codec import Block, Header, seal, views
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts


class KindsFeatureStorage(Core):
    """Storage 0: the raw features of a task's masters by kind; sends what layer 1 reads of the changed ones."""

    def __init__(
        self, task: int, tasks: TaskParts, widths: Sequence[int], following: KindsLayer,
        receivers: TaskParts | None = None, learned: Sequence[LearnedRows | None] = (),
    ) -> None:  # fmt: skip
        """Make the tables of all kinds.

        `widths` are those of features by kind; `receivers`: the tasks of layer 1, by default the same; `learned`: rows
        by kind that stand behind its features.
        """
        self.tables = TableSet(len(tasks.parts_of[task]))
        self._features, self.owners = [Features(width) for width in widths], list[Owner]()
        self.masters = list[KindMasters]()
        self.learned = dict[int, LearnedColumns]()
        for kind, width in enumerate(widths):
            rows = learned[kind] if learned else None
            mine, plan = PrefixedTables(self.tables, kind_prefix(kind)), sending(following, kind)
            masters = KindMasters(self.tables, kind, PartRows(task, tasks), None, plan)
            self.masters.append(masters)
            owner = Owner(mine, masters, width + (rows.width if rows else 0), None, plan, 0, receivers=receivers)
            self.owners.append(owner)
            if rows is not None:
                self.learned[kind] = LearnedColumns(mine, owner, rows, width)
        self._featured = Featured(list(zip(self.owners, widths, strict=True)))
        self.touched = 0

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        for owner in self.owners:
            owner.at.restore()
        for one in self.learned.values():
            one.after_restore()

    @property
    def figures(self) -> Figures:
        """The gauge of features, the number of vertices of kinds with learned rows, and of unknown ids there."""
        found = list(self.learned.values())
        if not found:
            return Figures(gauges=self._featured.gauges)
        vertices, unknown = sum(one.vertices for one in found), sum(one.unknown for one in found)
        return Figures(gauges={LEARNED: vertices, UNLEARNED: unknown, **self._featured.gauges})

    def take_over(self, kind: int, section: Block, topology: KindsTopology) -> bool:
        """Take over an epoch's masters of a kind and their degrees, and have room for them; whether it has any."""
        if section.columns:
            self.owners[kind].at.reserve(section, "m")
            self.masters[kind].take_over(section)
        return self.masters[kind].take_degrees(topology) or bool(section.columns)

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Set features, and fan out those of new and changed vertices."""
        topology, handed, self.touched = KindsTopology(map(views, blocks)), list[Handed](), 0
        for kind, owner in enumerate(self.owners):
            prefix = kind_prefix(kind)
            section = topology.of(prefix)
            if not self.take_over(kind, section, topology):
                continue
            rows = self.learned.get(kind)
            self._featured.see(section.get("x0"))
            changed = set_features(owner, section, self._features[kind]) if rows is None else rows.set(section)
            self.touched += int(changed.slots.size)
            handed.append(Handed(prefix, owner, changed))
        messages = hand_on_kinds(handed, self.owners, epoch, topology, last=False)
        for prefix, owner, _ in handed:
            dead = owner.at.of(topology.of(prefix), "d")
            if (rows := self.learned.get(self.owners.index(owner))) is not None:
                rows.clear(dead)
            owner.clear(dead)
            owner.masters.clear(dead)
        return messages


class KindsLayerStorage(Core):
    """Storage l: merges the messages of its parts' edges by relation, and updates its whole vertices by kind."""

    def __init__(self, shape: KindsShape) -> None:
        self.shape = shape
        self.tables = TableSet(len(shape.tasks.parts_of[shape.task]))
        plans = enumerate(shape.layer.kinds)
        self.kinds = {k: KindVertices(self.tables, shape, k, one, MASTER) for k, one in plans if one is not None}
        self.relations, self._sharing = list[RelationSynopses](), dict[tuple[int, int, int], list[int]]()
        self._make_relations()
        self._owners = [one.owner for one in self.kinds.values() if one.owner is not None]
        self.touched = 0
        self._index_bytes = Level()
        self.levels = {"index_bytes": self._index_bytes}

    def _make_relations(self) -> None:
        """Make the stores; those whose messages read the same rows of sources share a table of these."""
        for place, one in enumerate(self.shape.layer.relations):
            columns = one.source, one.source_columns.start, one.source_columns.stop
            same = self._sharing.setdefault(columns, [])
            z = self.relations[same[0]].store.z if same else None
            ends = self.kinds[one.source].at, self.kinds[one.target].at
            self.relations.append(synopses_of(self.tables, one, ends, str(self.shape), z))
            same.append(place)
        for kind, vertices in self.kinds.items():
            whole = self._sharing.get((kind, 0, vertices.plan.message_width))
            is_there = whole is not None and vertices.plan.self_is_message
            vertices.keep_own(self.relations[whole[0]].store.z if whole is not None and is_there else None)

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        for one in self.kinds.values():
            one.at.restore()
        for relation in self.relations:
            relation.after_restore()

    @property
    def nbytes(self) -> int:
        """Bytes held by the tables and by the indexes of long lists."""
        return super().nbytes + self._held_by_indexes

    @property
    def _held_by_indexes(self) -> int:
        return sum(one.lists.index_bytes for one in self.relations)

    @property
    def sums(self) -> SumReport | None:
        """Report on the sums of these parts, if synopses are sums."""
        return all_sums(one.store.report for one in self.relations)

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Merge the messages of an epoch, update the active whole vertices, and hand on what changed."""
        brought = [views(block) for block in blocks]
        topology, sent = KindsTopology(brought), dict[int, SourceRows]()
        for kind, one in self.kinds.items():
            if (section := topology.of(one.prefix)).columns:
                one.take_over(section)
            one.take_degrees(topology)
            if rows := [views[one.prefix] for views in brought if one.prefix in views]:
                sent[kind] = one.read(rows)
        touched = self._merge(epoch, topology, sent)
        messages = self._update(epoch, topology, touched, sent)
        if self.shape.tasks.parts > 1:
            messages += self._partials(epoch, topology, touched, sent)
        self._clear(topology)
        return messages

    def _merge(self, epoch: int, topology: KindsTopology, sent: dict[int, SourceRows]) -> list[np.ndarray]:
        """Merge edges and rows; of each relation the targets whose synopses changed."""
        every = [EMPTY_SLOTS] * len(self.relations)
        for (kind, *_), places in self._sharing.items():
            z, sources = self.relations[places[0]].store.z, sent.get(kind, NO_SOURCES)
            shares = len(places) > 1 and sources.slots.size > 0
            before = frozen(gather(z.data, sources.slots.copy())) if shares else None
            for place in places:
                one = self.relations[place]
                if before is not None and place != places[0]:  # each store takes messages back by the old rows
                    put(z.view, sources.slots, before, 0)
                touched = one.merge(epoch, topology, sources, sent.get(one.plan.target, NO_SOURCES))
                if touched is not None:
                    every[place] = np.sort(touched) if epoch == 0 else touched  # a snapshot's may come in passes
        return every

    def _update(
        self, epoch: int, topology: KindsTopology, touched: list[np.ndarray], sent: dict[int, SourceRows]
    ) -> list[Message]:
        """UPDATE of the active whole vertices, and what it changes for the next layer or the sink."""
        handed, self.touched = list[Handed](), 0
        for kind, one in self.kinds.items():
            if one.owner is None:
                continue
            section, forced = topology.of(one.prefix), EMPTY_SLOTS
            if section.columns:
                forced = np.concatenate([one.at.of(section, "m"), one.at.of(section, "u")])
            candidates = [*(touched[place] for place in one.plan.relations), forced]
            if one.plan.reads_self and kind in sent:
                candidates.append(sent[kind].masters)
            into = [self.relations[place] for place in one.plan.relations]
            changed = one.update(epoch, candidates, forced, into)
            self.touched += int(changed.slots.size)
            handed.append(Handed(one.prefix, one.owner, changed))
        return hand_on_kinds(handed, self._owners, epoch, topology, last=self.shape.following is None)

    def _partials(
        self, epoch: int, topology: KindsTopology, touched: list[np.ndarray], sent: dict[int, SourceRows]
    ) -> list[Message]:
        """The partial synopses of touched split vertices, to the tails of their masters."""
        shape, tasks = self.shape, self.shape.tasks
        found: list[Columns] = [{} for _ in range(tasks.tasks)]
        found[shape.task] = topology.share(tasks.parts_of[shape.task], tasks.parts_of[shape.task])
        for kind, one in self.kinds.items():
            if one.owner is None:
                continue
            flags, splits = one.owner.masters.flags.data, one.at.of(topology.of(one.prefix), "s")
            for place in one.plan.relations:
                if (touched[place].size or splits.size) and one.home is not None:
                    route = partial(route_partials, flags=flags, split=MASTER | SPLIT, home=one.home.data, at=one.at)
                    sections = self.relations[place].partials(touched[place], splits, route, tasks)
                    for columns, section in zip(found, sections, strict=True):
                        columns |= section
            mine = np.concatenate([sent.get(kind, NO_SOURCES).masters, splits])
            mine = np.unique(mine[flags[mine] == MASTER | SPLIT])
            if mine.size and one.own is not None:
                own = one.at.place_columns("t", mine) | {"t": one.own_rows(mine)}
                found[shape.task] |= prefixed(one.prefix, own)
        header = Header(PARTIAL, epoch, shape.number, shape.task)
        return [Message(TAIL, task, epoch, seal(header, columns)) for task, columns in enumerate(found)]

    def _clear(self, topology: KindsTopology) -> None:
        """Clear the rows of dropped masters and replicas at the end of the epoch."""
        gone = {
            kind: one.clear(section) for kind, one in self.kinds.items() if (section := topology.of(one.prefix)).columns
        }
        for one in self.relations:
            one.clear(gone.get(one.plan.source, EMPTY_SLOTS), gone.get(one.plan.target, EMPTY_SLOTS))
        self._index_bytes.set(self._held_by_indexes)
