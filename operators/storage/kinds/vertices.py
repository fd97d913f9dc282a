"""The vertices of one kind in a Storage or Tail.

What an operator keeps of them it keeps in tables of its own, whose names begin with the prefix of the kind, by rows of
their own. The model sees rows of one kind at a time, so kinds may differ in width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from freshet.gnn.kind_layers.plans import KindPlan, KindsLayer
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.row_kernels import gather, put
from freshet.operators.graph.sources import SourceRows, read_sources
from freshet.operators.graph.topology import SPLIT, Masters
from freshet.operators.storage.kinds.tables import PrefixedTables
from freshet.operators.storage.owner import Changed, Owner
from freshet.state.block_columns import kind_prefix
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet
from freshet.state.task_parts import TaskParts

_NONE = np.empty(0, np.int32)


class KindsShape(NamedTuple):
    """Position of a Storage or Tail (see LayerShape), with the plans of all kinds and relations of its layer."""

    task: int
    tasks: TaskParts
    number: int
    layer: KindsLayer
    following: KindsLayer | None
    receivers: TaskParts | None = None

    def __str__(self) -> str:
        return f"storage {self.number} task {self.task}"


class NoContext(NamedTuple):
    """Needs of a layer with kinds of its masters: numbers of in-edges are kept by relation, with the synopses."""

    reads_context: bool = False
    source_scaled: bool = False
    skip_loops: bool = False
    reads_out_degrees: bool = False


class KeptSynopses(Protocol):
    """The synopses of one relation, in a Storage or a Tail."""

    def states(self, slots: np.ndarray) -> np.ndarray:
        """Return synopses of vertices, (n, synopsis_width) float32."""

    def in_edges(self, slots: np.ndarray) -> np.ndarray:
        """Return the numbers of in-edges that these are made of, (n,) int32."""


def sending(layer: KindsLayer | None, kind: int) -> KindPlan | None:
    """Return the plan by which vertices of a kind send rows to a layer; None where they send none."""
    plan = None if layer is None else layer.kinds[kind]
    return plan if plan is not None and plan.sends else None


class KindVertices:
    """The vertices of one kind in the parts of a task, where they have a part in the layer.

    Shapes: home (rows, 2) int32, of replicas the part and slot of the master; own (rows, width) float32, what update
    reads of a vertex itself.
    """

    def __init__(self, tables: TableSet, shape: KindsShape, kind: int, plan: KindPlan, owned: int) -> None:
        """`owned`: the flags of the masters whose rows this operator has."""
        self.plan, self.prefix, self._is_tail = plan, kind_prefix(kind), bool(owned & SPLIT)
        self.at, mine = PartRows(shape.task, shape.tasks), PrefixedTables(tables, self.prefix)
        self.owner: Owner | None = None
        if plan.updates:
            following = sending(shape.following, kind)
            masters = Masters(mine, self.at, NoContext(), None if following is None else NoContext())
            place = shape.number, owned, shape.receivers
            self.owner = Owner(mine, masters, plan.out_width, NoContext(), following, *place)
        self.home = None if self._is_tail else mine.add("home", "i4", 2, fill=-1)
        self._of_all = [] if self.home is None else [self.home]
        self.at.keep(*self._of_all)
        self._own_from, self._tables = 0 if plan.self_is_message else plan.message_width, mine
        self.own: Table | None = None
        self._keeps_own = False

    def keep_own(self, z: Table | None = None) -> None:
        """Keep self inputs; `z` is the table of a store that has them, where they are all that the vertices send."""
        plan, self.own = self.plan, z
        width = plan.message_width if plan.self_is_message else plan.self_width
        if plan.reads_self and width and z is None:
            self.own, self._keeps_own = self._tables.add("own", "f4", width), True
            self._of_all.append(self.own)
            self.at.keep(self.own)

    def take_over(self, section: Block) -> None:
        """Take over an epoch's masters and, in a Storage, replicas, and have room for them."""
        self.at.reserve(section, *("m" if self._is_tail else "mr"))
        if self.owner is not None:
            self.owner.masters.take_over(section)
        replicas = self.at.of(section, "r")
        if replicas.size and self.home is not None:
            self.home.touch_rows(replicas)
            self.home.data[replicas, 0] = section.get("r_part")
            self.home.data[replicas, 1] = section.get("r_home")

    def read(self, blocks: list[Block]) -> SourceRows:
        """Return what vertices of the kind send from now on; keeps self inputs."""
        sources = read_sources(blocks, self.at, self.plan.message_width)
        if self.own is not None and self._keeps_own:
            for slots, rows in sources.selves:
                put(self.own.view, slots, rows, self._own_from)
        return sources

    def own_rows(self, slots: np.ndarray) -> np.ndarray:
        """Return the self inputs of these vertices, (n, width) float32."""
        return np.empty((slots.size, 0), np.float32) if self.own is None else gather(self.own.data, slots)

    def update(
        self, epoch: int, candidates: list[np.ndarray], forced: np.ndarray, kept: Sequence[KeptSynopses]
    ) -> Changed:
        """UPDATE those of the candidates whose rows are here; the rows that changed, or are forced.

        `kept` are the synopses of the relations into the kind.
        """
        owner, plan = self.owner, self.plan
        assert owner is not None
        candidates = [slots for slots in candidates if slots.size]
        active = owner.choose(epoch, candidates) if candidates else _NONE
        if not active.size:
            return Changed(active, np.empty((0, plan.out_width), np.float32))
        states, counts = [one.states(active) for one in kept], [one.in_edges(active) for one in kept]
        return owner.store(active, plan.update(states, self.own_rows(active), counts), forced)

    def clear(self, section: Block) -> np.ndarray:
        """Clear dropped masters and replicas at the end of an epoch; returns which these are."""
        dead = self.at.of(section, "d")
        gone = dead if self._is_tail else np.concatenate([dead, self.at.of(section, "f")])
        if gone.size:
            for table in self._of_all:
                table.clear_rows(gone)
            if self.owner is not None:
                self.owner.clear(dead)
                self.owner.masters.clear(dead)
        return gone
