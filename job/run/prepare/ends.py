"""The second step of a new job: where its events come from, which kind of ids they have, and which topics it writes."""

from __future__ import annotations

from dataclasses import dataclass

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.options.run_config import RunConfig
from freshet.job.run.outputs import Outputs, claim_topics, plan_outputs
from freshet.job.run.positions import Position, known_topics, match, read_positions
from freshet.job.run.prepare.learned import learned_ids
from freshet.job.run.prepare.model import PreparedModel
from freshet.job.run.schemas import tell_fields, tell_schemas
from freshet.job.run.sources import FoundSources, Sources, TopicReading, find_sources, plan_sources
from freshet.operators.parser.core import Parser
from freshet.operators.parser.registry.decoder import decoder_of
from freshet.operators.snapshot.reader import Snapshot
from freshet.partitioner.events import INT


@dataclass(frozen=True)
class Ends:
    """The sources of a new job (`given` as its options name them), its output topics, and the kind of its ids."""

    given: tuple[str, ...]
    found: FoundSources
    sources: Sources
    outputs: Outputs
    id_kind: str


def plan_ends(config: RunConfig, model: PreparedModel, job_id: str) -> Ends:
    """Plan inputs and outputs; make missing topics, and wait for a first event if it decides the kind of ids.

    Raises: InputError for a bad input file; UsageError for options that do not fit; JobFailed without brokers.
    """
    graph = None if model.start is None else model.start.graph
    found = find_sources(config.events)
    positions = [] if graph is None else _positions(config, graph)
    starts = {} if graph is None else _starts(config, graph, positions, found)
    reading = TopicReading(config.start_from, config.until is not None, config.client_properties)
    sources = plan_sources(found, starts, reading, known_topics(positions))
    if not config.events_map:
        known = config.id_kind if graph is None or graph.is_empty else graph.id_kind
        tell_schemas(found.files, model.plan.features, known, say, cast_ids=config.cast_ids)
        for topic in sources.topics if config.message_format is None else ():
            tell_fields(topic.name, topic.first_values(), model.plan.features, say)
    planned, has_all = plan_outputs(config, job_id, say, model.plan), graph is None or config.embeddings_from_start
    claim = {"has_all": has_all, "goes_on": False, "take": config.take_topic}
    outputs = claim_topics(planned, job_id, model.plan, config.client_properties, None, **claim)
    given, types = config.id_kind, model.plan.edge_types or None
    of_graph = None if graph is None or graph.is_empty else graph.id_kind
    learned = learned_ids(model.plan, {"--id-type": given, "--snapshot": of_graph})
    if graph is not None and not graph.is_empty:
        id_kind = _of_snapshot(given, graph)
    elif learned is not None:
        id_kind = learned
    elif given is not None:
        id_kind = given
    else:
        login = config.client_properties.registry_login()
        decoder = decoder_of(config.message_format or "", config.registry or "", login)
        id_kind = _of_first_event(
            sources, Parser(model.plan.features, None, types, config.events_map, config.id_bytes_max, decoder=decoder)
        )
    return Ends(tuple(config.events), found, sources, outputs, id_kind)


def _positions(config: RunConfig, graph: Snapshot) -> list[Position]:
    """Return the positions of the snapshot where the events continue, unless they are to be ignored.

    Raises: UsageError if they do not fit the options.
    """
    if graph.info.get("undirected") and "undirected" not in config.model_fields_set:
        msg = (
            f"--snapshot {graph.folder}: the graph of an undirected job (every edge stands both ways): give "
            "--undirected to have events mirrored too, or --directed if they are not to be"
        )
        raise UsageError(msg)
    positions = read_positions(graph.info, graph.folder)
    return [] if config.ignore_positions else positions


def _starts(
    config: RunConfig, graph: Snapshot, positions: list[Position], found: FoundSources
) -> dict[int, dict[int, int]]:
    """Return where the events continue after the snapshot, if it has positions, by source and partition.

    Raises: UsageError if they do not fit the options.
    """
    if not positions:
        return {}
    starts = match(positions, found, graph.folder, say)
    if found.topics and starts.keys() >= found.topics.keys() and "start_from" in config.model_fields_set:
        msg = (
            f"--from {config.start_from}: the topics go on where {graph.folder} stands; leave --from out, or give "
            "`ignore-positions: true` in --config"
        )
        raise UsageError(msg)
    return starts


def _of_snapshot(given: str | None, graph: Snapshot) -> str:
    """Return the kind of the snapshot's ids, which `--id-type` may only repeat."""
    if given not in (None, graph.id_kind):
        msg = f"--id-type {given}: the snapshot {graph.folder} has {graph.id_kind} ids; leave --id-type out"
        raise UsageError(msg)
    return graph.id_kind


def _of_first_event(sources: Sources, parser: Parser) -> str:
    """Return the kind of ids of the first accepted event, which is waited for in a topic."""

    def waits() -> None:
        say("waiting for the first event, which decides the kind of ids; --id-type int or string saves the wait")

    for _ in sources.first_events(parser, waits):
        if parser.id_kind is not None:
            return parser.id_kind
    return INT
