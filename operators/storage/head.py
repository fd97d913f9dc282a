"""The iteration head: changed rows of x_l become the blocks of the next layer, or embeddings for the Sink."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from operators.dataflow import SINK, STORAGE
from operators.outcome import Message
from operators.storage.owner import Owner
from operators.storage.routing import route_rows
from operators.storage.row_kernels import gather, pick
from partitioner.events import STRING, Ids
from state.block_columns import POSITIONS, ROWS, SYNC, TRAVELLING, Columns
from state.codec import Block, Header, seal
from state.task_parts import grouped

FROM_TAIL = 1  # header flag: the sender is a tail, so that it differs from the storage of the same part


def topology_of(block: Block) -> Columns:
    """The columns of a block that travel down the chain of its part."""
    return _some_of(block, TRAVELLING)


def _some_of(block: Block, names: Iterable[str]) -> Columns:
    return {name: block.columns[name] for name in names if name in block.columns}


def hand_on(owner: Owner, epoch: int, changed: np.ndarray, x: np.ndarray, topology: Block) -> list[Message]:
    """The blocks that an epoch sends on: to each task of the next layer's Storage, or to each part of the Sink.

    A tail sends rows alone; the storage of the same task passes on what comes from the Partitioner.
    Shapes: changed (n,) int32, slots whose rows changed; x (n, width) float32, those rows.
    """
    if owner.following is None:
        return _publish(owner, epoch, changed, x, None if owner.is_tail else topology)
    return _fan_out(owner, epoch, changed, x, topology)


def _header(owner: Owner, kind: int, epoch: int, layer: int) -> Header:
    return Header(kind, epoch, layer, owner.at.task, FROM_TAIL if owner.is_tail else 0)


def _fan_out(owner: Owner, epoch: int, changed: np.ndarray, x: np.ndarray, topology: Block) -> list[Message]:
    """To the own task what changed vertices send, and the topology; to the others what they replicate of it."""
    layer, at = owner.following, owner.at
    assert layer is not None
    if layer.source_scaled:
        degrees = owner.mine(at.of(topology, "c"))
        degrees = degrees[~owner.are_in(degrees, changed)]
        changed, x = np.concatenate([changed, degrees]), np.concatenate([x, gather(owner.x.data, degrees)])
    rows = layer.send(x, owner.send_context(changed))
    header = _header(owner, SYNC, epoch, owner.number + 1)
    columns: Columns = {} if owner.is_tail else topology_of(topology)
    if changed.size:
        columns |= {**at.place_columns("o", changed), "zo": rows}
    if at.tasks.parts == 1:
        return [Message(STORAGE, 0, epoch, 0, seal(header, columns))]
    return [
        Message(STORAGE, task, epoch, at.task, seal(header, columns | found if task == at.task else found))
        for task, found in enumerate(_replica_rows(owner, changed, rows, topology))
    ]


def _replica_rows(owner: Owner, changed: np.ndarray, rows: np.ndarray, topology: Block) -> list[Columns]:
    """For each task what the changed vertices that it replicates send, and all that are new there.

    To the own task, which has the rows of all changed vertices, go those of other vertices beside them.
    """
    layer, at = owner.following, owner.at
    assert layer is not None
    width, replica = layer.message_width, owner.replica.data
    found: list[Columns] = []
    for task, replicas in enumerate(route_rows(replica, changed, at)):
        columns: Columns = {"z_to": replicas.to, "z_slot": replicas.slot, "z_row": replicas.row}
        found.append(columns if task == at.task else columns | {"z": rows[replicas.sent, :width]})
    _add_new_replicas(owner, changed, rows, topology, found)
    for task, columns in enumerate(found):
        if len(at.tasks.parts_of[task]) == 1:
            del columns["z_to"]
            if task != at.task:  # each row is of one replica there
                del columns["z_row"]
    return found


def _add_new_replicas(
    owner: Owner, changed: np.ndarray, rows: np.ndarray, topology: Block, found: list[Columns]
) -> None:
    """Tell each new replica the row of its vertex, though that has not changed."""
    layer, at = owner.following, owner.at
    assert layer is not None
    added = at.of(topology, "ra")
    if not added.size:
        return
    new = np.flatnonzero((owner.flags.data[added] == owner.owned) & ~owner.are_in(added, changed))
    if not new.size:
        return
    slots, parts, width = added[new], topology.get("ra_part")[new], layer.message_width
    sent = layer.send(gather(owner.x.data, slots), owner.send_context(slots))
    there = owner.replica.data[slots, parts]
    for task, mine in enumerate(grouped(at.tasks.task_of[parts], at.tasks.tasks)):
        columns, more = found[task], sent[mine]
        if not len(more):
            continue
        is_own = task == at.task
        before = rows if is_own else columns["z"]
        columns["z_row"] = np.append(columns["z_row"], np.arange(len(before), len(before) + len(more), dtype=np.int32))
        columns["z_to"] = np.append(columns["z_to"], parts[mine])
        columns["z_slot"] = np.append(columns["z_slot"], there[mine])
        columns["zo" if is_own else "z"] = np.concatenate([before, more if is_own else more[:, :width]])


def _publish(owner: Owner, epoch: int, changed: np.ndarray, x: np.ndarray, topology: Block | None) -> list[Message]:
    """To each sink part the embeddings of its changed vertices; with the topology also what was deleted."""
    keys = np.empty(changed.size, np.int64)
    pick(owner.key.data, changed, keys)
    header, parts = _header(owner, ROWS, epoch, owner.number), owner.at.tasks.parts
    dead = np.empty(0, np.int64) if topology is None else topology.get("d_key")
    homes = [(of % parts).astype(np.int16) if parts > 1 else of for of in (keys, dead)]  # the sink part of each
    mine, its_dead = (grouped(home, parts) for home in homes)
    messages = []
    for part in range(parts):
        columns: Columns = {}
        if topology is not None:
            columns |= _some_of(topology, ("ctl", *POSITIONS) if part == 0 else ("ctl",))
            columns |= _names_of(topology, part, parts)
        columns |= {"key": keys[mine[part]], "row": x[mine[part]], "del_key": dead[its_dead[part]]}
        messages.append(Message(SINK, part, epoch, owner.at.task, seal(header, columns)))
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
