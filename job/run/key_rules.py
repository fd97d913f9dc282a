"""Rules of the keys of a new job's edges, as its options and its snapshot have them."""

from __future__ import annotations

from collections.abc import Mapping

from freshet.job.errors import UsageError
from freshet.job.options.input_options import GraphOptions, InputOptions
from freshet.job.run.positions import known_as
from freshet.job.run.sources import FoundSources, Sources
from freshet.operators.parser.keys import KEY_FIELD, OFFSET, KeyRules
from freshet.operators.parser.mapping import Expressions
from freshet.operators.parser.place_keys import SOURCES_MAX, partitions_max
from freshet.operators.parser.rules import FIELDS, KIND_FIELDS
from freshet.operators.snapshot.reader import KEY_SOURCES, Snapshot
from freshet.partitioner.ids import INT


def key_rules(
    of_graph: GraphOptions, of_input: InputOptions, graph: Snapshot | None, found: FoundSources, sources: Sources
) -> KeyRules:
    """Return the rules of the keys, by the options of the graph and of its input; `graph` is the snapshot.

    Their kind is open where events are to decide it.

    Raises: UsageError for a field that events have for something else, or a snapshot with other keys.
    """
    field, of_snapshot = of_graph.edge_key or "", "" if graph is None else graph.key_kind
    if of_input.events_map:
        _refuse_unmapped(field, of_input.events_map)
    elif field in (*FIELDS, *KIND_FIELDS):
        msg = f"--edge-key {field}: a field of events; expected another one, or offset"
        raise UsageError(msg)
    if field == OFFSET:
        if graph is not None and of_snapshot:
            _refuse_other_places(graph, found, are_ignored=of_input.ignore_positions)
        _refuse_many(sources, len(found.names))
    kind = INT if field == OFFSET else of_snapshot or None
    return KeyRules(field, kind, of_graph.id_bytes_max, len(found.names))


def _refuse_unmapped(field: str, events_map: Expressions) -> None:
    if field not in ("", KEY_FIELD, OFFSET):
        msg = f"--edge-key {field}: events are mapped; give `{KEY_FIELD}: {field}` in events_map, or offset"
        raise UsageError(msg)
    maps = [events_map] if isinstance(events_map, Mapping) else events_map
    if field == KEY_FIELD and not any(KEY_FIELD in one for one in maps):
        msg = f"--edge-key {field}: events are mapped, and events_map has no `{KEY_FIELD}`: no edge would have a key"
        raise UsageError(msg)


def _refuse_other_places(graph: Snapshot, found: FoundSources, *, are_ignored: bool) -> None:
    """See that places of events are none by which edges of the snapshot have keys.

    Raises: UsageError where they may be.
    """
    begun = graph.info.get(KEY_SOURCES)
    if begun is None:
        msg = (
            f"--edge-key offset: the edges of {graph.folder} have keys that no job gave them by places, so that new "
            "edges could take theirs; give a field, or leave the column key out of edges.parquet"
        )
        raise UsageError(msg)
    names = [set(known_as(name)) for name in found.names]
    if are_ignored or len(begun) > len(names) or any(names[k].isdisjoint(known_as(one)) for k, one in enumerate(begun)):
        msg = (
            f"--edge-key offset: the edges of {graph.folder} have keys by their places in {', '.join(begun)}; expected "
            f"these first in --events, in this order, and then others, and no ignore-positions; got "
            f"{', '.join(found.names)}"
        )
        raise UsageError(msg)


def _refuse_many(sources: Sources, count: int) -> None:
    if count > SOURCES_MAX:
        msg = f"--edge-key offset: expected at most {SOURCES_MAX:,} files and topics, got {count:,}"
        raise UsageError(msg)
    for topic in sources.topics:
        if len(topic.start) > (most := partitions_max(count)):
            msg = (
                f"--edge-key offset: expected at most {most:,} partitions of a topic beside {count:,} files and "
                f"topics, got {len(topic.start):,} of {topic.name}"
            )
            raise UsageError(msg)
