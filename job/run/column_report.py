"""Report of the columns of tables before the start: how each is read, or that it is not; tables without any event."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import jmespath

from freshet.job.errors import UsageError
from freshet.job.run.column_guesses import as_flag, as_yaml, guesses, proposed_map
from freshet.operators.parser.changes import paths_of, value_of
from freshet.operators.parser.event_files import EventFile
from freshet.operators.parser.files import schema_of
from freshet.operators.parser.formats import JSONL, TEXTS
from freshet.operators.parser.keys import KeyRules
from freshet.operators.parser.mapping import WHEN, Expressions
from freshet.operators.parser.partitions import columns_of
from freshet.operators.parser.rules import FieldKind, fields_of
from freshet.operators.parser.text_tables.rows import numbered
from freshet.partitioner.events import OP_ADD_EDGE, OP_NAMES
from freshet.partitioner.ids import INT, STRING
from freshet.schema import Features

_NAMES_MAX = 12
_WORDS = {
    FieldKind.TEXT: "text",
    FieldKind.NUMBER: "number",
    FieldKind.NUMBERS: "numbers",
    FieldKind.FEATURES: "numbers",
    FieldKind.TIME: "time",
    FieldKind.KEY: "key",
}

_ID_KINDS: dict[str | None, str] = {INT: "integers", STRING: "strings"}


class _Columns(NamedTuple):
    """Columns of a file: its own, and those that its folders name."""

    own: tuple[str, ...]
    of_folders: tuple[str, ...]
    is_text: bool

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.own, *self.of_folders)


def tell_columns(
    files: Iterable[EventFile],
    features: Features,
    keys: KeyRules,
    events_map: Expressions | None,
    id_kind: str | None,
    say: Callable[[str], None],
    *,
    empty: Collection[int] = (),
) -> None:
    """Say of each table which columns are read as what, once for all that have the same.

    `id_kind`: None while it is open. `empty`: numbers of files without rows.

    Raises: UsageError where no row of a table can be an event, with a map that may be meant.
    """
    seen: dict[_Columns, list[EventFile]] = {}
    for file in files:
        if file.format != JSONL:
            own = tuple(dict.fromkeys(schema_of(file).names))
            seen.setdefault(_Columns(own, tuple(columns_of(file.name, file.levels)), file.format in TEXTS), []).append(
                file
            )
    fields = {keys.field: FieldKind.KEY, **fields_of(features)}
    for columns, some in seen.items():
        more = f" and {len(some) - 1} more" if len(some) > 1 else ""
        read = _read_by_map(columns.names, events_map) if events_map else _read(columns, fields, id_kind)
        used = {name for names in read.values() for name in names}
        ignored = [name for name in columns.names if name not in used]
        parts = [", ".join(said for said in read)] if read else []
        if ignored:
            parts.append(f"ignored: {_shown(ignored)}{'' if events_map else ': see --events-map'}")
        say(f"{some[0].name}{more}: columns {'; '.join(parts)}")
        with_rows = [file for file in some if file.source not in empty]
        if with_rows and (why := _why_not_by_map(columns.names, events_map) if events_map else _why_not(columns)):
            raise UsageError(_refusal(with_rows[0].name, columns, why, events_map))


def _read(columns: _Columns, fields: Mapping[str, FieldKind], id_kind: str | None) -> dict[str, list[str]]:
    """Return what is said of the columns that are read, each with these columns."""
    found: dict[str, list[str]] = {}
    ids = [name for name in columns.names if fields.get(name) is FieldKind.ID]
    kind = _ID_KINDS.get(id_kind, "integers if the first are, else strings")
    if ids:
        found[f"{', '.join(ids)} (ids{': ' + kind if columns.is_text else ''})"] = ids
    for name in columns.names:
        if name in fields and name not in ids:
            found[f"{name} ({_WORDS[fields[name]]})"] = [name]
    for field in ("x", "attr") if columns.is_text else ():
        if parts := numbered(field, columns.own):
            span = parts[0] if len(parts) == 1 else f"{parts[0]} to {parts[-1]}"
            found[f"{span} ({field}, {len(parts)} numbers)"] = parts
    return found


def _read_by_map(names: Sequence[str], events_map: Expressions) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in _maps(events_map):
        for field, expression in one.items():
            for name in _names_in(expression):
                if name in names:
                    found.setdefault(name, []).append(field)
    return {f"{name} (in {', '.join(dict.fromkeys(of))})": [name] for name, of in found.items()}


def _maps(events_map: Expressions) -> list[Mapping[str, str]]:
    return [events_map] if isinstance(events_map, Mapping) else list(events_map)


def _names_in(expression: str) -> list[str]:
    """Return the columns that an expression begins with."""
    return [path[0] for path in paths_of(jmespath.compile(expression).parsed) if path]


def _why_not(columns: _Columns) -> str | None:
    """Describe why no row can be an event."""
    missing = ["op"] if "op" not in columns.names else []
    if "id" not in columns.names and not {"src", "dst"} <= {*columns.names}:
        missing += [name for name in ("src", "dst") if name not in columns.names] or ["id"]
    return f"no column {', '.join(missing)}" if missing else None


def _why_not_by_map(names: Sequence[str], events_map: Expressions) -> str | None:
    """Describe why no row can be an event by any of the maps."""
    reasons = []
    for one in _maps(events_map):
        if one.keys() == {WHEN}:
            continue
        parsed = {field: jmespath.compile(expression).parsed for field, expression in one.items()}
        op = parsed["op"]
        of_vertex, of_edge = ["op", "id"], ["op", "src", "dst"]
        if op["type"] == "literal":
            tried = [of_edge if op["value"] in OP_NAMES[OP_ADD_EDGE:] else of_vertex]
        else:
            tried = [of_edge, of_vertex]
        lacking = [[field for field in some if not _may_give(parsed.get(field), names)] for some in tried]
        if not all(lacking):
            return None
        field = lacking[0][0]
        reasons.append(f"events_map: {field}: {f'{one[field]}: no such column' if field in one else 'missing'}")
    return reasons[0] if reasons else None


def _may_give(parsed: Mapping[str, object] | None, names: Sequence[str]) -> bool:
    """Return whether an expression may give anything for rows with these columns."""
    if parsed is None:
        return False
    paths = list(paths_of(parsed))
    if not paths or any(not path or path[0] in names for path in paths):
        return True
    try:
        return value_of(parsed, {}) is not None
    except Exception:  # of no column
        return False


def _refusal(name: str, columns: _Columns, why: str, events_map: Expressions | None) -> str:
    """Word a refusal: the columns that are there, those that may be meant, and a map to copy."""
    header = ", by its first row" if columns.is_text else ""
    wanted = [] if events_map else [field for field in ("op", "src", "dst", "id") if field not in columns.names]
    near = [f"{column} for {field}" for field, column in guesses(columns.names, wanted).items()]
    meant = f"; perhaps {', '.join(near)}" if near else ""
    proposed = proposed_map(columns.names)
    return (
        f"--events {name}: no row can be an event: {why}; its columns are {_shown(columns.names)}{header}{meant}; map "
        f"them, in the --config file by\n  {as_yaml(proposed)}\n  or by {as_flag(proposed)}"
    )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES_MAX]) + (f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else "")
