"""Options of `freshet serve`, and the feed that they name: the job's own folder, other servers, or the output topic."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from freshet.gnn.kinds.names import check_kinds
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.folder.returned_kinds import named_kinds, written_of
from freshet.job.serving.protocol.tls import Certificate
from freshet.job.serving.tables.health import STALE_AFTER_S
from freshet.job.serving.tables.hypotheses import Hypotheses
from freshet.job.serving.tables.served_job import ServedJob, await_tables
from freshet.kernels.user_cache import user_cache
from freshet.kind_names import read_kind, written_kind
from freshet.operators.output_folders import TAIL, LogFolders
from freshet.operators.sink.tail.layout import TailNote
from freshet.state.served.layout import HISTORY_BYTES

# What follows brings numba in, and clients of Kafka: they are loaded when Flight answers already.
if TYPE_CHECKING:
    from freshet.job.kafka.address import KafkaAddress
    from freshet.job.kafka.client import ClientProperties
    from freshet.job.serving.feeds.fed_job import FedJob
    from freshet.job.serving.feeds.follower import Follower
    from freshet.job.serving.tables.served import CurrentTable


class Beside(Protocol):
    """Interface of what a server runs beside its tables."""

    def start(self) -> None:
        """Begin, once there is a table."""

    def close(self) -> None:
        """End."""


class ComingGraph(NamedTuple):
    """A job's graph that is yet to be opened beside a server's tables.

    `tables`: what lookups read, the tables of the server or those of embeddings that are computed of their rows;
    `answers`: to what if, for which requests wait.
    """

    tables: Sequence[CurrentTable]
    answers: Hypotheses
    opened: Callable[[], Beside]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of a server; default ports (None) fall back to the next free one, 0 is any."""

    tables: Path | None
    host: str = "127.0.0.1"
    port: int | None = None
    http_port: int | None = None
    workers: int = 1  # processes that answer, this one among them
    token: str | None = None  # for all; a token, or the path of a file with one on each line
    read_token: str | None = None  # for reads
    admin_token: str | None = None
    cors: tuple[str, ...] = ()  # origins whose pages may read
    without_token: bool = False  # also where others than this machine reach it
    certificate: Certificate | None = None  # None: no TLS
    history_bytes: int = HISTORY_BYTES
    stale_after_s: float = STALE_AFTER_S
    wait_s: float = 60.0
    compact: Callable[[], object] | None = None
    compact_every_s: float = 0.0
    sources: tuple[str, ...] = ()  # HOST:PORT of servers to feed from
    source_token: str | None = None
    source_roots: bytes | None = None  # certificates that those servers are trusted by
    topic: KafkaAddress | None = None  # to feed from
    kafka_properties: ClientProperties | None = None
    kind: str | None = None  # of the vertices, where the model returns several; of some of them with commas
    service: Path | None = None  # whose jobs to follow, one after the other
    # Has requests wait for the graph of a job with these tables, named by `kind`, where it is needed.
    graph: Callable[[ServedJob, Sequence[CurrentTable], str | None], ComingGraph | None] | None = None
    keep_s: float = 0.0  # for how long the table of an earlier one stays readable

    @property
    def tokens(self) -> dict[str, str]:
        """ServerTokens that are given, by the names of what gives them."""
        given = {
            "--token or FRESHET_TOKEN": self.token,
            "--read-token or FRESHET_READ_TOKEN": self.read_token,
            "--admin-token or FRESHET_ADMIN_TOKEN": self.admin_token,
        }
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True, slots=True)
class Feed:
    """A table's folder, its job, and the factory of a job's follower.

    `renewed`: the job that is fed in the place of the given one; None while that is still the one.
    """

    tables: Path
    job: ServedJob
    follower: Callable[[Any], Follower]
    renewed: Callable[[ServedJob], ServedJob | None] = lambda job: None


def feeds_of(options: ServeOptions, until: Callable[[], bool]) -> list[Feed]:
    """Wait for the job or table to serve; a feed for each kind of vertices.

    Raises: UsageError if it does not appear in time.
    """
    if options.service is not None:
        return _of_service(options, options.service, until)
    if options.topic is not None:
        return [_of_topic(options, options.topic, until)]
    if options.sources:
        return [_of_servers(options, until)]
    assert options.tables is not None
    given = options.tables.absolute()
    out = LogFolders.of_tables(given).out

    def find() -> list[ServedJob] | dict[str, Any] | None:
        """The job of the folder, for each kind, or what the tails are of where it holds none."""
        if (out / layout.SAVED_JOB).exists():
            written = written_of(out)
            named = written.every if written.is_inner else named_kinds(options.kind, written.returned)
            jobs = [ServedJob.of_tables(given, kind) for kind in named]
            there = [job for job in jobs if job is not None]
            return there if len(there) == len(jobs) else None
        return TailNote.read(_of_kind(given, options.kind) / TAIL)

    jobs = await_tables(given, options.wait_s, find)
    if not isinstance(jobs, list):  # tails of this machine, and no change log
        return [_of_servers(options, until)]

    def follower(job: ServedJob) -> Follower:
        from freshet.job.serving.feeds.follower import Follower

        return Follower(job, job.log.tables, options.history_bytes)

    return [Feed(job.log.tables, job, follower) for job in jobs]


def _of_service(options: ServeOptions, folder: Path, until: Callable[[], bool]) -> list[Feed]:
    from freshet.job.serving.feeds.service_feed import await_service, begun, kind_of, tables_of

    service = await_service(folder, options.wait_s, until)
    named = named_kinds(options.kind, service.contract().returned)
    kinds = {tables_of(service, kind): kind_of(service, kind) for kind in named}
    generation, jobs = begun(service, kinds)

    def follower(tables: Path, job: ServedJob) -> Follower:
        from freshet.job.serving.feeds.generation_follower import GenerationFollower
        from freshet.job.serving.tables.kept import KeptTables

        kept = KeptTables(tables, options.keep_s)
        return GenerationFollower(service, generation, job, tables, options.history_bytes, kept=kept)

    return [Feed(tables, job, partial(follower, tables)) for tables, job in zip(kinds, jobs, strict=True)]


def _of_servers(options: ServeOptions, until: Callable[[], bool]) -> Feed:
    from freshet.job.serving.feeds.fed_job import FedServers

    tables = _tables_of(options, options.sources)
    sources = FedServers(list(options.sources), options.source_token, options.source_roots)

    def own() -> ServedJob | None:
        """Return the feed of a folder that also has the change log."""
        return ServedJob.of_tables(tables) if layout.TABLES in (tables.name, tables.parent.name) else None

    job = own() or sources.job(tables, until, options.wait_s)
    job = own() or job  # it may have begun meanwhile
    _check_fed(options, job)

    def follower(job: ServedJob) -> Follower:
        from freshet.job.serving.feeds.merging_follower import MergingFollower

        return MergingFollower(job, tables, sources, until, options.history_bytes)

    def renewed(former: ServedJob) -> ServedJob | None:
        try:
            found = sources.job(tables, until, 0.0)
            _check_fed(options, found)
        except UsageError as error:
            say(str(error))
            return None
        if (found.generation is None) != (former.generation is None):
            now, before = _of_what(found), _of_what(former)
            say(f"the servers to feed from are of {now}, and were of {before}: start this server again")
            return None
        is_earlier = (found.generation or 0) < (former.generation or 0)  # of a server that lags
        return None if is_earlier or found.identity == former.identity else found

    return Feed(tables, job, follower, renewed)


def _of_what(job: ServedJob) -> str:
    return "a job without generations" if job.generation is None else f"generation {job.generation}"


def _check_fed(options: ServeOptions, job: ServedJob) -> None:
    """Raises: UsageError for a job of another kind, or of servers of an earlier version."""
    if options.kind not in (None, job.kind):
        has = f"the kind {job.kind}" if job.kind else "the only kind that its job returns; leave --kind out"
        msg = f"--kind {options.kind}: the embeddings of {','.join(options.sources)} are of {has}"
        raise UsageError(msg)
    if not job.parts:
        msg = f"--from {','.join(options.sources)}: the server does not say how many parts its job has; update it"
        raise UsageError(msg)


def _of_topic(options: ServeOptions, address: KafkaAddress, until: Callable[[], bool]) -> Feed:
    from freshet.job.kafka.client import ClientProperties
    from freshet.job.service.current_topic import is_pointer
    from freshet.job.serving.feeds.topic import Topic

    properties = options.kafka_properties or ClientProperties()
    if is_pointer(address):
        return _of_generations(options, address, properties, until)
    tables, topic = _tables_of(options, (str(address),)), Topic(address, properties)
    job = topic.job(tables, until, options.wait_s)

    def follower(job: FedJob) -> Follower:
        from freshet.job.serving.feeds.topic_follower import TopicFollower

        return TopicFollower(job, tables, topic, until, options.history_bytes)

    return Feed(tables, job, follower)


def _of_generations(
    options: ServeOptions, address: KafkaAddress, properties: ClientProperties, until: Callable[[], bool]
) -> Feed:
    from freshet.job.kafka.brokers import await_brokers
    from freshet.job.serving.feeds.fed_job import FedJob
    from freshet.job.serving.feeds.topic_generations import TopicGenerations

    tables = _tables_of(options, (str(address), *([options.kind] if options.kind else [])))
    topics = TopicGenerations(address, properties, tables, options.kind)
    if not FedJob.note(tables):
        await_brokers([("--kafka", address)], properties)
    found = topics.begun(until, options.wait_s)

    def follower(_: ServedJob) -> Follower:
        from freshet.job.serving.feeds.topic_generation_follower import TopicGenerationFollower
        from freshet.job.serving.tables.kept import KeptTables

        kept = KeptTables(tables, options.keep_s)
        return TopicGenerationFollower(topics, found, until, options.history_bytes, kept=kept)

    return Feed(tables, found.job, follower)


def _tables_of(options: ServeOptions, sources: tuple[str, ...]) -> Path:
    """The folder that was given, else one of the user's cache."""
    if options.tables is not None:
        return _of_kind(options.tables.absolute(), options.kind)
    name = hashlib.sha256(",".join(sorted(sources)).encode()).hexdigest()[:16]
    return user_cache() / "served" / name / layout.TABLES


def _of_kind(tables: Path, kind: str | None) -> Path:
    """Return the folder of a kind's tables: that of all, or the kind's own, may be given.

    Raises: UsageError for a name that no kind has, or where tails of several kinds are there and none is named.
    """
    if kind is not None:
        try:
            check_kinds([kind])
        except ValueError as error:
            msg = f"--kind {kind}: {error}"
            raise UsageError(msg) from None
        written = written_kind(kind)
        return tables if written_kind(LogFolders.of_tables(tables).kind) == written else tables / written
    tails = [] if (tables / TAIL).is_dir() else sorted(tables.glob(f"*/{TAIL}"))
    if found := [read_kind(one.parent.name) for one in tails]:
        msg = (
            f"--tables {tables}: there are tables of several kinds of vertices ({', '.join(found)}); name one by --kind"
        )
        raise UsageError(msg)
    return tables
