"""The vertices of one kind in a Storage or Tail.

What an operator keeps of them it keeps in tables of its own, whose names begin with the prefix of the kind, by rows of
their own. The model sees rows of one kind at a time, so kinds may differ in width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, cast

import numpy as np

from freshet.gnn.kind_layers.plans import KindPlan
from freshet.gnn.layers.base import Epilogue, OnlyKind
from freshet.gnn.synopses.attend import AttentionEpilogue
from freshet.operators.aggregates.finishing import Finish
from freshet.operators.graph.layer_of_kinds import VertexPlan
from freshet.operators.graph.part_rows import NO_ROWS, PartRows
from freshet.operators.graph.row_kernels import gather, put
from freshet.operators.graph.sources import SourceRows, read_sources
from freshet.operators.graph.tables import with_prefix
from freshet.operators.graph.topology import SPLIT, Masters
from freshet.operators.storage.epoch_topology import EpochTopology
from freshet.operators.storage.owner import Changed, Owner, RowOwner
from freshet.operators.storage.printed_owner import PrintedOwner
from freshet.operators.storage.root_rows import RootRows
from freshet.operators.storage.shape import LayerShape, sending
from freshet.state.block_columns import kind_prefix
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet

_NONE = np.empty(0, np.int32)
# Columns of what is taken over and what is dropped: most epochs of few events have none of them.
_TAKEN_OVER = frozenset(f"{name}_slot" for name in ("m", "d", "s", "u", "r", "ra", "rd"))
_DROPPED = frozenset({"d_slot", "f_slot"})


class KeptSynopses(Protocol):
    """The synopses of one relation, in a Storage or a Tail."""

    def read(self, slots: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return what update gets of vertices, (n, state_width) float32, and the numbers of in-edges, (n,) int32.

        In place of those there is an empty context where update does not read them.
        """


class KeptSums(Protocol):
    """The sums of one relation in a Storage."""

    def read_means(self, slots: np.ndarray, out: np.ndarray, first: int, *, mean: bool) -> None:
        """Write sums, or means, to the columns of `out` from `first` on."""

    def finisher(self, epilogue: Epilogue | AttentionEpilogue, own: Table | None, count: Table) -> Finish:
        """Return a function that UPDATEs and stores rows in one pass."""


class Vertices:
    """The vertices of one kind in the parts of a task, where they have a part in the layer.

    Shapes: home (rows, 2) int32, of replicas the part and slot of the master; own (rows, width) float32, what update
    reads of a vertex itself.
    """

    def __init__(self, tables: TableSet, shape: LayerShape, kind: int, plan: VertexPlan, owned: int) -> None:
        """`kind`: its place in the layer; `owned`: the flags of the masters whose rows this operator has."""
        self.plan, self.prefix, self._is_tail = plan, kind_prefix(plan.number), bool(owned & SPLIT)
        self.at, mine = PartRows(shape.task, shape.tasks), with_prefix(tables, self.prefix)
        self.owner: Owner | None = None
        if plan.updates:
            following = sending(shape.following, kind)
            self.masters = Masters(tables, self.at, plan.number, plan, following)
            is_made = plan.epilogue is not None and plan.epilogue.makes_again and not self._is_tail
            kept = PrintedOwner if is_made else RowOwner
            self.owner = kept(mine, self.masters, plan.out_width, following, shape.number, owned, shape.receivers)
            if isinstance(self.owner, PrintedOwner):
                self.owner.begin(shape.seed)
            self._numbers = [shape.layer.relations[one].number for one in plan.relations]
        self.home = None if self._is_tail else mine.add("home", "i4", 2, fill=-1)
        self._of_all = [] if self.home is None else [self.home]
        self.at.keep(*self._of_all)
        self._own_from, self._tables = 0 if plan.self_is_message else plan.message_width, mine
        self.own: Table | None = None
        self.keeps_own = False
        self._roots = RootRows(cast(OnlyKind, plan)) if plan.root_width and not self._is_tail else None

    def keep_own(self, z: Table | None = None) -> None:
        """Keep self inputs; `z` is the table of a store that has them, where they are all that the vertices send."""
        plan, self.own = self.plan, z
        width = plan.message_width if plan.self_is_message else plan.self_width
        has_kinds = plan.number is not None
        keeps = bool((plan.reads_self or not has_kinds) and width and z is None)
        if keeps or (self._is_tail and not has_kinds):  # a Tail without kinds has the table in any case
            table = self._tables.add("own", "f4", max(1, width))
            self.at.keep(table)
        if keeps:
            self.own, self.keeps_own = table, True
            self._of_all.append(table)

    def make_of(self, kept: Sequence[KeptSynopses]) -> None:
        """Make rows that are not kept of these synopses, of the relations into the kind."""
        if isinstance(self.owner, PrintedOwner):
            self.owner.make = partial(self._finisher, kept)

    def _finisher(self, kept: Sequence[KeptSynopses]) -> Finish:
        (one,), plan = cast(Sequence[KeptSums], kept), self.plan
        assert plan.epilogue is not None
        return one.finisher(plan.epilogue, self.own, self.masters.count)

    @property
    def kept_rows(self) -> list[Table]:
        """The table of rows, where these are kept."""
        return [self.owner.x] if isinstance(self.owner, RowOwner) else []

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        if isinstance(self.owner, PrintedOwner):
            self.owner.note_missing()
        self.at.restore()
        if self._roots is not None:
            self._roots.clear()

    def make_missing(self) -> None:
        """Make what a state of an earlier version has not; all else is restored."""
        if isinstance(self.owner, PrintedOwner):
            self.owner.make_missing()

    def take_over(self, section: Block) -> None:
        """Take over an epoch's masters and, in a Storage, replicas, and have room for them."""
        if _TAKEN_OVER.isdisjoint(section.columns):
            return
        # flags are asked of replicas, too, and a part may have more of those than masters, or no master at all
        self.at.reserve(section, *("m" if self._is_tail else "mr"))
        if self.owner is not None:
            self.masters.take_over(section)
        replicas = self.at.of(section, "r")
        if replicas.size and self.home is not None:
            self.home.touch_rows(replicas)
            self.home.data[replicas, 0] = section.get("r_part")
            self.home.data[replicas, 1] = section.get("r_home")

    def take_degrees(self, topology: EpochTopology) -> None:
        """Take over the contexts that an epoch changed, behind its masters."""
        if self.owner is not None:
            self.masters.take_degrees(topology.of)

    def read(self, blocks: list[Block]) -> SourceRows:
        """Return what vertices of the kind send from now on."""
        sources = read_sources(blocks, self.at, self.plan.message_width)
        if self._roots is not None:
            assert self.own is not None  # self inputs are messages, which a store has
            self._roots.reserve(len(self.own.data))
            self._roots.forget(sources.slots)
        return sources

    def keep_selves(self, slots: np.ndarray, sent: np.ndarray) -> None:
        """Keep the self inputs of masters, as columns of what these send."""
        if self.own is not None and self.keeps_own:
            put(self.own.view, slots, sent, self._own_from)

    def own_columns(self, sent: np.ndarray) -> np.ndarray:
        """Return the columns of sent rows that are self inputs."""
        return sent[:, self._own_from :]

    def own_rows(self, slots: np.ndarray) -> np.ndarray:
        """Return the self inputs of these vertices, (n, width) float32."""
        return np.empty((slots.size, 0), np.float32) if self.own is None else gather(self.own.data, slots)

    def choose(self, epoch: int, candidates: list[np.ndarray]) -> np.ndarray:
        """Choose those of the candidates, and of the vertices with new contexts, whose rows are here."""
        assert self.owner is not None
        chosen = [slots for slots in (*candidates, self.masters.read_again) if slots.size]
        return self.owner.choose(epoch, chosen) if chosen else _NONE

    def new_rows(
        self, active: np.ndarray, forced: np.ndarray, kept: Sequence[KeptSynopses], *, keep_roots: bool = False,
        dealt: bool = False,
    ) -> Changed:  # fmt: skip
        """UPDATE these vertices, whose rows are here; the rows that changed, or are forced.

        `kept` are the synopses of the relations into the kind; `keep_roots`: keep values that depend on self inputs
        alone for other epochs; `dealt`: see `Owner.update`.
        """
        plan, owner = self.plan, self.owner
        assert owner is not None
        if not active.size:
            return Changed(active, np.empty((0, plan.out_width), np.float32))
        if plan.epilogue is not None and not self._is_tail:
            return owner.update(active, forced, self._finisher(kept), dealt=dealt)
        assert isinstance(owner, RowOwner)
        if plan.sums and not self._is_tail:
            return owner.store(active, self._of_sums(active, cast(Sequence[KeptSums], kept)), forced)
        found, contexts = [one.read(active) for one in kept], self.masters.contexts(active)
        states = [states for states, _ in found]
        counts = [contexts.get(one, counts) for one, (_, counts) in zip(self._numbers, found, strict=True)]
        if self._roots is not None and keep_roots:
            assert self.own is not None  # see `read`
            roots = self._roots.read(active, self.own.data)
            return owner.store(active, cast(OnlyKind, plan).update_from_root(states, roots, counts), forced)
        return owner.store(active, plan.update(states, self.own_rows(active), counts), forced)

    def _of_sums(self, active: np.ndarray, kept: Sequence[KeptSums]) -> np.ndarray:
        plan = cast(KindPlan, self.plan)
        wide, alone = plan.room(active.size)
        rest = iter(alone)
        for one, (first, _, mean) in zip(kept, plan.sums, strict=True):
            one.read_means(active, next(rest) if first is None else wide, first or 0, mean=mean)
        return plan.update_sums(wide, alone, self.own_rows(active))

    def clear(self, section: Block) -> np.ndarray:
        """Clear dropped masters and replicas at the end of an epoch; returns which these are."""
        if _DROPPED.isdisjoint(section.columns):
            return _NONE
        dead, dropped = self.at.of(section, "d"), NO_ROWS if self._is_tail else self.at.of(section, "f")
        gone = np.concatenate([dead, dropped]) if dead.size or dropped.size else _NONE
        if gone.size:
            for table in self._of_all:
                table.clear_rows(gone)
            if self._roots is not None:
                self._roots.forget(gone)
            if self.owner is not None:
                self.owner.clear(dead)
                self.masters.clear(dead)
        return gone
