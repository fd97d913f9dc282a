"""Synopses that are sums: messages are added and taken back (sum and mean; gnn/synopses.py, InvertibleSynopsis)."""

from __future__ import annotations

import numpy as np

from gnn.kernel import kernel
from gnn.plan import LayerPlan
from operators.storage import sum_kernels, synopses
from operators.storage.exact_sums import IN_EDGES, read_sums
from operators.storage.row_kernels import put
from operators.telemetry.sum_report import SumReport
from state.adjacency import Lists
from state.codec import Block
from state.table import Table, TableSet

_NO_SLOTS = np.empty(0, np.int32)


class LostUpdateError(RuntimeError):
    """An operator was told to change what it does not have: state and messages do not belong together."""


class SumStore:
    """The sums of one layer in one part, with the edges and source values that they are made of.

    Shapes: z (slots, message_width) float32; s (slots, message_width) float64.
    Invariant: s[v] is the sum of weight * z[u] over the in-edges (u, v) of this part (tests/property holds it).
    """

    def __init__(self, tables: TableSet, layer: LayerPlan, place: str) -> None:
        """`place` says in errors where this is."""
        self._layer, self._place = layer, place
        self.z = tables.add("z", "f4", layer.message_width)
        self.s = tables.add("s", "f8", layer.message_width)
        self.note = tables.add("note", "i4", 4)
        self._out = Lists(tables, "out", layer.weighted)
        self._inn = Lists(tables, "in", layer.weighted)
        self._counter = np.zeros(1, np.int64)
        self._result = np.zeros(3, np.int64)
        self._scratch = synopses.make_scratch(layer.message_width, layer.weighted)
        self._touched = self._again = _NO_SLOTS
        self.recomputed = 0
        self._scrubbed = np.zeros(3, np.float64)  # see synopses.scrub

    def reserve(self, rows: int) -> None:
        """Have room for that many slots."""
        for table in (self.z, self.s, self.note):
            table.reserve(rows)
        self._out.reserve(rows)
        self._inn.reserve(rows)
        capacity = max(table.data.shape[0] for table in (self.z, self.s, self.note))
        if capacity > self._touched.size:
            self._touched, self._again = np.empty(capacity, np.int32), np.empty(capacity, np.int32)

    def _views(self) -> synopses.Synopses:
        return synopses.Synopses(
            self.z.view,
            self.s.view,
            self.note.view,
            self._out.view,
            self._inn.view,
            self._touched,
            self._counter,
            self._scratch,
            self._layer.weighted,
            self._layer.skip_loops,
        )

    def merge(self, epoch: int, topology: Block, blocks: list[Block], own: Table | None) -> np.ndarray:
        """Apply an epoch's edge changes and new source values; own rows go to `own`. Returns whose own row came.

        Raises:
            LostUpdateError: an edge that is to change is not here.
        """
        self._counter[:] = 0
        # stamps are int32: after 2^31 epochs numbers come again, but 0 is kept for rows that no epoch has touched
        serial = 1 + epoch % 0x7FFFFFFF
        sent = [block for block in blocks if "o_slot" in block.columns or "z_slot" in block.columns]
        if len(sent) == 1 and "o_slot" in sent[0].columns:
            return self._merge_at_once(epoch, topology, sent[0], own, serial)
        syn, get = self._views(), topology.get
        status = sum_kernels.delete_edges(syn, get("del_src"), get("del_dst"), get("del_w"), serial)
        status |= sum_kernels.reweight_edges(
            syn, get("rew_src"), get("rew_dst"), get("rew_old"), get("rew_new"), serial
        )
        self._check(status, epoch)
        came = _NO_SLOTS
        for block in sent:
            if "o_slot" in block.columns:
                slots, values = block.columns["o_slot"], block.columns["zo"]
                sum_kernels.update_sources(syn, slots, values, serial)
                if own is not None:
                    put(own.view, slots, values, self._layer.message_width)
                came = np.concatenate([came, slots]) if came.size else slots
            else:
                sum_kernels.update_sources(syn, block.columns["z_slot"], block.columns["z"], serial)
        self._attach(topology, 0, serial)
        self._end_epoch(epoch, serial)
        return came

    def _merge_at_once(self, epoch: int, topology: Block, block: Block, own: Table | None, serial: int) -> np.ndarray:
        """The same by one kernel, where one block has all new source values (always, with one part)."""
        get, slots = topology.get, block.columns["o_slot"]
        sum_kernels.merge_epoch(
            self._views(),
            (get("del_src"), get("del_dst"), get("del_w")),
            (get("rew_src"), get("rew_dst"), get("rew_old"), get("rew_new")),
            slots,
            block.columns["zo"],
            self.z.view if own is None else own.view,
            own is not None,
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
            self._attach(topology, int(self._result[1]), serial)
            self._end_epoch(epoch, serial)
        else:
            self._recompute(int(self._result[2]))
        return slots

    def _check(self, status: int, epoch: int) -> None:
        if status != sum_kernels.OK:
            message = f"{self._place}: epoch {epoch} changes an edge that is not here"
            raise LostUpdateError(message)

    def _attach(self, topology: Block, at: int, serial: int) -> None:
        """The added edges from number `at` on, with more room in the pools whenever it is needed."""
        src, dst, weight = topology.get("add_src"), topology.get("add_dst"), topology.get("add_w")
        at = sum_kernels.add_edges(self._views(), src, dst, weight, at, serial)
        while at < src.size:
            self._out.grow()
            self._inn.grow()
            at = sum_kernels.add_edges(self._views(), src, dst, weight, at, serial)

    def _end_epoch(self, epoch: int, serial: int) -> None:
        """After all messages: what is worn, empty, or due to be scrubbed."""
        count = sum_kernels.end_epoch(self._views(), serial, epoch, self.z.rows, self._again, self._scrubbed)
        self._recompute(count)

    def _recompute(self, count: int) -> None:
        """Sum the rows afresh that are worn or not finite."""
        if count:
            synopses.recompute(self._views(), self._again[:count])
            self.recomputed += count

    def touched(self) -> np.ndarray:
        """The slots whose sums this epoch changed, in order."""
        return self._touched[: self._counter[0]].copy()

    def read(self, slots: np.ndarray) -> np.ndarray:
        """Sums, (n, message_width) float32."""
        out = np.empty((slots.size, self.s.data.shape[1]), np.float32)
        read_sums(self.s.data, slots, out)
        return out

    def in_edges(self, slots: np.ndarray) -> np.ndarray:
        """How many in-edges of these vertices carry messages in this part, (n,) int32."""
        return self.note.data[slots, IN_EDGES]

    def clear(self, slots: np.ndarray) -> None:
        """These slots hold nothing any more."""
        for table in (self.z, self.s, self.note):
            table.touch_rows(slots)
            table.data[slots] = table.fill

    @property
    def report(self) -> SumReport:
        """What the sums of this part have shown."""
        scrubbed, differed, largest = self._scrubbed.tolist()
        return SumReport(
            recomputed=self.recomputed, scrubbed=int(scrubbed), differed=int(differed), largest_difference=largest
        )


@kernel
def merge_partial_sums(index: np.ndarray, partial: np.ndarray, slots: np.ndarray, out: np.ndarray) -> None:
    """The sum of each slot's partials, added in the order of the parts, since float32 sums depend on it."""
    for i in range(len(slots)):
        for j in range(partial.shape[1]):
            out[i, j] = 0
        for part in range(index.shape[1]):
            row = index[slots[i], part]
            if row >= 0:
                for j in range(partial.shape[1]):
                    out[i, j] += partial[row, j]
