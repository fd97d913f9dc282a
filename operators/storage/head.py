"""The iteration head: changed rows of x_l become the blocks of the next layer, or embeddings for the Sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from freshet.operators.dataflow import SINK, STORAGE
from freshet.operators.graph.part_rows import PartRows, frozen
from freshet.operators.graph.routing import Replicas, route_rows
from freshet.operators.graph.row_kernels import deal, gather, pick
from freshet.operators.outcome import Message
from freshet.operators.storage.epoch_topology import EPOCH, EpochTopology, prefixed
from freshet.operators.storage.owner import Changed, Owner
from freshet.operators.storage.travelling import some_of
from freshet.partitioner.ids import STRING, Ids
from freshet.state.block_columns import POSITIONS, ROWS, SYNC, Columns
from freshet.state.codec import Block, Header, seal
from freshet.state.task_parts import grouped, in_groups

FROM_TAIL = 1  # header flag: the sender is a tail, so that it differs from the storage of the same part
_CONTROL = "ctl", *POSITIONS
_NO_KEYS = np.empty(0, np.int64)


class Handed(NamedTuple):
    """Changed rows of one kind."""

    prefix: str
    owner: Owner
    changed: Changed


def hand_on(
    handed: Sequence[Handed], owners: Sequence[Owner], epoch: int, topology: EpochTopology, *, last: bool
) -> list[Message]:
    """The blocks that an epoch sends on: to each task of the next layer's Storage, or of the Sink after the last one.

    `owners` are all of the operator's. A tail sends rows alone; the storage of the same task passes on what comes from
    the Partitioner.
    """
    some, find, is_tail = owners[0], _published if last else _sent, owners[0].is_tail
    kind, number, to = (ROWS, some.number, SINK) if last else (SYNC, some.number + 1, STORAGE)
    header = Header(kind, epoch, number, some.at.task, FROM_TAIL if is_tail else 0)
    every = [(one.prefix, find(one, topology.of(one.prefix))) for one in handed]
    messages = []
    for task, there in enumerate(some.to.parts_of):
        here, passed, columns = some.at.here, dict[str, np.ndarray](), dict[str, np.ndarray]()
        if last and not is_tail:
            passed = some_of(topology.of(EPOCH), _CONTROL if 0 in there else _CONTROL[:1])
        elif not is_tail and here == there:
            passed = topology.share(here, there)
        elif not is_tail and overlap(here, there):
            columns = topology.share(here, there)
        for prefix, found in every:
            columns |= found[task] if last and len(owners) == 1 else prefixed(prefix, found[task])
        messages.append(Message(to, task, epoch, seal(header, columns, passed)))
    return messages


def _published(one: Handed, section: Block) -> list[Columns]:
    if not one.changed.slots.size and (one.owner.is_tail or not section.columns):
        return [{} for _ in range(one.owner.to.tasks)]
    return published_columns(one.owner, one.changed, None if one.owner.is_tail else section)


def _sent(one: Handed, section: Block) -> list[Columns]:
    """Return what a kind sends; nothing where none of its rows or contexts changed, nor got a replica."""
    owner, some = one.owner, one.changed.slots.size > 0 or "ra_slot" in section.columns
    if owner.following is None or not (some or owner.masters.rescaled.size):
        return [{} for _ in range(owner.to.tasks)]
    return sent_columns(one.owner, one.changed, section)


def sent_columns(owner: Owner, rows: Changed, topology: Block) -> list[Columns]:
    """Return what changed rows send to each task of the next layer: those with parts of this one get self inputs, too.

    New replicas get the rows of their vertices, and where contexts change what a vertex sends, these do, too.
    """
    layer, at, changed, x = owner.following, owner.at, rows.slots, rows.x
    assert layer is not None
    if layer.source_scaled:
        degrees = owner.mine(owner.masters.rescaled)
        degrees = degrees[~owner.are_in(degrees, changed)]
        changed, x = np.concatenate([changed, degrees]), np.concatenate([x, owner.rows(degrees)])
    if at.tasks.parts == 1:
        return [at.place_columns("o", changed) | {"zo": owner.send(changed, x)}]
    new, sent = _new_replicas(owner, changed, topology), changed
    if new.row.size:  # their vertices send, too, though they have not changed
        sent, x = np.concatenate([changed, new.row]), np.concatenate([x, owner.rows(new.row)])
    return _replica_rows(owner, changed, owner.send(sent, x), new)


def overlap(some: range, others: range) -> bool:
    """Return whether two tasks have parts in common."""
    return some.start < others.stop and others.start < some.stop


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

    `rows` are those of changed vertices, then of new replicas. A task with all parts of this one gets them all, one
    with some of these parts also the changed masters there.
    """
    layer, at, to = owner.following, owner.at, owner.to
    assert layer is not None
    coming = grouped(to.task_of[new.to], to.tasks)
    whole = next((task for task, parts in enumerate(to.parts_of) if _holds(parts, at.here)), -1)
    found: list[Columns] = []
    for task, replicas in enumerate(route_rows(owner.masters.replica, changed, to, whole)):
        there, more = to.parts_of[task], coming[task]
        columns: Columns = {"z_to": replicas.to, "z_slot": replicas.slot, "z_row": replicas.row}
        sent = replicas.sent
        if new.to.size:
            places = np.arange(changed.size, len(rows), dtype=np.int32)[more]
            at_row = places if task == whole else np.arange(sent.size, sent.size + places.size, dtype=np.int32)
            columns["z_to"] = np.append(columns["z_to"], new.to[more])
            columns["z_slot"] = np.append(columns["z_slot"], new.slot[more])
            columns["z_row"] = np.append(columns["z_row"], at_row)
            sent = np.append(sent, places)
        if len(there) == 1:
            del columns["z_to"]
        if task == whole:
            columns |= _places(at, changed, there)
            if changed.size or columns["z_slot"].size:
                columns["zo"] = rows
        elif overlap(at.here, there):
            columns |= _with_masters(at, changed, rows, sent, columns["z_row"], there)
        else:
            columns["z"] = gather(frozen(rows), frozen(sent), layer.message_width)
            if len(there) == 1:  # each row is of one replica there
                del columns["z_row"]
        found.append(columns)
    return found


def _holds(parts: range, others: range) -> bool:
    return parts.start <= others.start and others.stop <= parts.stop


def _places(at: PartRows, changed: np.ndarray, there: range) -> Columns:
    """Return the columns by which a task with the parts `there` addresses changed masters of these parts."""
    slots, parts = at.places(changed)
    return {"o_slot": slots} if len(there) == 1 else {"o_slot": slots, "o_to": parts}


def _with_masters(
    at: PartRows, changed: np.ndarray, rows: np.ndarray, sent: np.ndarray, row: np.ndarray, there: range
) -> Columns:
    """Return the columns of changed masters in some of the parts here, and their rows before those of the replicas.

    Shapes: sent (m,), which of the rows go there for replicas; row (n,), which of `sent` is that of each replica.
    """
    _, parts = at.places(changed)
    masters = np.flatnonzero((parts >= there.start) & (parts < there.stop)).astype(np.int32)
    place = np.full(len(rows), -1, np.int32)
    place[masters] = np.arange(masters.size, dtype=np.int32)
    others = sent[place[sent] < 0]
    place[others] = np.arange(masters.size, masters.size + others.size, dtype=np.int32)
    all_sent = np.concatenate([masters, others])
    columns = _places(at, changed[masters], there) | {"z_row": place[sent[row]]}
    if all_sent.size:
        columns["zo"] = gather(frozen(rows), frozen(all_sent))
    return columns


def published_columns(owner: Owner, changed: Changed, topology: Block | None) -> list[Columns]:
    """Return the embeddings for each task of the Sink; with the topology also deletions, and ids of new vertices."""
    tasks, dead = owner.to, _NO_KEYS if topology is None else topology.get("d_key")
    slots, x, begins, ends = changed if tasks.parts == 1 else _dealt(owner, changed)
    keys = np.empty(slots.size, np.int64)
    pick(owner.masters.key.data, slots, keys)
    if tasks.parts == 1:
        names = {} if topology is None else names_of(topology, tasks.parts_of[0], 1)
        return [names | {"key": keys, "row": x, "del_key": dead}]
    assert begins is not None and ends is not None
    gone_ends = np.zeros(tasks.parts + 1, np.int64)
    if dead.size:
        gone, gone_ends = in_groups(dead % tasks.parts, tasks.parts)
        dead = dead[gone]
    found: list[Columns] = []
    for parts in tasks.parts_of:
        columns = {} if topology is None else names_of(topology, parts, tasks.parts)
        columns |= _span("key", parts, begins, ends, {"key": keys, "row": x})
        columns |= _span("del_key", parts, gone_ends[:-1], gone_ends[1:], {"del_key": dead})
        found.append(columns)
    return found


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
