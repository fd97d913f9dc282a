"""Blocks that an epoch hands on where vertices have kinds: one for each receiver, with the columns of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from freshet.operators.dataflow import SINK, STORAGE
from freshet.operators.outcome import Message
from freshet.operators.storage.head import FROM_TAIL, overlap, published_columns, sent_columns
from freshet.operators.storage.owner import Changed, Owner
from freshet.operators.storage.travelling import share_of, some_of, together
from freshet.state.block_columns import POSITIONS, ROWS, SYNC, TRAVELLING, Columns
from freshet.state.codec import Block, Header, seal

_TRAVELLING = frozenset(TRAVELLING)
EPOCH = ""  # the prefix of what is of no kind or relation: control values and positions


class KindsTopology:
    """The topology of an epoch, by kind and relation."""

    def __init__(self, brought: Iterable[Mapping[str, Block]]) -> None:
        """Take those of the epoch's blocks that have it; the blocks are given by prefix (see `codec.views`)."""
        found = [views for views in brought if EPOCH in views and "ctl" in views[EPOCH].columns]
        prefixes = dict.fromkeys(prefix for views in found for prefix in views)
        self.sections = {prefix: together([one[prefix] for one in found if prefix in one]) for prefix in prefixes}
        self.none = Block(self.sections[EPOCH].header)

    def of(self, prefix: str) -> Block:
        """Return the records of a kind or relation."""
        return self.sections.get(prefix, self.none)

    def share(self, here: range, there: range) -> Columns:
        """Return the travelling columns for a task with the parts `there`; `here` are those of the own task."""
        if here == there:
            every = ((prefix, section.columns.items()) for prefix, section in self.sections.items())
            return {prefix + name: column for prefix, of in every for name, column in of if name in _TRAVELLING}
        found: Columns = {}
        for prefix, section in self.sections.items():
            found |= prefixed(prefix, share_of(section, here, there))
        return found


def prefixed(prefix: str, columns: Columns) -> Columns:
    """Return the columns with this at the beginning of their names."""
    return {prefix + name: column for name, column in columns.items()} if prefix else columns


class Handed(NamedTuple):
    """Changed rows of one kind."""

    prefix: str
    owner: Owner
    changed: Changed


def hand_on_kinds(
    handed: Sequence[Handed], owners: Sequence[Owner], epoch: int, topology: KindsTopology, *, last: bool
) -> list[Message]:
    """The blocks that an epoch sends on: to each task of the next layer's Storage, or of the Sink after the last one.

    `owners` are all of the operator's. A tail sends rows alone, as without kinds.
    """
    some = owners[0]
    find = _published if last else _sent
    found: list[Columns] = [{} for _ in range(some.to.tasks)]
    for one in handed:
        for columns, more in zip(found, find(one, topology.of(one.prefix)), strict=True):
            prefix = EPOCH if last and len(owners) == 1 else one.prefix
            columns.update(prefixed(prefix, more))
    flags = FROM_TAIL if some.is_tail else 0
    header = Header(ROWS, epoch, some.number, some.at.task, flags)
    if not last:
        header = Header(SYNC, epoch, some.number + 1, some.at.task, flags)
    messages = []
    for task, (there, columns) in enumerate(zip(some.to.parts_of, found, strict=True)):
        if not some.is_tail:
            columns = _of_epoch(topology, some.at.here, there, last=last) | columns
        messages.append(Message(SINK if last else STORAGE, task, epoch, seal(header, columns)))
    return messages


def _of_epoch(topology: KindsTopology, here: range, there: range, *, last: bool) -> Columns:
    if last:
        return some_of(topology.of(EPOCH), ("ctl", *POSITIONS) if 0 in there else ("ctl",))
    return topology.share(here, there) if overlap(here, there) else {}


def _published(one: Handed, section: Block) -> list[Columns]:
    if not one.changed.slots.size and (one.owner.is_tail or not section.columns):
        return [{} for _ in range(one.owner.to.tasks)]
    return published_columns(one.owner, one.changed, None if one.owner.is_tail else section)


def _sent(one: Handed, section: Block) -> list[Columns]:
    """Return what a kind sends; nothing where none of its rows or degrees changed, nor got a replica."""
    owner, some = one.owner, one.changed.slots.size > 0 or "ra_slot" in section.columns
    if owner.following is None or not (some or owner.masters.rescaled(section).size):
        return [{} for _ in range(owner.to.tasks)]
    return sent_columns(one.owner, one.changed, section)
