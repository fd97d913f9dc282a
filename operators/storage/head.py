"""The iteration head: changed rows of x_l become the blocks of the next layer, or embeddings for the Sink."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from freshet.operators.dataflow import SINK, STORAGE
from freshet.operators.graph.part_rows import frozen
from freshet.operators.graph.routing import Replicas, route_rows
from freshet.operators.graph.row_kernels import deal, gather, pick
from freshet.operators.outcome import Message
from freshet.operators.storage.owner import Changed, Owner
from freshet.partitioner.events import STRING, Ids
from freshet.state.block_columns import POSITIONS, ROWS, SYNC, TRAVELLING, Columns
from freshet.state.codec import Block, Header, seal
from freshet.state.task_parts import grouped, in_groups

FROM_TAIL = 1  # header flag: the sender is a tail, so that it differs from the storage of the same part


def topology_of(block: Block) -> Columns:
    """The columns of a block that travel down the chain of its part."""
    return some_of(block, TRAVELLING)


def some_of(block: Block, names: Iterable[str]) -> Columns:
    """Return those of these columns that a block has."""
    return {name: block.columns[name] for name in names if name in block.columns}


def hand_on(owner: Owner, epoch: int, changed: Changed, topology: Block) -> list[Message]:
    """The blocks that an epoch sends on: to each task of the next layer's Storage, or of the Sink.

    A tail sends rows alone; the storage of the same task passes on what comes from the Partitioner.
    """
    if owner.following is None:
        return _publish(owner, epoch, changed, None if owner.is_tail else topology)
    return _fan_out(owner, epoch, changed.slots, changed.x, topology)


def _header(owner: Owner, kind: int, epoch: int, layer: int) -> Header:
    return Header(kind, epoch, layer, owner.at.task, FROM_TAIL if owner.is_tail else 0)


def _fan_out(owner: Owner, epoch: int, changed: np.ndarray, x: np.ndarray, topology: Block) -> list[Message]:
    """Return the messages: changed rows and topology for the own task, replicated rows for the others."""
    layer, at = owner.following, owner.at
    assert layer is not None
    if layer.source_scaled:
        degrees = owner.mine(at.of(topology, "c"))
        degrees = degrees[~owner.are_in(degrees, changed)]
        changed, x = np.concatenate([changed, degrees]), np.concatenate([x, owner.rows(degrees)])
    new = _new_replicas(owner, changed, topology)
    sent = changed
    if new.row.size:  # their vertices send, too, though they have not changed
        sent, x = np.concatenate([changed, new.row]), np.concatenate([x, owner.rows(new.row)])
    rows = layer.send(x, owner.send_context(sent))
    header = _header(owner, SYNC, epoch, owner.number + 1)
    columns: Columns = {} if owner.is_tail else topology_of(topology)
    columns |= at.place_columns("o", changed)
    if at.tasks.parts == 1:
        return [Message(STORAGE, 0, epoch, seal(header, columns | {"zo": rows}))]
    return [
        Message(STORAGE, task, epoch, seal(header, columns | found if task == at.task else found))
        for task, found in enumerate(_replica_rows(owner, changed, rows, new))
    ]


def _new_replicas(owner: Owner, changed: np.ndarray, topology: Block) -> Replicas:
    """The new replicas of vertices that have not changed, each with the row of its vertex here in place of `row`."""
    at = owner.at
    added = at.of(topology, "ra")
    if not added.size:
        return Replicas(topology.get("ra_part"), added, added, added)
    new = np.flatnonzero((owner.masters.flags.data[added] == owner.owned) & ~owner.are_in(added, changed))
    slots, parts = added[new], topology.get("ra_part")[new]
    return Replicas(parts, owner.masters.replica.numbers(slots, parts), slots, slots[:0])


def _replica_rows(owner: Owner, changed: np.ndarray, rows: np.ndarray, new: Replicas) -> list[Columns]:
    """Return, for each task, the sent rows of the changed vertices that it replicates, and of all new replicas there.

    `rows` are those of changed vertices, then of new replicas. The own task gets them all.
    """
    layer, at = owner.following, owner.at
    assert layer is not None
    width, tasks = layer.message_width, at.tasks
    coming = grouped(tasks.task_of[new.to], tasks.tasks)
    found: list[Columns] = []
    for task, replicas in enumerate(route_rows(owner.masters.replica, changed, at)):
        is_own, more = task == at.task, coming[task]
        columns: Columns = {"z_to": replicas.to, "z_slot": replicas.slot, "z_row": replicas.row}
        sent = replicas.sent
        if new.to.size:
            places = np.arange(changed.size, len(rows), dtype=np.int32)[more]
            at_row = places if is_own else np.arange(sent.size, sent.size + places.size, dtype=np.int32)
            columns["z_to"] = np.append(columns["z_to"], new.to[more])
            columns["z_slot"] = np.append(columns["z_slot"], new.slot[more])
            columns["z_row"] = np.append(columns["z_row"], at_row)
            sent = np.append(sent, places)
        if not is_own:
            columns["z"] = gather(frozen(rows), frozen(sent), width)
        elif changed.size or columns["z_slot"].size:
            columns["zo"] = rows
        if len(tasks.parts_of[task]) == 1:
            del columns["z_to"]
            if not is_own:  # each row is of one replica there
                del columns["z_row"]
        found.append(columns)
    return found


def _publish(owner: Owner, epoch: int, changed: Changed, topology: Block | None) -> list[Message]:
    """Return the messages to the Sink's tasks: embeddings of their parts' vertices; with the topology also deletions.

    A vertex has the sink part of its key.
    """
    header, tasks = _header(owner, ROWS, epoch, owner.number), owner.at.tasks
    slots, x, begins, ends = _dealt(owner, changed)
    assert begins is not None and ends is not None
    keys = np.empty(slots.size, np.int64)
    pick(owner.masters.key.data, slots, keys)
    dead = np.empty(0, np.int64) if topology is None else topology.get("d_key")
    gone_ends = np.zeros(tasks.parts + 1, np.int64)
    if dead.size:
        gone, gone_ends = in_groups(dead % tasks.parts, tasks.parts)
        dead = dead[gone]
    messages = []
    for task, parts in enumerate(tasks.parts_of):
        columns: Columns = {}
        if topology is not None:
            columns |= some_of(topology, ("ctl", *POSITIONS) if 0 in parts else ("ctl",))
            columns |= names_of(topology, parts, tasks.parts)
        columns |= _span("key", parts, begins, ends, {"key": keys, "row": x})
        columns |= _span("del_key", parts, gone_ends[:-1], gone_ends[1:], {"del_key": dead})
        messages.append(Message(SINK, task, epoch, seal(header, columns)))
    return messages


def _span(name: str, parts: range, begins: np.ndarray, ends: np.ndarray, of: Columns) -> Columns:
    """Return the part of the columns for some parts, and the bounds of each part in it."""
    mine = slice(parts.start, parts.stop)
    begins, ends = begins[mine], ends[mine]
    first, last = int(begins[0]), int(ends[-1])
    columns = {column: values[first:last] for column, values in of.items()}
    if len(parts) > 1 and last > first:
        columns |= {f"{name}_begin": begins - first, f"{name}_end": ends - first}
    return columns


def _dealt(owner: Owner, changed: Changed) -> Changed:
    """Return the same rows grouped by parts of the Sink, without most of the gaps between them."""
    parts, slots, x = owner.at.tasks.parts, changed.slots, changed.x
    if changed.begins is not None and changed.ends is not None:
        counts = changed.ends - changed.begins
        if 8 * counts.sum() >= 7 * slots.size:
            return changed
        ends = np.cumsum(counts)
        rows = np.arange(ends[-1]) + np.repeat(changed.begins - ends + counts, counts)
    elif parts == 1:
        return changed._replace(begins=np.zeros(1, np.int64), ends=np.array([slots.size]))
    else:
        group, begins = np.empty(slots.size, np.int16), np.zeros(parts, np.int64)
        deal(slots, owner.masters.key.data, group, begins)
        rows, ends = np.argsort(group, kind="stable"), np.append(begins[1:], slots.size)
    order = frozen(rows.astype(np.int32))
    return Changed(slots[order], gather(frozen(x), order), np.append(0, ends[:-1]), ends)


def names_of(topology: Block, parts: range, of: int) -> Columns:
    """Return the string ids of new vertices that belong to these sink parts, of `sinks` in all."""
    if "m_name" not in topology.columns:
        return {}
    keys, offsets, names = topology.get("m_key"), topology.get("m_off"), topology.get("m_name")
    mine = np.flatnonzero((keys % of >= parts.start) & (keys % of < parts.stop))
    if not mine.size:
        return {}
    some = Ids(STRING, offsets=offsets, data=names).take(mine)
    return {"m_key": keys[mine], "m_off": some.offsets, "m_name": some.data}
