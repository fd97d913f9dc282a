"""The vertices that an operator owns: what becomes of a changed x_l.

Storage 0 owns the features of all its masters, Storage l (l >= 1) the x_l of its whole masters, Tail l of the split
ones. An owner keeps context and replica sets of every master in the part, compares a new x_l with the old one bit by
bit, stores it, and fans the rows of the next layer out to the parts that replicate the vertex (the iteration head).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gnn.plan import Context, Epilogue, LayerPlan
from operators.dataflow import SINK, STORAGE
from operators.outcome import Message
from operators.storage.row_kernels import choose, finish, gather, pick, store
from state.block_columns import POSITIONS, ROWS, SYNC, TRAVELLING, Columns
from state.codec import Block, Header, seal
from state.table import TableSet

MASTER, SPLIT = 1, 2
_NO_CONTEXT = Context(np.empty(0, np.int32), np.empty(0, np.float64), np.empty(0, np.float32))
FROM_TAIL = 1  # header flag: the sender is a tail, so that it differs from the storage of the same part


def topology_of(block: Block) -> Columns:
    """The columns of a block that travel down the chain."""
    return _some_of(block, TRAVELLING)


def _some_of(block: Block, names: Iterable[str]) -> Columns:
    return {name: block.columns[name] for name in names if name in block.columns}


class Owner:
    """Masters of one part as one operator sees them.

    Shapes: x (slots, width) float32; replica (slots, parts) int32, -1 where there is none.
    Invariant: flags has MASTER for exactly the live masters, SPLIT for those of them with an in-edge elsewhere.
    """

    def __init__(
        self,
        tables: TableSet,
        part: int,
        parts: int,
        width: int,
        layer: LayerPlan | None,
        following: LayerPlan | None,
        number: int,
        owned: int = MASTER,
    ) -> None:
        self.part, self.parts, self.number, self.following, self.owned = part, parts, number, following, owned
        self._sender = FROM_TAIL if owned & SPLIT else 0
        self._reads_context = layer is not None and layer.reads_context
        self._sends_context = following is not None and following.source_scaled
        self.x = tables.add("x", "f4", width)
        self.key = tables.add("key", "i8")
        self.flags = tables.add("flags", "u1")
        self.count = tables.add("count", "i4")
        self.degree = tables.add("degree", "f8")
        self.loop = tables.add("loop", "f4", fill=float("nan"))
        self.replica = tables.add("replica", "i4", parts, fill=-1)
        kept = [self.x, self.key, self.flags]
        if self._reads_context or self._sends_context:
            kept += [self.count, self.degree, self.loop]
        if parts > 1 and following is not None:
            kept.append(self.replica)
        self._kept = tuple(kept)
        self._stamp = np.zeros(0, np.int64)  # by slot: the epoch after the last one that chose it

    def read_context(self, slots: np.ndarray) -> Context:
        """What UPDATE reads of these vertices' contexts; empty where it reads none."""
        return self._context(slots) if self._reads_context else _NO_CONTEXT

    def _send_context(self, slots: np.ndarray) -> Context:
        return self._context(slots) if self._sends_context else _NO_CONTEXT

    def _context(self, slots: np.ndarray) -> Context:
        return Context(self.count.data[slots], self.degree.data[slots], self.loop.data[slots])

    def topology(self, block: Block) -> None:
        """Take over the masters, contexts, replica sets and transitions of an epoch; drops are done by `clear`."""
        born = block.get("m_slot")
        if born.size:
            rows = int(born.max()) + 1
            for table in self._kept:
                table.reserve(rows)
            for table in (self.flags, self.key):
                table.touch_rows(born)
            self.flags.data[born] = MASTER
            self.key.data[born] = block.get("m_key")
        changes = [("d_slot", 0)]
        if self.number:  # the features of split vertices, too, are owned by Storage 0
            changes += [("s_slot", MASTER | SPLIT), ("u_slot", MASTER)]
        for name, bits in changes:
            slots = block.get(name)
            if slots.size:
                self.flags.touch_rows(slots)
                self.flags.data[slots] = bits
        if self._reads_context or self._sends_context:
            slots = block.get("c_slot")
            for table, name in ((self.count, "c_count"), (self.degree, "c_degree"), (self.loop, "c_loop")):
                table.touch_rows(slots)
                table.data[slots] = block.get(name)
        if self.replica in self._kept:
            self._replica_sets(block)

    def _replica_sets(self, block: Block) -> None:
        gone, added = block.get("rd_slot"), block.get("ra_slot")
        self.replica.touch_rows(gone)
        self.replica.data[gone, block.get("rd_part")] = -1
        self.replica.touch_rows(added)
        self.replica.data[added, block.get("ra_part")] = block.get("ra_rslot")

    def clear(self, block: Block) -> None:
        """At the end of the epoch: the rows of dropped masters hold nothing any more."""
        dead = block.get("d_slot")
        for table in self._kept if dead.size else ():
            table.touch_rows(dead)
            table.data[dead] = table.fill

    def mine(self, slots: np.ndarray) -> np.ndarray:
        """Those of the slots whose vertex this operator owns."""
        return slots[self.flags.data[slots] == self.owned]

    def choose(self, epoch: int, candidates: list[np.ndarray]) -> np.ndarray:
        """Those of the slots, each once and in order, whose vertex this operator owns."""
        slots, flags = np.concatenate(candidates), self.flags.data
        if self._stamp.size < flags.size:
            self._stamp = np.zeros(flags.size, np.int64)
        chosen = np.empty(slots.size, np.int32)
        return chosen[: choose(slots, self._stamp, epoch + 1, flags, self.owned, chosen)]

    def store(self, slots: np.ndarray, x: np.ndarray, forced: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Store new rows; returns slots and rows whose bits changed, and those that are forced. Order is kept."""
        changed = np.isin(slots, forced) if forced.size else np.zeros(slots.size, bool)
        store(self.x.view, self.x.data.view(np.int32), slots, x.view(np.int32), changed)
        return (slots, x) if changed.all() else (slots[changed], x[changed])

    def finish(
        self, slots: np.ndarray, s: np.ndarray, own: np.ndarray, epilogue: Epilogue, forced: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """UPDATE from the tables of synopses and self inputs, and `store`, in one pass."""
        again = np.isin(slots, forced) if forced.size else np.zeros(slots.size, bool)
        changed, x = np.empty(slots.size, np.int32), np.empty((slots.size, self.x.data.shape[1]), np.float32)
        bias, mean, relu = epilogue
        count = finish(s, own, self.count.data, bias, mean, relu, slots, again, self.x.view, changed, x)
        return changed[:count], x[:count]

    def fan_out(self, epoch: int, changed: np.ndarray, x: np.ndarray, block: Block, passed: Columns) -> list[Message]:
        """The blocks for the next layer, one per part: rows of changed vertices, and pushes to new replicas.

        `x` are the rows of the `changed` vertices; `passed` travels on to the own part.
        """
        layer = self.following
        assert layer is not None
        if layer.source_scaled:
            degrees = self.mine(block.get("c_slot"))
            degrees = degrees[~np.isin(degrees, changed)]
            changed, x = np.concatenate([changed, degrees]), np.concatenate([x, gather(self.x.data, degrees)])
        rows = layer.send(x, self._send_context(changed))
        header = Header(SYNC, epoch, self.number + 1, self.part, self._sender)
        messages = []
        for part in range(self.parts):
            if part == self.part:
                columns = {**passed, "o_slot": changed, "zo": rows}
            else:
                columns = self._replica_rows(part, changed, rows, block)
            messages.append(Message(STORAGE, part, epoch, self.part, seal(header, columns)))
        return messages

    def _replica_rows(self, part: int, changed: np.ndarray, rows: np.ndarray, block: Block) -> Columns:
        layer = self.following
        assert layer is not None
        width = layer.message_width
        there = self.replica.data[changed, part]
        kept = there >= 0
        slots, values = there[kept], rows[kept, :width]
        added = block.get("ra_slot")[block.get("ra_part") == part]
        added = self.mine(added)
        added = added[~np.isin(added, changed)]
        if added.size:
            pushed = layer.send(gather(self.x.data, added), self._send_context(added))[:, :width]
            slots = np.concatenate([slots, self.replica.data[added, part]])
            values = np.concatenate([values, pushed])
        return {"z_slot": slots, "z": values}

    def publish(self, epoch: int, changed: np.ndarray, rows: np.ndarray, block: Block | None) -> list[Message]:
        """The blocks for the sink parts: embeddings of changed vertices; with the topology also what was deleted."""
        keys = np.empty(changed.size, np.int64)
        pick(self.key.data, changed, keys)
        header = Header(ROWS, epoch, self.number, self.part, self._sender)
        control: Columns = {}
        dead = np.empty(0, np.int64)
        if block is not None:
            control = {"ctl": block.columns["ctl"]}
            dead = block.get("d_key")
        messages = []
        for part in range(self.parts):
            columns = dict(control)
            if block is not None and part == 0:
                columns |= _some_of(block, POSITIONS)
            if block is not None and "m_name" in block.columns:
                columns |= _names_of(block, part, self.parts)
            if self.parts == 1:
                columns |= {"key": keys, "row": rows, "del_key": dead}
            else:
                mine = keys % self.parts == part
                columns |= {"key": keys[mine], "row": rows[mine], "del_key": dead[dead % self.parts == part]}
            messages.append(Message(SINK, part, epoch, self.part, seal(header, columns)))
        return messages


def _names_of(block: Block, part: int, parts: int) -> Columns:
    keys, offsets, names = block.get("m_key"), block.get("m_off"), block.get("m_name")
    mine = np.flatnonzero(keys % parts == part)
    pieces = [names[offsets[k] : offsets[k + 1]] for k in mine]
    lengths = np.array([piece.size for piece in pieces], np.int64)
    if not pieces:
        return {}
    return {
        "m_key": keys[mine],
        "m_off": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        "m_name": np.concatenate(pieces),
    }
