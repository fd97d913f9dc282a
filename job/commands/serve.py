"""The options of `freshet serve`."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from freshet.extras import need
from freshet.job.errors import UsageError
from freshet.job.options.layers import LayersFlag
from freshet.job.units import parse_duration, parse_size
from freshet.kind_names import topic_end

if TYPE_CHECKING:
    from freshet.job.kafka.address import KafkaAddress
    from freshet.job.serving.feeds.feed import Beside, ComingGraph
    from freshet.job.serving.tables.served import CurrentTable
    from freshet.job.serving.tables.served_job import ServedJob


T = TypeVar("T")
Text: TypeAlias = str | None
Tables = Annotated[
    Path | None,
    typer.Option(
        metavar="O/tables",
        help="Folder `tables` in the job's --out; on a TaskManager's machine, the folder of `freshet run --tables`.",
        show_default=False,
    ),
]
ServiceFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="V",
        help="Service folder of `freshet promote`: serve its current job, and change over to the next ones.",
        show_default=False,
    ),
]
Kind = Annotated[
    Text,
    typer.Option(
        help="With --tables, --service or a topic of generations: kind of vertices to serve, where the model returns "
        "several; of several (user,item) with --tables or --service, also scores of pairs.",
        show_default=False,
    ),
]
From = Annotated[
    Text,
    typer.Option(
        "--from",
        metavar="HOST:PORT,...",
        help="Feed from these servers, over Flight; with --tables: fetch missing rows from them.",
    ),
]
Kafka = Annotated[
    Text,
    typer.Option(
        metavar="kafka://HOST:PORT/TOPIC",
        help="Feed from the topic of `freshet run --embeddings-to`; with TOPIC-generations from that of a service's "
        "current job.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(help="With --kafka or --what-if: YAML file with client properties under `kafka:`."),
]
WhatIf = Annotated[
    Text,
    typer.Option(
        "--what-if",
        metavar="base|latest|PATH",
        help="With --tables: also answer what rows would be with other edges and features. The server then keeps the "
        "job's graph, which it reads from the job's input: from the job's begin (base), its newest state (latest), or "
        "a savepoint or a graph that `freshet.LiveGraph` has saved (PATH).",
        show_default=False,
    ),
]
Host = Annotated[
    str, typer.Option(help="Address to listen at; other than loopback requires a token or --without-token.")
]
Port = Annotated[int | None, typer.Option(help="Port of Arrow Flight; 0: any (default: 47470, or the next free one).")]
HttpPort = Annotated[int | None, typer.Option(help="Port of HTTP; 0: any (default: 47480, or the next free one).")]
Workers = Annotated[
    int,
    typer.Option(min=1, max=64, help="Server processes: HTTP on one port, Flight on --port and following ones."),
]
Token = Annotated[
    Text,
    typer.Option(
        help="Token that clients must send, for all requests, or a file with one on each line, which is read again "
        "when it changes; better given as FRESHET_TOKEN in the environment."
    ),
]
ReadToken = Annotated[
    Text,
    typer.Option(
        metavar="TOKEN|FILE",
        help="Token for reads only, or a file of them; better given as FRESHET_READ_TOKEN.",
        show_default=False,
    ),
]
AdminToken = Annotated[
    Text,
    typer.Option(
        metavar="TOKEN|FILE",
        help="Token for all requests, also for rejected records; better given as FRESHET_ADMIN_TOKEN.",
        show_default=False,
    ),
]
CrossOrigin = Annotated[
    list[str] | None,
    typer.Option(
        "--cors",
        metavar="ORIGIN",
        help="Let web pages of this origin (https://HOST[:PORT]) read answers; repeatable; * for any origin.",
        show_default=False,
    ),
]
WithoutToken = Annotated[
    bool,
    typer.Option("--without-token", help="Allow all reads at a --host other than loopback without a token."),
]
TlsCert = Annotated[Path | None, typer.Option(help="PEM file with the server's certificate: Flight and HTTP use TLS.")]
TlsKey = Annotated[Path | None, typer.Option(help="PEM file with the key of --tls-cert, without a password.")]
TlsRoots = Annotated[
    Path | None, typer.Option(help="With --from grpc+tls://HOST:PORT: PEM file of certificates to trust.")
]
History = Annotated[str, typer.Option(help="Memory limit for replaced rows, which slow readers may still need.")]
StaleAfter = Annotated[str, typer.Option(help="Time without news of the job after which the server is not ready.")]
Keep = Annotated[
    Text,
    typer.Option(
        metavar="1h",
        help="With --service: time for which the table of an earlier generation stays readable, by its number.",
        show_default=False,
    ),
]
Wait = Annotated[str, typer.Option(help="Maximum wait for a job that is starting, or for a topic's first row.")]
Compact = Annotated[Text, typer.Option(help="Interval between base files, such as 1h; see `freshet compact`.")]
KeepChanges = Annotated[
    str,
    typer.Option(help="With --compact: age up to which change-log files covered by a base stay, such as 24h, or all."),
]


def serve(
    tables: Tables = None,
    service: ServiceFolder = None,
    keep: Keep = None,
    kind: Kind = None,
    from_: From = None,
    kafka: Kafka = None,
    config: Config = None,
    host: Host = "127.0.0.1",
    port: Port = None,
    http_port: HttpPort = None,
    workers: Workers = 1,
    token: Token = None,
    read_token: ReadToken = None,
    admin_token: AdminToken = None,
    without_token: WithoutToken = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_roots: TlsRoots = None,
    cors: CrossOrigin = None,
    history: History = "256MiB",
    stale_after: StaleAfter = "10s",
    what_if: WhatIf = None,
    layers: LayersFlag = None,
    wait: Wait = "60s",
    compact: Compact = None,
    keep_changes: KeepChanges = "all",
) -> None:
    """Serve the embeddings of a running or finished job: Arrow Flight, HTTP with JSON, and a table in shared memory.

    The server is a separate process; the job continues when it ends, and after kill -9 the next server continues with
    the existing table. Every answer contains rows of one epoch, and its number. With --kafka no epoch is known to be
    complete: each row is the newest of its vertex.

    [bold]Examples[/bold]

    [cyan]freshet serve --tables O/tables[/cyan]
    [cyan]freshet serve --tables O/tables --kind item[/cyan]
    [cyan]freshet serve --tables O/tables --kind user,item[/cyan]  whose pairs are scored, too
    [cyan]freshet serve --tables O/tables --what-if base[/cyan]
    [cyan]freshet serve --service V --keep 1h[/cyan]
    [cyan]freshet serve --from one:47470,other:47470[/cyan]
    [cyan]freshet serve --tables /var/lib/freshet/tables --from other:47470[/cyan]  beside a TaskManager
    [cyan]freshet serve --kafka kafka://localhost:9092/embeddings[/cyan]
    [cyan]freshet serve --kafka kafka://localhost:9092/embeddings-generations[/cyan]
    [cyan]freshet query 7 9[/cyan]
    [cyan]curl http://127.0.0.1:47480/embeddings/7[/cyan]
    """
    need("serve", "serve")
    sources = _sources(service, kind, {"--tables": tables, "--from": from_, "--kafka": kafka, "--compact": compact})
    gc.disable()  # what is imported now is never garbage: a tenth of the start goes into looking for it
    from freshet.job.options.config_file import load_properties
    from freshet.job.serving.doors.cors import origins_of
    from freshet.job.serving.feeds.feed import ServeOptions
    from freshet.job.serving.protocol.tls import Certificate, read_roots
    from freshet.job.serving.server import serve as serving

    options = ServeOptions(
        tables=tables,
        service=service,
        keep_s=_kept_s(keep, service),
        kind=kind,
        host=host,
        port=port,
        http_port=http_port,
        workers=workers,
        cors=origins_of(cors or []),
        certificate=Certificate.read(tls_cert, tls_key),
        history_bytes=_parsed(parse_size, history),
        stale_after_s=_parsed(parse_duration, stale_after),
        wait_s=_parsed(parse_duration, wait),
        sources=sources,
        source_roots=read_roots(tls_roots, "--tls-roots"),
        topic=None if kafka is None else _topic(kafka),
        kafka_properties=load_properties(config),
        graph=_graph(what_if, config, layers, workers, {"--service": service, "--from": from_, "--kafka": kafka}),
        **_tokens(token, read_token, admin_token, without_token=without_token),
        **_compacting(compact, keep_changes, tables if kafka is None else None, kind),
    )
    serving(options)


def _parsed(parse: Callable[[str], T], given: str) -> T:
    try:
        return parse(given)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _tokens(
    token: str | None, read_token: str | None, admin_token: str | None, *, without_token: bool
) -> dict[str, Any]:
    """Return the options of tokens, those of the environment where none are given."""
    from freshet.job.serving.clients.asked import SOURCE_TOKEN_VARIABLE, TOKEN_VARIABLE
    from freshet.job.serving.protocol.token_values import TokenError, token_to_send

    given = {"token": token, "read_token": read_token, "admin_token": admin_token}
    names = {"token": TOKEN_VARIABLE, "read_token": "FRESHET_READ_TOKEN", "admin_token": "FRESHET_ADMIN_TOKEN"}
    found = {name: given[name] or os.environ.get(variable) or None for name, variable in names.items()}
    of_source = os.environ.get(SOURCE_TOKEN_VARIABLE)
    try:
        token_to_send(of_source)
    except TokenError as error:
        msg = f"{SOURCE_TOKEN_VARIABLE} {error}"
        raise UsageError(msg) from None
    return found | {"source_token": of_source or found["token"], "without_token": without_token}


def _compacting(compact: str | None, keep_changes: str, tables: Path | None, kind: str | None) -> dict[str, Any]:
    """Return the options of compaction; `tables`: of a job that has a change log."""
    keep_s = None if keep_changes == "all" else _parsed(parse_duration, keep_changes)
    if compact is None:
        return {}
    every_s = _parsed(parse_duration, compact)
    return {
        "compact": partial(_compact, tables.absolute(), kind, keep_s) if tables else None,
        "compact_every_s": every_s,
    }


def _kept_s(keep: str | None, service: Path | None) -> float:
    if keep is None:
        return 0.0
    if service is None:
        msg = f"--keep {keep}: goes with --service V, whose earlier generations it keeps"
        raise UsageError(msg)
    return _parsed(parse_duration, keep)


def _compact(tables: Path, kind: str | None, keep_s: float | None) -> None:
    from freshet.job.folder.returned_kinds import named_kinds, returned_of
    from freshet.job.serving.tables.compaction import compact_log
    from freshet.operators.output_folders import LogFolders

    log = LogFolders.of_tables(tables)
    for one in named_kinds(kind or log.kind or None, returned_of(log.out)):
        compact_log(log.out, keep_s, kind=one)


def _graph(
    begin: str | None, config: Path | None, layers: Sequence[str] | None, workers: int, others: dict[str, object]
) -> Callable[[ServedJob, Sequence[CurrentTable], str | None], ComingGraph | None] | None:
    """Return what opens the graph of a job, where the server or the job's run asks for what if, or embeddings need it.

    Requests wait from the call on; what it returns opens the graph. `others`: options that it does not go with.
    """
    other = next((name for name, value in others.items() if value is not None), None)
    if begin is not None and other:
        msg = f"--what-if {begin}: does not go with {other}; give --tables O/tables of a job alone"
        raise UsageError(msg)
    if begin is not None and workers > 1:
        msg = f"--what-if {begin}: one process has the graph, so --workers {workers} does not go with it"
        raise UsageError(msg)

    def made(job: ServedJob, tables: Sequence[CurrentTable], kind: str | None) -> ComingGraph | None:
        from freshet.job.folder.run_file import glimpse_run
        from freshet.job.options.layers import take_layers

        if begin is None and not job.inner_width and not glimpse_run(job.log.out).get("what_if"):
            if layers:
                msg = f"--layers {layers[0]}: goes with --what-if alone, for embeddings are read as they are"
                raise UsageError(msg)
            return None
        from freshet.job.serving.feeds.feed import ComingGraph
        from freshet.job.serving.tables.hypotheses import ComingAnswers

        found, coming, inner = tables, ComingAnswers(), None
        if job.inner_width:
            from freshet.job.what_if.inner_tables import InnerTables

            take_layers(layers)
            inner = InnerTables(tables)
            found = inner.embeddings(job.model, kind, coming)

        def opened() -> Beside:
            from freshet.job.what_if.engine import open_what_if

            if inner is None:
                take_layers(layers)
            return open_what_if(job, tables, begin or "base", config, coming, inner)

        return ComingGraph(found, coming, opened)

    return None if other or workers > 1 else made


def _topic(given: str) -> KafkaAddress:
    from freshet.job.kafka.address import KafkaAddress, KafkaAddressError

    try:
        return KafkaAddress.parse(given)
    except KafkaAddressError as error:
        msg = f"--kafka: {error}"
        raise UsageError(msg) from None


def _check_service(service: Path | None, given: dict[str, object]) -> None:
    for option, value in given.items():
        if service is not None and value is not None:
            msg = f"{option}: does not go with --service {service}, whose jobs and tables are in that folder"
            raise UsageError(msg)


def _sources(service: Path | None, kind: str | None, options: dict[str, Any]) -> tuple[str, ...]:
    """Return the servers to feed from; `options` that say what is served, by flag."""
    from freshet.job.service.current_topic import is_pointer

    _check_service(service, options)
    tables, given, kafka = options["--tables"] or service, options["--from"], options["--kafka"]

    of_generations = kind is not None and kafka is not None and is_pointer(_topic(kafka))
    if kind is not None and not of_generations and (tables is None or kafka is not None):
        msg = (
            f"--kind {kind}: goes with --tables O/tables; a server of --from has one kind, and the topic of --kafka is "
            f"that of one, such as kafka://HOST:PORT/TOPIC.{topic_end(kind)}, or of generations"
        )
        raise UsageError(msg)
    sources = tuple(filter(None, (one.strip() for one in (given or "").split(","))))
    if tables is None and not sources and kafka is None:
        msg = (
            "serve: expected --tables O/tables, of a job on this machine or a shared folder, --service V, --from "
            "HOST:PORT,... or --kafka kafka://HOST:PORT/TOPIC"
        )
        raise UsageError(msg)
    if sources and kafka is not None:
        msg = "serve: --from and --kafka are two feeds; leave one of the two out"
        raise UsageError(msg)
    if (sources or kafka is not None) and tables is not None and "tables" not in (tables.name, tables.parent.name):
        msg = f"--tables {tables}: expected a folder of the name tables, such as C/tables"
        raise UsageError(msg)
    from freshet.job.serving.protocol.tls import Address

    for one in sources:
        if Address.parse(one) is None:
            msg = f"--from {one}: expected HOST:PORT of a server's Flight, or grpc+tls://HOST:PORT"
            raise UsageError(msg)
    return sources
