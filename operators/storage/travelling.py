"""The topology of an epoch on its way down the layers: the columns that a Storage passes on to the next one.

Where the tasks of the next layer have other parts, each of them gets the records of its own parts, from one or several
Storages. The records of a part keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from freshet.partitioner.ids import STRING, Ids
from freshet.state.block_columns import POSITIONS, TRAVELLING, Columns
from freshet.state.codec import Block, seal

_CONTROL = "ctl"
_NAMES = "m_off", "m_name"  # string ids of new masters, which are not one value each
_RECORDS = tuple(name for name in TRAVELLING if name not in {_CONTROL, *_NAMES, *POSITIONS})


def topology_of(block: Block) -> Columns:
    """The columns of a block that travel down the chain of its part."""
    return some_of(block, TRAVELLING)


def some_of(block: Block, names: Iterable[str]) -> Columns:
    """Return those of these columns that a block has."""
    return {name: block.columns[name] for name in names if name in block.columns}


def together(found: list[Block]) -> Block:
    """Return one block with the records of several, one after the other; control values are those of the first."""
    if len(found) == 1:
        return found[0]
    columns = some_of(found[0], [_CONTROL])
    for name in (*_RECORDS, *POSITIONS):
        if values := [block.columns[name] for block in found if name in block.columns]:
            columns[name] = np.concatenate(values)
    if named := [_names(block) for block in found if "m_off" in block.columns]:
        columns |= _as_columns(Ids.concatenate(named))
    return seal(found[0].header, columns)


def share_of(topology: Block, here: range, there: range) -> Columns:
    """Return the travelling columns for a task with the parts `there`; `here` are those of the block's task."""
    columns = topology_of(topology)
    if here == there:
        return columns
    if 0 not in there:
        columns = {name: column for name, column in columns.items() if name not in POSITIONS}
    if here.start < there.start or here.stop > there.stop:
        columns = _only(columns, topology, there)
    for name in _RECORDS:
        group = _group(name)
        if name in columns and len(there) > 1 and f"{group}_to" not in columns:
            columns[f"{group}_to"] = np.full(len(columns[name]), here.start, np.int16)
    return columns if len(there) > 1 else {name: columns[name] for name in columns if not name.endswith("_to")}


def _only(columns: Columns, topology: Block, there: range) -> Columns:
    """Return the columns without the records of other parts; the block's task has several parts."""
    chosen = {}
    for name in _RECORDS:
        if name in columns and name.endswith("_to"):
            chosen[_group(name)] = np.flatnonzero((columns[name] >= there.start) & (columns[name] < there.stop))
    kept = {name: column for name, column in columns.items() if name not in {*_RECORDS, *_NAMES}}
    kept |= {name: columns[name][chosen[_group(name)]] for name in _RECORDS if name in columns}
    if "m_off" in columns:
        kept |= _as_columns(_names(topology).take(chosen["m"]))
    return kept


def _group(name: str) -> str:
    """The name of the records that a column is of."""
    return name.partition("_")[0]


def _names(block: Block) -> Ids:
    return Ids(STRING, offsets=block.get("m_off"), data=block.get("m_name"))


def _as_columns(names: Ids) -> Columns:
    return {"m_off": names.offsets, "m_name": names.data} if len(names) else {}
