"""The Storage cores: layer 0 (raw features) and layer l (edges, replicated source values, synopses) of one part."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnn.plan import LayerPlan
from operators.dataflow import TAIL
from operators.outcome import Message
from operators.storage import row_kernels, sum_kernels, synopses
from operators.storage.exact_sums import LOCAL, read_sums
from operators.storage.owner import SPLIT, Owner, topology_of
from operators.telemetry.sum_report import SumReport
from state.adjacency import Lists
from state.block_columns import PARTIAL, Columns
from state.codec import Block, Header, seal
from state.table import TableSet

EMPTY_SLOTS = np.empty(0, np.int32)


class LostUpdateError(RuntimeError):
    """An operator was told to change what it does not have: state and messages do not belong together."""


class FeatureStorage:
    """Storage 0: the raw features of the part's masters; sends what layer 1 reads of the changed ones."""

    def __init__(self, part: int, parts: int, following: LayerPlan) -> None:
        self.tables = TableSet()
        self.owner = Owner(self.tables, part, parts, following.in_width, None, following, 0)
        self.touched = 0

    def after_restore(self) -> None:
        """Nothing here but tables."""

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Set features, and fan out those of new and changed vertices."""
        (block,) = blocks
        owner = self.owner
        owner.topology(block)
        slots, x = block.get("x0_slot"), block.get("x0")
        born = block.get("m_slot")
        changed, values = slots, x.reshape(-1, owner.x.data.shape[1])
        if slots.size:
            changed, values = owner.store(slots, x, born)
        if born.size and (featureless := born[~np.isin(born, slots)]).size:
            zeros = np.zeros((featureless.size, values.shape[1]), np.float32)
            changed, values = np.concatenate([changed, featureless]), np.concatenate([values, zeros])
        self.touched = int(changed.size)
        messages = owner.fan_out(epoch, changed, values, block, topology_of(block))
        owner.clear(block)
        return messages


class LayerShape(NamedTuple):
    """Where a Storage or Tail stands: its part, how many there are, its layer's number and plan, and the next one's."""

    part: int
    parts: int
    number: int
    layer: LayerPlan
    following: LayerPlan | None


class LayerStorage:
    """Storage l: merges the messages of the part's edges and updates its whole vertices.

    Shapes: z (slots, message_width); own (slots, self_width); x (slots, out_width), all float32; s (slots,
    message_width) float64.
    Invariant: s[v] is the sum of weight * z[u] over the in-edges (u, v) of this part (tests/property holds it).
    """

    def __init__(self, shape: LayerShape) -> None:
        self.shape = shape
        layer = shape.layer
        self.tables = tables = TableSet()
        self.owner = Owner(tables, shape.part, shape.parts, layer.out_width, layer, shape.following, shape.number)
        self.z = tables.add("z", "f4", layer.message_width)
        self.s = tables.add("s", "f8", layer.message_width)
        self.note = tables.add("note", "i4", 4)
        self.own = tables.add("own", "f4", layer.self_width) if layer.self_width else None
        self.home = tables.add("home", "i4", 2, fill=-1)  # of replicas: part and slot of the master
        self.out = Lists(tables, "out", layer.weighted)
        self.inn = Lists(tables, "in", layer.weighted)
        self._rows = (self.z, self.s, self.note, self.home) + ((self.own,) if self.own is not None else ())
        self._counter = np.zeros(4, np.int64)
        self._result = np.zeros(3, np.int64)
        self._scratch = synopses.make_scratch(layer.message_width, layer.weighted)
        self._touched = self._again = EMPTY_SLOTS
        self.touched = 0
        self.recomputed = 0
        self._scrubbed = np.zeros(3, np.float64)  # see synopses.scrub

    def after_restore(self) -> None:
        """Make the scratch arrays that belong to the tables."""
        self._reserve(self.z.rows)

    def _reserve(self, rows: int) -> None:
        for table in self._rows:
            table.reserve(rows)
        # asked of replicas, too, and a part may have more of those than masters, or no master at all
        self.owner.flags.reserve(rows)
        self.out.reserve(rows)
        self.inn.reserve(rows)
        capacity = max(table.data.shape[0] for table in self._rows)
        if capacity > self._touched.size:
            self._touched, self._again = np.empty(capacity, np.int32), np.empty(capacity, np.int32)

    def _synopses(self) -> synopses.Synopses:
        return synopses.Synopses(
            self.z.view,
            self.s.view,
            self.note.view,
            self.out.view,
            self.inn.view,
            self._touched,
            self._counter,
            self._scratch,
            self.shape.layer.weighted,
            self.shape.layer.skip_loops,
        )

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Merge the messages of an epoch, update the active whole vertices, and hand on what changed."""
        (topology,) = (block for block in blocks if "ctl" in block.columns)
        self.owner.topology(topology)
        born, replicas = topology.get("m_slot"), topology.get("r_slot")
        self._reserve(max(born.max(initial=-1), replicas.max(initial=-1)) + 1)
        if replicas.size:
            self.home.touch_rows(replicas)
            self.home.data[replicas, 0] = topology.get("r_part")
            self.home.data[replicas, 1] = topology.get("r_home")
        own = self._merge(epoch, topology, blocks)
        touched = self._touched[: self._counter[0]].copy()
        messages = self._update(epoch, topology, touched, own)
        if self.shape.parts > 1:
            messages += self._partials(epoch, topology, touched, own)
        self._clear(topology)
        return messages

    def _merge(self, epoch: int, topology: Block, blocks: list[Block]) -> np.ndarray:
        """All messages of the epoch into the synopses; returns the masters whose own row came."""
        self._counter[:] = 0
        # stamps are int32: after 2^31 epochs numbers come again, but 0 is kept for rows that no epoch has touched
        syn, serial = self._synopses(), 1 + epoch % 0x7FFFFFFF
        sent = [block for block in blocks if "o_slot" in block.columns or "z_slot" in block.columns]
        if len(sent) == 1 and "o_slot" in sent[0].columns:
            return self._merge_at_once(epoch, syn, topology, sent[0], serial)
        get = topology.get
        status = sum_kernels.retract(syn, get("del_src"), get("del_dst"), get("del_w"), serial)
        status |= sum_kernels.reweight(syn, get("rew_src"), get("rew_dst"), get("rew_old"), get("rew_new"), serial)
        self._check(status, epoch)
        own = EMPTY_SLOTS
        for block in sent:
            if "o_slot" in block.columns:
                slots, values = block.columns["o_slot"], block.columns["zo"]
                sum_kernels.spread(syn, slots, values, serial)
                if self.own is not None:
                    row_kernels.put(self.own.view, slots, values, self.shape.layer.message_width)
                own = np.concatenate([own, slots]) if own.size else slots
            else:
                sum_kernels.spread(syn, block.columns["z_slot"], block.columns["z"], serial)
        self._attach(syn, topology, 0, serial)
        self._end_epoch(epoch, serial)
        return own

    def _end_epoch(self, epoch: int, serial: int) -> None:
        """After all messages: what is worn, empty, or due to be scrubbed."""
        syn = self._synopses()
        self._recompute(sum_kernels.end_epoch(syn, serial, epoch, self.z.rows, self._again, self._scrubbed))

    def _merge_at_once(
        self, epoch: int, syn: synopses.Synopses, topology: Block, block: Block, serial: int
    ) -> np.ndarray:
        """The same by one kernel, where one block has all new source values (always, with one part)."""
        get, slots = topology.get, block.columns["o_slot"]
        sum_kernels.merge_epoch(
            syn,
            (get("del_src"), get("del_dst"), get("del_w")),
            (get("rew_src"), get("rew_dst"), get("rew_old"), get("rew_new")),
            slots,
            block.columns["zo"],
            self.z.view if self.own is None else self.own.view,
            self.own is not None,
            (get("add_src"), get("add_dst"), get("add_w")),
            serial,
            epoch,
            self.z.rows,
            self._again,
            self._scrubbed,
            self._result,
        )
        self._check(int(self._result[0]), epoch)
        if self._result[1] < get("add_src").size:
            self._attach(syn, topology, int(self._result[1]), serial)
            self._end_epoch(epoch, serial)
        else:
            self._recompute(int(self._result[2]))
        return slots

    def _check(self, status: int, epoch: int) -> None:
        if status != sum_kernels.OK:
            place = f"storage {self.shape.number} part {self.shape.part}"
            message = f"{place}: epoch {epoch} changes an edge that is not here"
            raise LostUpdateError(message)

    def _attach(self, syn: synopses.Synopses, topology: Block, at: int, serial: int) -> None:
        """The added edges from number `at` on, with more room in the pools whenever it is needed."""
        src, dst, weight = topology.get("add_src"), topology.get("add_dst"), topology.get("add_w")
        at = sum_kernels.attach(syn, src, dst, weight, at, serial)
        while at < src.size:
            self.out.grow()
            self.inn.grow()
            at = sum_kernels.attach(self._synopses(), src, dst, weight, at, serial)

    @property
    def sums(self) -> SumReport:
        """What the sums of this part have shown."""
        scrubbed, differed, largest = self._scrubbed.tolist()
        return SumReport(
            recomputed=self.recomputed, scrubbed=int(scrubbed), differed=int(differed), largest_difference=largest
        )

    def _recompute(self, count: int) -> None:
        """Sum the rows afresh that are worn or not finite."""
        if count:
            synopses.recompute(self._synopses(), self._again[:count])
            self.recomputed += count

    def _update(self, epoch: int, topology: Block, touched: np.ndarray, own: np.ndarray) -> list[Message]:
        """UPDATE of the active whole vertices, and what it changes for the next layer or the sink."""
        layer, owner = self.shape.layer, self.owner
        born, whole_again = topology.get("m_slot"), topology.get("u_slot")
        candidates = [touched, born, whole_again]
        if layer.reads_self:
            candidates.append(own)
        if layer.reads_context:
            candidates.append(topology.get("c_slot"))
        active = owner.choose(epoch, candidates)
        self.touched = int(active.size)
        forced = np.concatenate([born, whole_again])
        if layer.epilogue is not None and self.own is not None:
            changed, x = owner.finish(active, self.s.data, self.own.data, layer.epilogue, forced)
        else:
            x = layer.update(*self._inputs(active), owner.read_context(active))
            changed, x = owner.store(active, x, forced)
        if self.shape.following is None:
            return owner.publish(epoch, changed, x, topology)
        return owner.fan_out(epoch, changed, x, topology, topology_of(topology))

    def _inputs(self, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Synopses and self inputs of these vertices."""
        return self._read(active), self._own_rows(active)

    def _read(self, slots: np.ndarray) -> np.ndarray:
        """Synopses as float32."""
        out = np.empty((slots.size, self.s.data.shape[1]), np.float32)
        read_sums(self.s.data, slots, out)
        return out

    def _own_rows(self, slots: np.ndarray) -> np.ndarray:
        if self.shape.layer.self_is_message:
            return row_kernels.gather(self.z.data, slots)
        if self.own is not None:
            return row_kernels.gather(self.own.data, slots)
        return np.empty((slots.size, 0), np.float32)

    def _partials(self, epoch: int, topology: Block, touched: np.ndarray, own: np.ndarray) -> list[Message]:
        """The partial synopses of touched split vertices, to the tails of their masters."""
        owner, shape = self.owner, self.shape
        splits = topology.get("s_slot")
        slots = np.concatenate([touched, splits[~np.isin(splits, touched)]])
        here = owner.flags.data[slots] != 0
        part = np.where(here, shape.part, self.home.data[slots, 0])
        address = np.where(here, slots, self.home.data[slots, 1]).astype(np.int32)
        split_here = ~here | (owner.flags.data[slots] == owner.owned | SPLIT)
        mine = np.unique(np.concatenate([own, splits]))
        mine = mine[owner.flags.data[mine] == owner.owned | SPLIT]
        header = Header(PARTIAL, epoch, shape.number, shape.part)
        messages = []
        for to in range(shape.parts):
            chosen = (part == to) & split_here
            columns: Columns = {
                "p_slot": address[chosen],
                "p": self._read(slots[chosen]),
                "p_count": self.note.data[slots[chosen], LOCAL],
            }
            if to == shape.part:
                columns |= {**topology_of(topology), "t_slot": mine, "t": self._own_rows(mine)}
            messages.append(Message(TAIL, to, epoch, shape.part, seal(header, columns)))
        return messages

    def _clear(self, topology: Block) -> None:
        """At the end of the epoch: rows of dropped masters and replicas hold nothing any more."""
        gone = np.concatenate([topology.get("d_slot"), topology.get("f_slot")])
        for table in self._rows if gone.size else ():
            table.touch_rows(gone)
            table.data[gone] = table.fill
        self.owner.clear(topology)
