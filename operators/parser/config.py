"""Settings of a Parser: the shape of records, and the target of rejected ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from freshet.operators.limits import ID_BYTES_MAX, RECORD_BYTES
from freshet.partitioner.times.units import MS, TsUnit


@dataclass(frozen=True, slots=True)
class ParserConfig:
    """Conversion of records to blocks of events, fixed for the job's life.

    `cast_ids`: ids are strings, and integers are taken as such. `events_map` makes events of foreign records: JMESPath
    by field, or a list of such maps, each with a condition.
    `id_bytes_max` is of string ids and names of edge types. `block_events` is what blocks are cut by; 0: by the events
    of an epoch. `message_format` is that of a topic's messages whose schemas are in the registry (its address); empty:
    JSON or Arrow. `ts_unit` is that of integers in `ts`. `edge_key` is the field with the keys of edges, or `offset`;
    empty: `key`, if edges have any.
    """

    events_map: dict[str, str] | tuple[dict[str, str], ...] = field(default_factory=dict)
    id_bytes_max: int = ID_BYTES_MAX
    block_events: int = 0
    message_format: str = ""
    registry: str = ""
    cast_ids: bool = False
    ts_unit: TsUnit = MS
    edge_key: str = ""


@dataclass(frozen=True, slots=True)
class LetterConfig:
    """Target of rejected records.

    Units: bytes. `record_bytes` is the largest record that a topic as `target` takes, `dead_letters_max_bytes` the
    size of its files together where it is a file; 0: no limit.
    """

    target: str = ""
    record_bytes: int = RECORD_BYTES
    dead_letters_max_bytes: int = 0
