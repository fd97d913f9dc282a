"""The Storages' and Tails' part of epoch 0: one operator's part at a time, its tables in files, its rows in chunks.

Each core does with its own methods and kernels what it does in `apply`, by kind and by relation. What differs is that
messages lie in files by slot, and that rows are computed and handed on some at a time. Rows of each kind that the next
layer reads lie in a file of their own. A relation's messages read columns of its sources' rows, which are put side by
side in a file where they do not begin the rows.
Invariant: the image is that of `build_image`, bit by bit (tests/unit/operators/initial).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from freshet.gnn.any_plan import AnyPlan
from freshet.operators.dataflow import Place
from freshet.operators.factory import dataflow_of, make_core
from freshet.operators.graph.layer_of_kinds import LayerOfKinds, VertexPlan
from freshet.operators.graph.part_rows import frozen
from freshet.operators.graph.relation import LayerRelation
from freshet.operators.graph.routing import route_partials
from freshet.operators.graph.sources import NO_SOURCES, SourceRows
from freshet.operators.graph.topology import MASTER, SPLIT
from freshet.operators.initial.column_files import ColumnWriter, read_block, remove_columns
from freshet.operators.initial.graph_events import read_features
from freshet.operators.initial.sent_rows import Sent, SlotRows, SplitRows, in_chunks, incoming, remove_sent, rows_path
from freshet.operators.initial.topology import read_topology
from freshet.operators.settings import Settings
from freshet.operators.storage.epoch_topology import EpochTopology
from freshet.operators.storage.features import FeatureStorage
from freshet.operators.storage.layer import LayerStorage
from freshet.operators.storage.learned import ids_of
from freshet.operators.storage.owner import Owner
from freshet.operators.storage.relations import RelationSynopses
from freshet.operators.storage.tail import LayerTail
from freshet.operators.storage.vertices import Vertices
from freshet.schema import FeatureRows
from freshet.state.block_columns import PARTIAL, relation_prefix
from freshet.state.codec import Block, Header, views
from freshet.state.image import write_image

Rows = Iterator[tuple[np.ndarray, np.ndarray]]
"""Slots and rows of some vertices at a time."""
EVENTS = "events"
_MIB = 1 << 20
LISTS = "out.", "in."  # tables of edges, which are written at random places and are smaller than what placing took


class LayerImages:
    """Writes the images of Storages and Tails, in their order; `work` has the rows sent between them.

    Units: `memory` bytes, of which chunks of rows take a part and the sums of a pass another.
    """

    def __init__(self, settings: Settings, plan: AnyPlan, work: Path, memory: int) -> None:
        self._settings, self._plan, self._work, self._memory = replace(settings, tasks=()), plan, work, memory
        self._flow = dataflow_of(self._settings, plan)
        self._parts = range(settings.parts)

    def make(self, operator: str, part: int) -> dict[str, int]:
        """Write the image of one part of an operator, and what it sends; checksums of that by file."""
        row = self._flow[operator]
        core = make_core(self._settings, self._plan, row, part)
        image = Path(self._settings.image) / str(Place(operator, part))
        layers: Sequence[LayerOfKinds] = self._plan.layers
        relations = {one.number for layer in layers for one in layer.relations}
        core.tables.keep_in(image, tuple(relation_prefix(one) + name for one in relations for name in LISTS))
        topology = EpochTopology([views(read_topology(self._work, part))])
        if isinstance(core, LayerTail):
            sums = self._make_tail(core, part, row.layer, topology)
        elif isinstance(core, LayerStorage):
            sums = self._make_storage(core, part, row.layer, topology)
        else:
            assert isinstance(core, FeatureStorage)
            sums = self._make_features(core, part, topology)
        write_image(core.tables, image, 0)
        return sums

    def _make_features(self, core: FeatureStorage, part: int, topology: EpochTopology) -> dict[str, int]:
        features, sums = read_features(self._work / EVENTS, self._plan.features), dict[str, int]()
        for kind, owner in enumerate(core.owners):
            size = rows_at_once(self._memory, 3 * owner.width)
            born = take_features(core, kind, features, topology, size)
            if owner.following is not None:
                chunks = ((some, owner.rows(some)) for some in in_chunks(born, size))
                sums |= self._send(core, owner, (0, part, owner.following.number), chunks)
        return sums

    def _send(
        self, core: FeatureStorage | LayerStorage, owner: Owner, place: tuple[int, int, int | None], chunks: Rows
    ) -> dict[str, int]:
        """Write what vertices of a kind send to the next layer, or their embeddings; `place`: layer, part and kind."""
        following = owner.following
        width = owner.width if following is None else following.message_width + following.self_width
        path = rows_path(self._work, *place)
        out = SlotRows(path, int(owner.at.needs[0]), width)
        for slots, x in chunks:
            out.put(slots, owner.send(slots, x))
            core.tables.let_go()
        return {path.name: out.finish()}

    def _sent(self, number: int, plan: VertexPlan) -> list[Sent]:
        """Return the rows of a kind that the layer before has sent, by part."""
        width = plan.message_width + plan.self_width
        return [Sent(self._work, number - 1, part, width, plan.number) for part in self._parts]

    def _make_storage(self, core: LayerStorage, part: int, number: int, topology: EpochTopology) -> dict[str, int]:
        sent: dict[int, list[Sent]] = {}
        for kind, one in core.kinds.items():
            section = topology.of(one.prefix)
            one.take_over(section)
            one.take_degrees(topology)
            if one.plan.sends:
                sent[kind] = self._sent(number, one.plan)
                if one.keeps_own:
                    self._keep_selves(core, one, section, sent[kind][part])
        touched = self._load(core, part, number, topology, sent)
        sums: dict[str, int] = {}
        for one in core.kinds.values():
            if one.owner is None:
                continue
            into = [core.relations[place] for place in one.plan.relations]
            candidates = [touched[place] for place in one.plan.relations] + [topology.of(one.prefix).get("m_slot")]
            chunks = self._updated(one, candidates, into)
            if one.owner.following is not None or core.shape.following is None:
                sums |= self._send(core, one.owner, (number, part, one.plan.number), chunks)
            else:
                for _ in chunks:
                    core.tables.let_go()
            if self._settings.parts > 1:
                self._write_partials(core, one, part, number, topology, touched)
        return sums

    def _keep_selves(self, core: LayerStorage, one: Vertices, section: Block, sent: Sent) -> None:
        for some in in_chunks(section.get("m_slot"), self._rows_of(one.plan)):
            one.keep_selves(some, frozen(sent.gather(some)))
            core.tables.let_go()

    def _rows_of(self, plan: VertexPlan, synopses: int = 0) -> int:
        widths = 2 * (plan.message_width + plan.self_width), 3 * plan.out_width
        return rows_at_once(self._memory, synopses, *widths)

    def _updated(self, one: Vertices, candidates: list[np.ndarray], into: list[RelationSynopses]) -> Rows:
        """Yield the new rows of whole vertices of a kind."""
        assert one.owner is not None
        active = one.owner.choose(0, candidates)
        active.sort()
        size = self._rows_of(one.plan, sum(relation.plan.synopsis_width for relation in into))
        return ((some, one.new_rows(some, some, into).x) for some in in_chunks(active, size))

    def _load(
        self, core: LayerStorage, part: int, number: int, topology: EpochTopology, sent: dict[int, list[Sent]]
    ) -> list[np.ndarray]:
        """Merge the messages of all relations, one after the other; of each the targets that it touched."""
        touched = []

        def rows_of(kind: int, to: tuple[Path, slice]) -> SourceRows:
            end = core.kinds[kind]
            return incoming(topology.of(end.prefix), sent[kind], part, to, self._rows_of(end.plan))

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
        self, core: LayerStorage, one: Vertices, part: int, number: int, topology: EpochTopology,
        touched: list[np.ndarray],
    ) -> None:  # fmt: skip
        """Write the partial synopses of the part's split vertices of a kind, for the tails of their masters."""
        assert one.owner is not None and one.home is not None
        flags, splits = one.owner.masters.flags.data, topology.of(one.prefix).get("s_slot")
        route = partial(route_partials, flags=flags, split=MASTER | SPLIT, home=one.home.data, at=one.at)
        for place in one.plan.relations:
            relation = core.relations[place]
            size = self._rows_of(one.plan, 2 * relation.plan.synopsis_width)
            routed = relation.routed(touched[place], splits, route)
            for to in self._parts:
                with ColumnWriter(self._partials(number, place, relation.plan, part, to)) as out:
                    for columns in relation.partials(routed, to, core.shape.tasks, size):
                        for name, column in columns.items():
                            out.add(name.removeprefix(relation.prefix), column)
                        core.tables.let_go()
                    out.close()
            core.tables.let_go()

    def _partials(self, number: int, place: int, relation: LayerRelation, part: int, to: int) -> Path:
        of = "" if relation.number is None else f"{place}-"
        return self._work / f"partials-{number}-{of}{part}-{to}"

    def _make_tail(self, core: LayerTail, part: int, number: int, topology: EpochTopology) -> dict[str, int]:
        relations = core.shape.layer.relations
        for _, one, into in core.kinds:
            section = topology.of(one.prefix)
            core.take_over(one, into, section)
            one.take_degrees(topology)
            splits, owner = np.sort(section.get("s_slot")), one.owner
            assert owner is not None
            if one.own is not None:
                sent = self._sent(number, one.plan)[part]
                for some in in_chunks(splits, self._rows_of(one.plan)):
                    one.own.touch_rows(some)
                    one.own.data[some] = one.own_columns(sent.gather(some))
                    core.tables.let_go()
            candidates = [splits]
            for place, partials in zip(one.plan.relations, into, strict=True):
                for of in self._parts:
                    folder = self._partials(number, place, relations[place], of, part)
                    found = read_block(folder, Header(PARTIAL, 0, number, of))
                    candidates.append(partials.keep(found, owner.masters.flags.data, MASTER | SPLIT))
            active = owner.choose(0, candidates)
            active.sort()
            out = SplitRows(self._work, number, part, one.plan.number)
            synopses = sum(relations[place].synopsis_width for place in one.plan.relations)
            for some in in_chunks(active, self._rows_of(one.plan, synopses)):
                out.put(some, owner.send(some, one.new_rows(some, some, into).x))
                core.tables.let_go()
            out.finish()
        return {}

    def forget(self, number: int) -> None:
        """Remove what was sent to a layer, and partials of it, once all its parts are done."""
        features = self._plan.features
        for kind in range(len(features.widths)):
            remove_sent(self._work, number - 1, self._parts, None if features.kinds is None else kind)
        for folder in self._work.glob(f"partials-{number}-*"):
            remove_columns(folder)


def take_features(
    core: FeatureStorage, kind: int, features: FeatureRows, topology: EpochTopology, size: int
) -> np.ndarray:
    """Put the features of a kind's vertices into its table, `size` at a time, and learned rows; returns their slots."""
    owner, section = core.owners[kind], topology.of(core.prefixes[kind])
    core.take_over(kind, topology)
    slots, rows = section.get("x0_slot"), section.get("x0").reshape(-1)
    learned, born = core.learned.get(kind), section.get("m_slot")
    if learned is not None:
        for at in range(0, born.size, size):
            learned.look_up(ids_of(section, at, at + size), born[at : at + size])
            core.tables.let_go()
    for some, of in zip(in_chunks(slots, size), in_chunks(rows, size), strict=True):
        x = features.of_kind(kind, of).matrix
        owner.store(some, frozen(x if learned is None else learned.beside(some, x)), some)
        core.tables.let_go()
    return born


def rows_at_once(memory: int, *widths: int) -> int:
    """Return the number of rows in a chunk that has arrays of these widths, of all the memory for chunks and sums."""
    return max(16, min(32 * _MIB, memory // 16) // (4 * sum(widths) + 64))
