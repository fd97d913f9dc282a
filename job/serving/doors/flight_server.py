"""Arrow Flight: `DoExchange` streams of lookups, `DoGet` by ids, all, or nearest, `ListFlights`, `DoAction` health.

A request is JSON, a Ticket: {"ids": [...]} or {"all": true} or {"nearest": {...}}, and in any of them min_epoch,
min_position, timeout, logits, kind, and of a service generation. In a lookup stream each batch has the column `id`, its
metadata the Conditions without generation; the answer's metadata is {"epoch": E, "as_of_ms": T, "event_ts": T} (times
where they are known; and "consistency": "row" where rows are of no one epoch), or {"error": ..., "kind": ...} with an
empty batch. No batch has more than 3 MiB, which clients of any language take: a larger answer comes in several, with
{"more": true} instead of the epoch before the last one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from freshet.errors import FreshetError
from freshet.job.serving.bounds.budget import Held, parsed
from freshet.job.serving.bounds.calls import FAILED, GET, OK, REFUSED, begin
from freshet.job.serving.bounds.forms import Nothing, Stream, form_of_json
from freshet.job.serving.doors.access import Access
from freshet.job.serving.doors.exchange import NO_OPTIONS, Exchange
from freshet.job.serving.doors.one_sentence import as_flight, in_a_sentence, logged, pieces_in_a_sentence
from freshet.job.serving.doors.tokens import ServerTokens
from freshet.job.serving.protocol.columns import pieces_of
from freshet.job.serving.protocol.errors import OF_SERVICE, BadRequestError, NotReadyError
from freshet.job.serving.protocol.tls import Certificate
from freshet.job.serving.protocol.wanted import ROW
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.one_generation import of_generation
from freshet.job.serving.tables.requests import OPTIONS_BYTES_MAX, Ticket, check_size
from freshet.job.serving.tables.served import Answer, JobHere, Served
from freshet.state.served.ids import Ids, text_bytes

ALL = b'{"all":true}'
_TOKEN = "token"  # name of the middleware
Streamed: TypeAlias = tuple[pa.Schema, Iterator[Any]]  # what an answer is of, and its batches


class EmbeddingFlights(flight.FlightServerBase):  # type: ignore[misc, unused-ignore]
    """The Flight server; its threads are gRPC's."""

    def __init__(
        self,
        location: str,
        lookup: Lookup,
        health: Health,
        token: str | ServerTokens | None = None,
        certificate: Certificate | None = None,
        locations: Sequence[str] = (),
    ) -> None:
        """Listens on return.

        `token`: those that every call must bear; `certificate`: for grpc+tls; `locations`: where all processes of the
        server answer, of several.
        """
        self._ending, self._locations = threading.Event(), list(locations)
        tokens = ServerTokens.of(token)
        middleware = {_TOKEN: _Bearers(tokens)} if tokens.required else {}
        certificates = [certificate.pair] if certificate is not None else []
        super().__init__(location, middleware=middleware, tls_certificates=certificates)
        self._lookup, self._health = lookup, health
        lookup.as_server()

    @in_a_sentence
    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Answer one request as a stream of batches, all at one epoch."""
        raw, budget, end, begun = ticket.ticket, self._lookup.budget, FAILED, begin()
        try:
            check_size(raw)
            with budget.hold(parsed(raw), "a ticket"):
                schema, pieces = self._stream(context, form_of_json(Ticket, raw))
            end = OK
        except FreshetError:
            end = REFUSED
            raise
        finally:
            budget.calls.count(GET, end, begun)
        return flight.GeneratorStream(schema, pieces_in_a_sentence(context, pieces))

    def shutdown(self) -> None:
        """End, and what other servers feed from as well."""
        self._ending.set()
        super().shutdown()

    def _tails(self, context: Any, asked: Ticket) -> Streamed:
        from freshet.job.serving.feeds.tail_stream import SCHEMA, pieces_of_tails

        _check_admin(context, "a stream of tail files")
        if (here := self._lookup.of(None).job.tails) is None:
            msg = "this server has no tails"
            raise BadRequestError(msg)
        _check_generation(asked, self._lookup.of(None).job)
        pieces = pieces_of_tails(here, asked, self._lookup, self._until_end(context))
        return SCHEMA, pieces

    def _until_end(self, context: Any) -> Callable[[], bool]:
        return lambda: self._ending.is_set() or context.is_cancelled()

    def _changes(self, context: Any, asked: Ticket) -> Streamed:
        from freshet.job.serving.feeds import change_stream

        lookup = self._lookup.of(asked.kind)
        job = lookup.job
        if asked.job is not None:
            _check_generation(asked, job)
        if asked.job not in (None, job.job_id):
            msg = f"changes of the job {asked.job!r}: this server is of the job {job.job_id!r}"
            raise BadRequestError(msg)
        if job.consistency == ROW:
            msg = "this server feeds from a Kafka topic, whose rows are of no one epoch; feed from the topic as well"
            raise BadRequestError(msg)
        served = lookup.whole
        if served.job.identity != job.identity:
            msg = "another table takes the place of this one just now; ask again"
            raise NotReadyError(msg)
        table = served.table

        def pieces() -> Iterator[tuple[pa.RecordBatch, bytes]]:
            until = self._until_end(context)
            for change, end in change_stream.changes(lookup, served, until, asked.since_epoch):
                yield from change_stream.batches_of(change, end)

        return change_stream.schema_of(table.strings, table.width), pieces()

    def _stream(self, context: Any, asked: Ticket) -> Streamed:
        if asked.changes:
            return self._changes(context, asked)
        if asked.tails is not None:
            return self._tails(context, asked)
        wanted, logits = asked.wanted, asked.logits
        every, gone = of_generation(self._lookup, asked.generation), context.is_cancelled
        if asked.computed is not None:
            computed, form = asked.computed
            size = computed.room(every, form, readout=logits)[0]
            held = every.budget.hold(size, f"the answer of {computed.items(form):,} rows")
            table = computed.run(every, form.model_dump(exclude_none=True), wanted, gone).as_table(logits)
            return table.schema, _held_until_sent(table, held)
        lookup = every.of(asked.kind)
        if asked.all:
            lookup.wait(wanted, gone)
            return self._all(lookup, logits)
        ids = lookup.ids_of(asked.ids)
        lookup.wait(wanted, gone)
        served = lookup.served
        held = self._held(len(ids), ids, logits, served)
        table = lookup.as_table(lookup.get(ids, served=served), logits=logits)
        return table.schema, _held_until_sent(table, held)

    def _held(self, count: int, ids: Ids | None, logits: bool, served: Served) -> Held:
        """Reserve room for an answer of `count` rows."""
        size = count * served.row_shape(readout=logits).in_arrow + (0 if ids is None else text_bytes(ids))
        return self._lookup.budget.hold(size, f"the answer of {count:,} rows")

    def _all(self, lookup: Lookup, logits: bool) -> Streamed:
        from freshet.job.serving.bounds.whole_table import WholeTable

        served = lookup.whole
        whole = WholeTable(served.whole, lookup.budget)

        def pieces() -> Iterator[pa.RecordBatch]:
            for part in whole:
                answer = Answer(whole.epoch, part.ids, part.own, part.rows, len(part.own), served)
                if len(part.own):
                    yield from pieces_of(lookup.as_batch(answer, logits=logits))

        schema = lookup.nothing(served, logits).schema.with_metadata(served.metadata(whole.epoch))
        return schema, pieces()

    @in_a_sentence
    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Answer one lookup after the other, until the client ends the stream; its command may ask for logits."""
        command = descriptor.command or NO_OPTIONS
        check_size(command, OPTIONS_BYTES_MAX)
        asked = form_of_json(Stream, command)
        exchange = Exchange(self._lookup.of(asked.kind), asked.logits, context.is_cancelled)
        writer.begin(exchange.schema)
        while exchange.step(reader, writer):  # which keeps nothing of one request until the next one comes
            pass

    @in_a_sentence
    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """List all embeddings, of each kind where the server has several."""
        if not self._lookup.beside:
            yield self._info(flight.FlightDescriptor.for_path("embeddings"))
        for kind in self._lookup.beside:
            yield self._info(flight.FlightDescriptor.for_command(orjson.dumps({"all": True, "kind": kind})))

    @in_a_sentence
    def get_flight_info(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        """Return where to get the answer to a descriptor's command (nothing: all rows)."""
        return self._info(descriptor)

    @in_a_sentence
    def do_action(self, context: Any, action: flight.Action) -> Iterator[bytes]:
        """`health`: how fresh the table is, `job`: what it is of; as JSON. `model`: its files."""
        form_of_json(Nothing, action.body.to_pybytes() or NO_OPTIONS)
        if action.type == "job":
            yield orjson.dumps(self._job())
        elif action.type == "model" and (model := self._lookup.job.model):
            from freshet.job.serving.feeds.sent_model import pieces_of

            _check_admin(context, "the model")
            yield from pieces_of(model)
        elif action.type == "health":
            yield orjson.dumps(self._health.figures())
        else:
            msg = f"action {action.type!r}: expected health, job or, where there is one, model"
            raise flight.FlightServerError(msg)

    @in_a_sentence
    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """List the actions of `do_action`."""
        return [
            ("health", "How fresh the table is, as JSON."),
            ("job", "What the table is of, as JSON."),
            ("model", "The model's files."),
        ]

    def get_schema(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        """Return the schema of all embeddings; if it is unknown, without columns and with `error` in its metadata.

        Of this call pyarrow sends the traceback of Flight's own errors, too.
        """
        try:
            return flight.SchemaResult(self._schema(self._lookup.of(None).served))
        except FreshetError as error:
            text = str(as_flight(error))
        except Exception as error:
            text = f"failed: {logged(error)}"
        return flight.SchemaResult(pa.schema([], metadata={"error": text}))

    @in_a_sentence
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Nothing can be written to a server."""
        msg = "embeddings are read, not written: DoPut is refused"
        raise BadRequestError(msg)

    def _job(self) -> dict[str, Any]:
        from freshet.job.serving.feeds.sent_model import digest_of

        job, table = self._lookup.of(None).job, None
        try:
            served = self._lookup.whole
            job, table = served.job, {"strings": served.table.strings, "width": served.table.width}
        except FreshetError:
            if job.tails is None or not job.tails.width:
                raise
        fields: dict[str, Any] = {"job_id": job.job_id, "model_digest": digest_of(job.model)}
        fields |= ({} if job.tails is None else job.tails.shared_fields()) | (table or {})
        fields |= {} if job.generation is None else {"generation": job.generation, "model_sha256": job.model_sha256}
        return fields | {"sources": list(job.sources), "consistency": job.consistency}

    def _info(self, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        command = descriptor.command or ALL
        check_size(command)
        endpoints = [flight.FlightEndpoint(command, self._locations)]
        kind = form_of_json(Ticket, command).kind if self._lookup.beside else None
        if kind is None and self._lookup.beside:  # whoever connects asks for the locations alone
            return flight.FlightInfo(pa.schema([]), descriptor, endpoints, -1, -1)
        served = self._lookup.of(kind).served
        return flight.FlightInfo(self._schema(served), descriptor, endpoints, served.table.live, -1)

    def _schema(self, served: Served) -> pa.Schema:
        return self._lookup.nothing(served).schema


def _check_generation(asked: Ticket, job: JobHere) -> None:
    """Raises: BadRequestError where a server would feed from another generation than the current one."""
    if asked.generation is None and job.generation is not None:
        raise BadRequestError(OF_SERVICE)
    if asked.generation != job.generation:
        has = "one job, without generations" if job.generation is None else f"generation {job.generation}"
        msg = f"generation {asked.generation} of the job {asked.job!r}: this server is of {has}"
        raise BadRequestError(msg)


def _held_until_sent(table: pa.Table, held: Held) -> Iterator[pa.RecordBatch]:
    with held:
        for batch in table.to_batches():
            yield from pieces_of(batch)


class _Right(flight.ServerMiddleware):  # type: ignore[misc, unused-ignore]
    """Right of a call, by its token."""

    def __init__(self, right: Access) -> None:
        super().__init__()
        self.right = right


class _Bearers(flight.ServerMiddlewareFactory):  # type: ignore[misc, unused-ignore]
    """Refuses calls that do not bear a token."""

    def __init__(self, tokens: ServerTokens) -> None:
        super().__init__()
        self._tokens = tokens

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> _Right:
        got = (headers.get("authorization") or [""])[0]
        right = self._tokens.right_of(str(got).encode())
        if right is None:
            msg = "expected the header `authorization: Bearer TOKEN`"
            raise flight.FlightUnauthenticatedError(msg)
        return _Right(right)


def _check_admin(context: Any, what: str) -> None:
    """Raises: FlightUnauthorizedError where the token of the call is for reads only."""
    found = context.get_middleware(_TOKEN)
    if found is not None and found.right is not Access.ADMIN:
        msg = f"forbidden: the token is for reads; {what} expects one of --admin-token or --token"
        raise flight.FlightUnauthorizedError(msg)
