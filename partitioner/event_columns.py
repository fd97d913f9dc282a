"""The columns of a block of events as kernels read them; the epochs of a block are ranges of it."""

from __future__ import annotations

import numpy as np

from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.edge_keys import Keys, hash_keys
from freshet.partitioner.edge_types import EdgeTypes
from freshet.partitioner.events import DEFAULT_TYPE, OP_ADD_EDGE, Events
from freshet.partitioner.ids import STRING, no_keys
from freshet.partitioner.netting import Batch
from freshet.partitioner.times.event_times import EventTimes
from freshet.schema import Features
from freshet.state.salt import Salt

_NO_INTS = np.empty(0, np.int32)
_NO_EVENT_KEYS = Keys(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8))
_NO_KINDS = np.empty((2, 0), np.uint8)


class EventColumns:
    """A block of events with its columns.

    What is the same in all epochs of the block is made once. Only codes of types may differ, and kinds of ends with
    them: `begin` writes those of an epoch.

    Shapes: kinds (2, n) uint8, those of sources and of destinations, or (2, 0) where there are none; ids: the arrays of
    both ends' ids; bits: of the hashes of string ids, or nothing.
    """

    def __init__(
        self, events: Events, config: PartitionerConfig, features: Features, types: EdgeTypes, times: EventTimes,
        salt: Salt,
    ) -> None:  # fmt: skip
        """Make the columns.

        Raises:
            ValueError: ids of another kind or features of another width than the job's (the Parser rejects them).
        """
        _check(events, config, features)
        self.events, self._types, self._kinds = events, types, features.kinds
        self.bits: tuple[int, ...] = (config.key_bits,) if config.id_kind == STRING else ()
        self.ids = tuple(map(_own, _id_arrays(events, config.id_kind)))
        codes = types.fixed_codes(events)
        self._has_fixed_codes = codes is not None
        n, sizes = len(events), None if features.kinds else events.values.attr_sizes
        self.batch = Batch(
            op=_own(events.op),
            a=np.empty(n, np.int32),
            b=np.empty(n, np.int32),
            values=_own(events.values.kept()),
            etype=np.empty(n, np.int32) if codes is None else _own(codes),
            x_row=_own(events.x_row),
            attr=_NO_INTS if sizes is None else _own(sizes),
            ts=times.stamps(events),
            keys=_keys_of(events, config, salt),
        )
        self.kinds = _NO_KINDS if self._kinds is None else np.empty((2, n), np.uint8)
        if codes is not None:
            self._set_kinds(0, n)
        self.attr = events.values.full_attr(features.edge_width) if features.edge_width else None
        self._adds_before = _count_before(events.op == OP_ADD_EDGE)
        self._edges_before = _count_before(events.op >= OP_ADD_EDGE)

    def begin(self, start: int, stop: int) -> tuple[int, int]:
        """Begin an epoch of some of the events; the number of those that add an edge, and of those about edges."""
        if not self._has_fixed_codes:
            events, etypes = self.events, self.batch.etype
            etypes[start:stop] = self._types.codes_of(events.types, events.op[start:stop], events.etype[start:stop])
            self._set_kinds(start, stop)
        adds, edges = self._adds_before, self._edges_before
        return int(adds[stop] - adds[start]), int(edges[stop] - edges[start])

    def _set_kinds(self, start: int, stop: int) -> None:
        if self._kinds is None:
            return
        kinds, events = self.kinds[:, start:stop], self.events
        for end, ends in enumerate(self._kinds.ends):
            kinds[end] = ends[self.batch.etype[start:stop]]
        own = np.uint8(0) if events.kind is None else events.kind[start:stop]
        kinds[0] = np.where(events.op[start:stop] >= OP_ADD_EDGE, kinds[0], own)


def _check(events: Events, config: PartitionerConfig, features: Features) -> None:
    if events.a.kind != config.id_kind and len(events):
        msg = f"expected {config.id_kind} ids, got {events.a.kind} ids"
        raise ValueError(msg)
    if events.keys is not None and events.keys.kind != config.edge_keys and events.has_keys:
        of = f"{config.edge_keys} keys" if config.edge_keys else "edges without keys"
        msg = f"expected {of}, got {events.keys.kind} keys"
        raise ValueError(msg)
    if len(events.x) and events.x.widths != features.widths:
        wanted, got = (widths if len(widths) > 1 else widths[0] for widths in (features.widths, events.x.widths))
        msg = f"expected features of width {wanted}, got {got}"
        raise ValueError(msg)
    if features.kinds is not None and events.types != (known := features.kinds.relation_names):
        if not {*events.types} <= {DEFAULT_TYPE, *known}:
            msg = f"expected relations among {known}, got {events.types}"
            raise ValueError(msg)


def _id_arrays(events: Events, kind: str) -> tuple[np.ndarray, ...]:
    if kind == STRING:
        return events.a.offsets, events.a.data, events.b.offsets, events.b.data
    return events.a.ints, events.b.ints


def _keys_of(events: Events, config: PartitionerConfig, salt: Salt) -> Keys:
    """The keys of the events' edges."""
    kind = config.edge_keys
    if not kind:
        return _NO_EVENT_KEYS
    keys = no_keys(kind, len(events)) if events.keys is None or not events.has_keys else events.keys
    if kind != STRING:
        return _NO_EVENT_KEYS._replace(numbers=_own(keys.ints))
    numbers, offsets, data = np.empty(len(events), np.int64), _own(keys.offsets), _own(keys.data)
    hash_keys(salt, offsets, data, config.key_bits, numbers)
    return Keys(numbers, offsets, data)


def _count_before(are: np.ndarray) -> np.ndarray:
    """Return how many there are before each place, (n + 1,) int64."""
    before = np.zeros(len(are) + 1, np.int64)
    np.cumsum(are, out=before[1:])
    return before


def _own(array: np.ndarray) -> np.ndarray:
    """The array, copied if it is read-only: kernels are compiled once, for writable ones."""
    return array if array.flags.writeable and array.flags.c_contiguous else array.copy()
