"""The iteration head: changed rows of x_l become the blocks of the next layer, or embeddings for the Sink."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from operators.dataflow import SINK, STORAGE
from operators.outcome import Message
from operators.storage.owner import Owner
from operators.storage.row_kernels import gather, pick
from partitioner.events import STRING, Ids
from state.block_columns import POSITIONS, ROWS, SYNC, TRAVELLING, Columns
from state.codec import Block, Header, seal

FROM_TAIL = 1  # header flag: the sender is a tail, so that it differs from the storage of the same part


def topology_of(block: Block) -> Columns:
    """The columns of a block that travel down the chain of its part."""
    return _some_of(block, TRAVELLING)


def _some_of(block: Block, names: Iterable[str]) -> Columns:
    return {name: block.columns[name] for name in names if name in block.columns}


def hand_on(owner: Owner, epoch: int, changed: np.ndarray, x: np.ndarray, topology: Block) -> list[Message]:
    """The blocks that an epoch sends on: to each part of the next layer's Storage, or of the Sink.

    A tail sends rows alone; the storage of the same part passes on what comes from the Partitioner.
    Shapes: changed (n,) int32, slots whose rows changed; x (n, width) float32, those rows.
    """
    if owner.following is None:
        return _publish(owner, epoch, changed, x, None if owner.is_tail else topology)
    return _fan_out(owner, epoch, changed, x, topology)


def _header(owner: Owner, kind: int, epoch: int, layer: int) -> Header:
    return Header(kind, epoch, layer, owner.part, FROM_TAIL if owner.is_tail else 0)


def _fan_out(owner: Owner, epoch: int, changed: np.ndarray, x: np.ndarray, topology: Block) -> list[Message]:
    """To the own part what changed vertices send, and the topology; to the others what they replicate of it."""
    layer = owner.following
    assert layer is not None
    if layer.source_scaled:
        degrees = owner.mine(topology.get("c_slot"))
        degrees = degrees[~np.isin(degrees, changed)]
        changed, x = np.concatenate([changed, degrees]), np.concatenate([x, gather(owner.x.data, degrees)])
    rows = layer.send(x, owner.send_context(changed))
    header = _header(owner, SYNC, epoch, owner.number + 1)
    passed = {} if owner.is_tail else topology_of(topology)
    messages = []
    for part in range(owner.parts):
        if part == owner.part:
            columns = {**passed, "o_slot": changed, "zo": rows}
        else:
            columns = _replica_rows(owner, part, changed, rows, topology)
        messages.append(Message(STORAGE, part, epoch, owner.part, seal(header, columns)))
    return messages


def _replica_rows(owner: Owner, part: int, changed: np.ndarray, rows: np.ndarray, topology: Block) -> Columns:
    """For a part: what the changed vertices that it replicates send, and all that are new there."""
    layer = owner.following
    assert layer is not None
    width = layer.message_width
    there = owner.replica.data[changed, part]
    kept = there >= 0
    slots, values = there[kept], rows[kept, :width]
    added = topology.get("ra_slot")[topology.get("ra_part") == part]
    added = owner.mine(added)
    added = added[~np.isin(added, changed)]
    if added.size:
        pushed = layer.send(gather(owner.x.data, added), owner.send_context(added))[:, :width]
        slots = np.concatenate([slots, owner.replica.data[added, part]])
        values = np.concatenate([values, pushed])
    return {"z_slot": slots, "z": values}


def _publish(owner: Owner, epoch: int, changed: np.ndarray, x: np.ndarray, topology: Block | None) -> list[Message]:
    """To each sink part the embeddings of its changed vertices; with the topology also what was deleted."""
    keys = np.empty(changed.size, np.int64)
    pick(owner.key.data, changed, keys)
    header, parts = _header(owner, ROWS, epoch, owner.number), owner.parts
    dead = np.empty(0, np.int64) if topology is None else topology.get("d_key")
    homes = (keys % parts, dead % parts) if parts > 1 else (keys, dead)  # the sink part of each
    messages = []
    for part in range(parts):
        columns: Columns = {}
        if topology is not None:
            columns |= _some_of(topology, ("ctl", *POSITIONS) if part == 0 else ("ctl",))
            columns |= _names_of(topology, part, parts)
        if parts == 1:
            columns |= {"key": keys, "row": x, "del_key": dead}
        else:
            mine, its_dead = (home == part for home in homes)
            columns |= {"key": keys[mine], "row": x[mine], "del_key": dead[its_dead]}
        messages.append(Message(SINK, part, epoch, owner.part, seal(header, columns)))
    return messages


def _names_of(topology: Block, part: int, parts: int) -> Columns:
    """The string ids of new vertices that belong to a sink part."""
    if "m_name" not in topology.columns:
        return {}
    keys, offsets, names = topology.get("m_key"), topology.get("m_off"), topology.get("m_name")
    mine = np.flatnonzero(keys % parts == part)
    if not mine.size:
        return {}
    some = Ids(STRING, offsets=offsets, data=names).take(mine)
    return {"m_key": keys[mine], "m_off": some.offsets, "m_name": some.data}
