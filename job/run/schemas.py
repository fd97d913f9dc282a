"""Findings from schemas of files before a job reads a row: columns that are converted, ignored or rejected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from freshet.operators.parser.arrow.arrays import advice_on, advice_on_struct, is_number, is_text
from freshet.operators.parser.event_files import EventFile
from freshet.operators.parser.files import schema_of
from freshet.operators.parser.formats import JSONL, TEXTS
from freshet.operators.parser.keys import KeyRules
from freshet.operators.parser.partitions import columns_of
from freshet.operators.parser.rules import ID_FIELDS, KIND_FIELDS, FieldKind, fields_of, is_past_int64
from freshet.operators.parser.streams import LineReader
from freshet.operators.parser.text_tables.rows import numbered
from freshet.partitioner.ids import INT, STRING
from freshet.schema import Features

CAST = "cast"  # kind of ids of a job that takes integers as strings
_AS_STRINGS = "--id-type string takes integers as strings"
_NAMES_MAX = 12
_FIRST_BYTES = 1 << 14  # of the decompressed JSON lines of a file, whose keys are looked at


def tell_schemas(
    files: Iterable[EventFile],
    features: Features,
    id_kind: str | None,
    say: Callable[[str], None],
    *,
    cast_ids: bool = False,
    keys: KeyRules | None = None,
) -> None:
    """Say of all files, once each, what their columns show; `features`, `id_kind` (None: open), `keys` are the job's.

    `cast_ids`: integers are taken as ids that are strings. Of JSON lines the first are looked at, for fields that a
    job reads otherwise than is meant: the others are judged line by line.
    """
    id_kind, keys = CAST if cast_ids else id_kind, keys or KeyRules()
    seen: dict[str, list[str]] = {}
    for file in files:
        if file.format == JSONL:
            found = _of_lines(file, features, id_kind, keys)
        else:
            found = findings(_schema_of(file, features, id_kind, keys), features, id_kind, keys)
        for line in found:
            seen.setdefault(line, []).append(file.name)
    for line, names in seen.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        say(f"{names[0]}{more}: {line}")


def _schema_of(file: EventFile, features: Features, id_kind: str | None, keys: KeyRules) -> pa.Schema:
    """The columns of a file and of its folders, each of a type that its field allows where it is text."""
    schema, fields = schema_of(file), {keys.field: FieldKind.KEY, **fields_of(features)}
    of_text = schema.names if file.format in TEXTS else []
    known = {name: pa.string() for name in (*of_text, *columns_of(file.name, file.levels))}
    for name in known:
        kind = fields.get(name)
        if kind is FieldKind.ID:
            known[name] = pa.string() if id_kind in (STRING, CAST) else pa.int64()
        elif kind is FieldKind.KEY:
            known[name] = pa.int64() if keys.kind == INT else pa.string()
        elif kind in _OF_TEXT:
            known[name] = _OF_TEXT[kind]
    known |= {field: pa.list_(pa.float32()) for field in ("x", "attr") if numbered(field, of_text)}
    rest = [one for one in schema if one.name not in known]
    return pa.schema([*rest, *known.items()])


_OF_TEXT = {
    FieldKind.NUMBER: pa.float64(),
    FieldKind.NUMBERS: pa.list_(pa.float64()),
    FieldKind.FEATURES: pa.list_(pa.float64()),
    FieldKind.TIME: pa.int64(),
}


def tell_fields(
    topic: str,
    values: Iterable[bytes | None],
    features: Features,
    say: Callable[[str], None],
    keys: KeyRules | None = None,
) -> None:
    """Say of a topic what the fields of its first messages show, which are lines of JSON or Arrow streams."""
    names = set[str]()
    for value in values:
        for record in _records_of((value or b"").splitlines()):
            names |= record.keys()
        if value and not value.lstrip().startswith(b"{"):
            with suppress(pa.ArrowInvalid, OSError):  # no Arrow stream either: the Parser rejects it with the reason
                names |= set(pa.ipc.open_stream(value).schema.names)
    for line in odd_fields(names, features, keys or KeyRules()):
        say(f"{topic}: {line}")


def _of_lines(file: EventFile, features: Features, id_kind: str | None, keys: KeyRules) -> Iterator[str]:
    """Describe what is odd about the first whole lines of a file of JSON lines; those that are no objects, are not."""
    records = _first_records(file)
    yield from odd_fields({name for record in records for name in record}, features, keys)
    for name in ID_FIELDS:
        large = next((record[name] for record in records if is_past_int64(record.get(name))), None)
        if large is not None and not (id_kind == CAST and type(large) is int):
            yield f"{name} {large} is past 2^63: such ids will be rejected; write them as strings, or {_AS_STRINGS}"
    large = next((one[keys.field] for one in records if is_past_int64(one.get(keys.field))), None)
    if large is not None and keys.kind != "":
        yield f"{keys.field} {large} is past 2^63: such keys will be rejected; write them as strings"
    for name, kind in fields_of(features).items():
        struct = next((record[name] for record in records if isinstance(record.get(name), dict)), None)
        if struct is not None and kind in (FieldKind.FEATURES, FieldKind.NUMBERS):
            yield f"{name} is an object: expected a list of numbers{advice_on_struct(struct)}"


def _first_records(file: EventFile) -> list[dict[str, Any]]:
    with closing(LineReader()) as lines:
        return _records_of(lines.read(file.path, 0, _FIRST_BYTES).splitlines())


def _records_of(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the lines that are JSON objects."""
    records: list[dict[str, Any]] = []
    for line in lines:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        records += [record] if isinstance(record, dict) else []
    return records


def odd_fields(names: Collection[str], features: Features, keys: KeyRules) -> Iterator[str]:
    """Say that these lack keys or types that edges should have, or have kinds where the model has none."""
    if keys.is_given and not keys.by_offset and "src" in names and keys.field not in names:
        yield f"no {keys.field}, which --edge-key names: edges without it have no key, and are one for each pair"
    if features.kinds is not None and "src" in names and (line := features.kinds.without_types(names)):
        yield line
    if "edge_type" in names and "type" not in names:
        yield "edge_type is not read: name it type, as the types of edges are named here"
    there = sorted(KIND_FIELDS.keys() & set(names) - fields_of(features).keys())
    if there:
        yield (
            f"{', '.join(there)} ignored: the model has no kinds of vertices, so two kinds' vertices with the same id "
            "are one"
        )


def findings(schema: pa.Schema, features: Features, id_kind: str | None, keys: KeyRules | None = None) -> Iterator[str]:
    """Describe each column that differs from those of events."""
    keys = keys or KeyRules()
    fields = {keys.field: FieldKind.KEY, **fields_of(features)}
    kinds = {name: _plain(kind) for name, kind in zip(schema.names, schema.types, strict=True) if name in fields}
    kinds = {name: kind for name, kind in kinds.items() if not pa.types.is_null(kind)}
    if "op" not in kinds:
        names = [field.name for field in schema if not pa.types.is_null(field.type)]
        there = ", ".join(names[:_NAMES_MAX]) or "none"
        yield f"no column op, only {there}: every row will be rejected; `events-map:` in --config reads foreign columns"
        return
    yield from odd_fields(schema.names, features, keys)
    for name, kind in kinds.items():
        if name == "type" and is_number(kind) and _has_numbered_types(features):
            continue
        judge = partial(_of_key, keys) if name == keys.field else _JUDGES[fields[name]]
        if said := judge(kind, features, id_kind):
            yield f"column {name} is {kind}: {said}"
    ids = {name: STRING if is_text(kind) else INT for name, kind in kinds.items() if name in ID_FIELDS}
    if len(set(ids.values())) > 1 and id_kind != CAST:
        of = ", ".join(f"{name}: {kind}" for name, kind in ids.items())
        yield f"ids of two kinds ({of}): one will be rejected; {_AS_STRINGS}"


def _has_numbered_types(features: Features) -> bool:
    return features.kinds is not None and any(map(str.isdecimal, features.kinds.by_type))


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without what changes nothing about its values."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return pa.string() if kind == pa.string_view() else kind


# A judge says in words what is wrong with a column of this type, for a job with these features and ids; or nothing.
_Judge = Callable[[pa.DataType, Features, str | None], str]


def _of_id(kind: pa.DataType, _: Features, id_kind: str | None) -> str:
    if is_text(kind):
        return "" if id_kind in (None, STRING, CAST) else "expected integers, as the job's ids: they will be rejected"
    if not is_number(kind):
        return f"expected integers or strings: each event that needs it will be rejected{advice_on(kind)}"
    if id_kind == STRING:
        return f"expected strings, as the job's ids: they will be rejected; {_AS_STRINGS}"
    if pa.types.is_uint64(kind) and id_kind != CAST:
        return f"those of 2^63 and more will be rejected; {_AS_STRINGS}"
    return "" if pa.types.is_integer(kind) else "whole numbers are taken as ids, others rejected"


def _of_key(keys: KeyRules, kind: pa.DataType, *_: object) -> str:
    if keys.kind == "":
        return ""
    if keys.by_offset:
        return "--edge-key offset gives each edge a key of its own: each edge that is added with it will be rejected"
    if is_text(kind):
        return "expected integers, as the job's keys: they will be rejected" if keys.kind == INT else ""
    if not is_number(kind):
        return f"expected integers or strings: each edge with it will be rejected{advice_on(kind)}"
    if keys.kind == STRING:
        return "expected strings, as the job's keys: they will be rejected"
    if pa.types.is_uint64(kind):
        return "those of 2^63 and more will be rejected; write them as strings"
    return "" if pa.types.is_integer(kind) else "whole numbers are taken as keys, others rejected"


def _of_text(kind: pa.DataType, *_: object) -> str:
    return "" if is_text(kind) else "expected strings: each event with it will be rejected"


def _of_number(kind: pa.DataType, *_: object) -> str:
    if pa.types.is_decimal(kind):
        return "taken as float32"
    return "" if is_number(kind) else "expected numbers: each event with it will be rejected"


def _of_list(kind: pa.DataType, *_: object) -> str:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return f"expected lists of numbers: each event with it will be rejected{advice_on(kind)}"
    return _of_number(_plain(kind.value_type))


def _of_attributes(kind: pa.DataType, features: Features, _: str | None) -> str:
    widths = [features.given_edge_width] if features.kinds is None else features.kinds.edge_widths.tolist()
    return _of_width(kind, [width for width in widths if width]) if features.given_edge_width else _of_list(kind)


def _of_features(kind: pa.DataType, features: Features, _: str | None) -> str:
    return _of_width(kind, features.widths)


def _of_width(kind: pa.DataType, widths: Sequence[int]) -> str:
    said = _of_list(kind)
    if not said and pa.types.is_fixed_size_list(kind) and kind.list_size not in widths:
        wanted = " or ".join(map(str, dict.fromkeys(widths)))
        return f"expected the model's {wanted} numbers: each event with them will be rejected"
    return said


def _of_time(kind: pa.DataType, *_: object) -> str:
    if pa.types.is_timestamp(kind):
        return ""
    if not is_number(kind):
        return "expected integers or timestamps: each event with it will be rejected"
    return "" if pa.types.is_integer(kind) else "whole numbers are taken, others rejected"


_JUDGES: dict[FieldKind, _Judge] = {
    FieldKind.TEXT: _of_text,
    FieldKind.ID: _of_id,
    FieldKind.NUMBER: _of_number,
    FieldKind.NUMBERS: _of_attributes,
    FieldKind.FEATURES: _of_features,
    FieldKind.TIME: _of_time,
}
