"""The vertices of one kind in a Storage or Tail.

What an operator keeps of them it keeps in tables of its own, whose names begin with the prefix of the kind, by rows of
their own. The model sees rows of one kind at a time, so kinds may differ in width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np

from freshet.gnn.kind_layers.plans import KindPlan, KindsLayer
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.row_kernels import gather, put
from freshet.operators.graph.sources import SourceRows, read_sources
from freshet.operators.graph.topology import SPLIT
from freshet.operators.storage.kinds.handing import KindsTopology
from freshet.operators.storage.kinds.masters import KindMasters
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


class KeptSynopses(Protocol):
    """The synopses of one relation, in a Storage or a Tail."""

    def read(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what update gets of vertices, (n, state_width) float32, and the numbers of in-edges, (n,) int32."""


class KeptSums(Protocol):
    """The sums of one relation in a Storage."""

    def read_means(self, slots: np.ndarray, out: np.ndarray, first: int, *, mean: bool) -> None:
        """Write sums, or means, to the columns of `out` from `first` on."""


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
            self.masters = KindMasters(tables, kind, self.at, plan, following)
            place = shape.number, owned, shape.receivers
            self.owner = Owner(mine, self.masters, plan.out_width, None, following, *place)
            self._numbers = [shape.layer.relations[one].number for one in plan.relations]
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
            self.masters.take_over(section)
        replicas = self.at.of(section, "r")
        if replicas.size and self.home is not None:
            self.home.touch_rows(replicas)
            self.home.data[replicas, 0] = section.get("r_part")
            self.home.data[replicas, 1] = section.get("r_home")

    def take_degrees(self, topology: KindsTopology) -> None:
        """Take over the degrees that an epoch changed, behind its masters."""
        if self.owner is not None:
            self.masters.take_degrees(topology)

    def read(self, blocks: list[Block]) -> SourceRows:
        """Return what vertices of the kind send from now on; keeps self inputs."""
        sources = read_sources(blocks, self.at, self.plan.message_width)
        for slots, rows in sources.selves:
            self.keep_selves(slots, rows)
        return sources

    def keep_selves(self, slots: np.ndarray, sent: np.ndarray) -> None:
        """Keep the self inputs of masters, as columns of what these send."""
        if self.own is not None and self._keeps_own:
            put(self.own.view, slots, sent, self._own_from)

    def own_columns(self, sent: np.ndarray) -> np.ndarray:
        """Return the columns of sent rows that are self inputs."""
        return sent[:, self._own_from :]

    def own_rows(self, slots: np.ndarray) -> np.ndarray:
        """Return the self inputs of these vertices, (n, width) float32."""
        return np.empty((slots.size, 0), np.float32) if self.own is None else gather(self.own.data, slots)

    def update(
        self, epoch: int, candidates: list[np.ndarray], forced: np.ndarray, kept: Sequence[KeptSynopses]
    ) -> Changed:
        """UPDATE those of the candidates whose rows are here; the rows that changed, or are forced.

        `kept` are the synopses of the relations into the kind.
        """
        assert self.owner is not None
        candidates = [slots for slots in (*candidates, self.masters.read_again) if slots.size]
        active = self.owner.choose(epoch, candidates) if candidates else _NONE
        if not active.size:
            return Changed(active, np.empty((0, self.plan.out_width), np.float32))
        return self.new_rows(active, forced, kept)

    def new_rows(self, active: np.ndarray, forced: np.ndarray, kept: Sequence[KeptSynopses]) -> Changed:
        """UPDATE these vertices, whose rows are here; the rows that changed, or are forced."""
        assert self.owner is not None
        own = self.own_rows(active)
        if self.plan.sums and not self._is_tail:
            wide, alone = self.plan.room(active.size)
            rest = iter(alone)
            for one, (first, _, mean) in zip(cast(Sequence[KeptSums], kept), self.plan.sums, strict=True):
                one.read_means(active, next(rest) if first is None else wide, first or 0, mean=mean)
            return self.owner.store(active, self.plan.update_sums(wide, alone, own), forced)
        found = [one.read(active) for one in kept]
        contexts = self.masters.contexts(active)
        states = [states for states, _ in found]
        counts = [contexts.get(one, counts) for one, (_, counts) in zip(self._numbers, found, strict=True)]
        return self.owner.store(active, self.plan.update(states, own, counts), forced)

    def clear(self, section: Block) -> np.ndarray:
        """Clear dropped masters and replicas at the end of an epoch; returns which these are."""
        dead = self.at.of(section, "d")
        gone = dead if self._is_tail else np.concatenate([dead, self.at.of(section, "f")])
        if gone.size:
            for table in self._of_all:
                table.clear_rows(gone)
            if self.owner is not None:
                self.owner.clear(dead)
                self.masters.clear(dead)
        return gone
