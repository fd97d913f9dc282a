"""Arrow Flight: `DoExchange` streams of lookups, `DoGet` by ids, all, or nearest, `ListFlights`, `DoAction` health.

A request is JSON, a Ticket: {"ids": [...]} or {"all": true} or {"nearest": {...}}, and in any of them min_epoch,
min_position, timeout, logits. In a lookup stream each batch has the column `id`, its metadata the Conditions; the
answer's metadata is {"epoch": E, "as_of_ms": T, "event_ts": T} (times where they are known; and "consistency": "row"
where rows are of no one epoch), or {"error": ..., "kind": ...} with
an empty batch. No batch has more than 3 MiB, which clients of any language take: a larger answer comes in several, with
{"more": true} instead of the epoch before the last one.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.flight as flight

from freshet.errors import FreshetError
from freshet.job.serving.bounds.budget import FREE_BYTES, Held, parsed
from freshet.job.serving.bounds.calls import FAILED, GET, LOOKUP, OK, REFUSED, begin
from freshet.job.serving.bounds.forms import Conditions, Nothing, Stream, form_of_json
from freshet.job.serving.doors.one_sentence import as_flight, in_a_sentence, logged, pieces_in_a_sentence
from freshet.job.serving.protocol.columns import ids_of_column, pieces_of, whole
from freshet.job.serving.protocol.errors import BadRequestError, kind_of
from freshet.job.serving.protocol.tls import Certificate
from freshet.job.serving.protocol.wanted import NOTHING_SPECIAL, ROW, as_metadata
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import FEW, Lookup
from freshet.job.serving.tables.requests import OPTIONS_BYTES_MAX, Ticket, check_size
from freshet.job.serving.tables.served import Answer
from freshet.job.serving.tables.served_job import TailsHere
from freshet.state.served.ids import Ids, text_bytes

ALL, NO_OPTIONS = b'{"all":true}', b"{}"
Streamed: TypeAlias = tuple[pa.Schema, Iterator[Any]]  # what an answer is of, and its batches
_NUMBERS = pa.schema({"id": pa.int64()})
TEXT_BYTES_MAX = 16 << 20  # of the string ids of a lookup
_ROWS = "the rows of the answer"


class EmbeddingFlights(flight.FlightServerBase):  # type: ignore[misc, unused-ignore]
    """The Flight server; its threads are gRPC's."""

    def __init__(
        self,
        location: str,
        lookup: Lookup,
        health: Health,
        token: str | None = None,
        job_id: str = "",
        certificate: Certificate | None = None,
        model: str = "",
        locations: Sequence[str] = (),
        here: TailsHere | None = None,
    ) -> None:
        """Listens on return.

        `token`: what every call must bear; `job_id`: what other servers feed from, `model` the folder of what they give
        logits by, and `here` the tails that they may have; `certificate`: for grpc+tls; `locations`: where all
        processes of the server answer, of several.
        """
        self._ending, self._here = threading.Event(), here
        self._job_id, self._model, self._locations = job_id, model, list(locations)
        middleware = {"token": _Tokens(token)} if token else {}
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

        if self._here is None:
            msg = "this server has no tails"
            raise BadRequestError(msg)
        pieces = pieces_of_tails(self._here, asked, self._lookup, self._until_end(context))
        return SCHEMA, pieces

    def _until_end(self, context: Any) -> Callable[[], bool]:
        return lambda: self._ending.is_set() or context.is_cancelled()

    def _changes(self, context: Any, asked: Ticket) -> Streamed:
        from freshet.job.serving.feeds import change_stream

        if asked.job not in (None, self._job_id):
            msg = f"changes of the job {asked.job!r}: this server is of the job {self._job_id!r}"
            raise BadRequestError(msg)
        if self._lookup.job.consistency == ROW:
            msg = "this server feeds from a Kafka topic, whose rows are of no one epoch; feed from the topic as well"
            raise BadRequestError(msg)
        table = self._lookup.table

        def pieces() -> Iterator[tuple[pa.RecordBatch, bytes]]:
            for change, end in change_stream.changes(self._lookup, self._until_end(context)):
                yield from change_stream.batches_of(change, end)

        return change_stream.schema_of(table.strings, table.width), pieces()

    def _stream(self, context: Any, asked: Ticket) -> Streamed:
        if asked.changes:
            return self._changes(context, asked)
        if asked.tails is not None:
            return self._tails(context, asked)
        wanted, logits = asked.wanted, asked.logits
        lookup, gone = self._lookup, context.is_cancelled
        if asked.all:
            lookup.wait(wanted, gone)
            return self._all(logits)
        if asked.computed is not None:
            computed, form = asked.computed
            count, row = computed.items(form), lookup.served.row_shape(readout=logits)
            held = lookup.budget.hold(count * computed.bytes_of(row)[0], f"the answer of {count:,} rows")
            table = computed.run(lookup, form.model_dump(exclude_none=True), wanted, gone).as_table(logits)
            return table.schema, _held_until_sent(table, held)
        ids = lookup.ids_of(asked.ids)
        lookup.wait(wanted, gone)
        held = self._held(len(ids), ids, logits)
        table = lookup.as_table(lookup.get(ids), logits=logits)
        return table.schema, _held_until_sent(table, held)

    def _held(self, count: int, ids: Ids | None, logits: bool) -> Held:
        """Reserve room for an answer of `count` rows."""
        size = count * self._lookup.served.row_shape(readout=logits).in_arrow + (0 if ids is None else text_bytes(ids))
        return self._lookup.budget.hold(size, f"the answer of {count:,} rows")

    def _all(self, logits: bool) -> Streamed:
        from freshet.job.serving.bounds.whole_table import WholeTable

        lookup = self._lookup
        whole, served = WholeTable(lookup.whole_table, lookup.budget), lookup.served

        def pieces() -> Iterator[pa.RecordBatch]:
            for part in whole:
                answer = Answer(whole.epoch, part.ids, part.own, part.rows, len(part.own), served)
                if len(part.own):
                    yield from pieces_of(lookup.as_batch(answer, logits=logits))

        schema = self._nothing(logits).schema.with_metadata(lookup.metadata(whole.epoch))
        return schema, pieces()

    @in_a_sentence
    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Answer one lookup after the other, until the client ends the stream; its command may ask for logits."""
        command = descriptor.command or NO_OPTIONS
        check_size(command, OPTIONS_BYTES_MAX)
        logits = form_of_json(Stream, command).logits
        nothing = self._nothing(logits)
        writer.begin(nothing.schema)
        exchange = _Exchange(self._lookup, logits, nothing, context.is_cancelled)
        while exchange.step(reader, writer):  # which keeps nothing of one request until the next one comes
            pass

    @in_a_sentence
    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """The one flight that there is: all embeddings."""
        yield self._info(flight.FlightDescriptor.for_path("embeddings"))

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
        elif action.type == "model" and self._model:
            from freshet.job.serving.feeds.sent_model import pieces_of

            yield from pieces_of(self._model)
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
            return flight.SchemaResult(self._nothing(False).schema)
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

        fields: dict[str, Any] = {"job_id": self._job_id, "model_digest": digest_of(self._model)}
        fields |= {} if self._here is None else self._here.shared_fields()
        try:
            table = self._lookup.table
            fields |= {"strings": table.strings, "width": table.width}
        except FreshetError:
            if not fields.get("width"):
                raise
        return fields | {"sources": list(self._lookup.job.sources), "consistency": self._lookup.job.consistency}

    def _info(self, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        command = descriptor.command or ALL
        check_size(command)
        schema, live = self._nothing(False).schema, self._lookup.table.live
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(command, self._locations)], live, -1)

    def _nothing(self, logits: bool) -> pa.RecordBatch:
        """No rows."""
        served = self._lookup.served
        rows = np.empty((0, served.table.width), np.float32)
        none = Answer(0, self._lookup.ids_of([]), np.empty(0, np.int64), rows, 0, served)
        return self._lookup.as_batch(none, logits=logits)


class _Exchange:
    """A stream of lookups, answered one after the other."""

    def __init__(self, lookup: Lookup, logits: bool, nothing: pa.RecordBatch, gone: Callable[[], bool]) -> None:
        """`nothing`: an answer without rows; `gone`: whether the client has gone."""
        self._lookup, self._logits, self._nothing, self._gone = lookup, logits, nothing, gone
        self._bytes = lookup.served.row_shape(readout=logits).in_arrow
        self._more = b"".join(b',"%s":"%s"' % (key.encode(), value.encode()) for key, value in lookup.more.items())
        self._before, self._wanted, self._taken = b"", NOTHING_SPECIAL, 0
        self._epoch, self._metadata = -1, b""

    def step(self, reader: Any, writer: Any) -> bool:
        """Answer the next lookup; whether there was one.

        Raises: ExhaustedError for one that is too large to be unpacked.
        """
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return False
        except flight.FlightError:
            raise
        except MemoryError:
            self._lookup.budget.refuse("a batch: there is no memory to unpack it", again=False)
        except pa.ArrowException as error:
            expected = "batches of Arrow's format"
            raise _unfit(expected, error) from error
        if chunk.data is not None:  # unpacked already: pyarrow has no way to ask before; the stream ends, and frees it
            self._lookup.budget.check(chunk.data.get_total_buffer_size(), "a batch")
        end, begun = FAILED, begin()
        try:
            metadata = chunk.app_metadata
            raw = metadata.to_pybytes() if metadata else b""
            if raw != self._before:  # most requests want the epoch that the one before them did
                check_size(raw, OPTIONS_BYTES_MAX)
                self._wanted = form_of_json(Conditions, raw or NO_OPTIONS).wanted
                self._before = raw
            epoch, batch = self._looked_up(chunk.data)
            *pieces, last = pieces_of(batch)
            for piece in pieces:
                writer.write_with_metadata(piece, b'{"more":true}')
            writer.write_with_metadata(last, self._metadata_of(epoch))
            end = OK
        except FreshetError as error:
            end = REFUSED
            writer.write_with_metadata(self._nothing, orjson.dumps({"error": str(error), "kind": kind_of(error)}))
        finally:
            self._lookup.budget.calls.count(LOOKUP, end, begun)
            if self._taken:
                self._lookup.budget.give_back(self._taken)
                self._taken = 0
        return True

    def _metadata_of(self, epoch: int) -> bytes:
        """Return the metadata of an answer; most are of the epoch of the one before."""
        if epoch != self._epoch or self._more:  # rows of no one epoch may change within it
            times = as_metadata(self._lookup.so_far(epoch)).items()
            found = b"".join(b',"%s":%s' % (name.encode(), value.encode()) for name, value in times)
            self._epoch, self._metadata = epoch, b'{"epoch":%d%s%s}' % (epoch, found, self._more)
        return self._metadata

    def _looked_up(self, asked: pa.RecordBatch | None) -> tuple[int, pa.RecordBatch]:
        if asked is not None:
            self._take(asked.get_total_buffer_size(), "a batch")
            try:
                asked = whole(asked)
            except pa.ArrowInvalid as error:
                expected = "a batch that fits its buffers"
                raise _unfit(expected, error) from error
            if not self._logits and asked.schema.equals(_NUMBERS) and asked.num_rows <= FEW:
                column = asked.column(0)
                self._take(asked.num_rows * self._bytes, _ROWS)
                found = None if column.null_count else self._lookup.few(column, self._wanted)
                if found is not None:
                    return found
        ids = self._ids(asked)
        self._lookup.check(ids)
        self._lookup.wait(self._wanted, self._gone)
        self._take(len(ids) * self._bytes + text_bytes(ids), _ROWS)
        answer = self._lookup.get(ids)
        return answer.epoch, self._lookup.as_batch(answer, logits=self._logits)

    def _take(self, size: int, what: str) -> None:
        if size > FREE_BYTES:  # an object that gives it back would cost more than a lookup has to spare
            self._lookup.budget.take(size, what)
            self._taken += size

    def _ids(self, batch: pa.RecordBatch | None) -> Ids:
        if batch is None or batch.schema.names != ["id"]:
            msg = "a lookup: expected batches of one column, id"
            raise BadRequestError(msg)
        column = batch.column(0)
        if not len(column):
            return self._lookup.ids_of([])
        if column.null_count or not (pa.types.is_integer(column.type) or pa.types.is_string(column.type)):
            msg = f"id: expected int64 or strings without nulls, got {column.type} with {column.null_count} nulls"
            raise BadRequestError(msg)
        try:
            ids = ids_of_column(column)
        except pa.ArrowInvalid as error:
            expected = "integers of 64 bits"
            raise _unfit(expected, error) from error
        if text_bytes(ids) > TEXT_BYTES_MAX:
            msg = f"id: expected at most {TEXT_BYTES_MAX:,} bytes of text, got {text_bytes(ids):,}"
            raise BadRequestError(msg)
        return ids


def _held_until_sent(table: pa.Table, held: Held) -> Iterator[pa.RecordBatch]:
    with held:
        for batch in table.to_batches():
            yield from pieces_of(batch)


def _unfit(expected: str, error: pa.ArrowInvalid) -> BadRequestError:
    return BadRequestError(f"id: expected {expected}: {str(error).partition(chr(10))[0][:200]}")


class _Tokens(flight.ServerMiddlewareFactory):  # type: ignore[misc, unused-ignore]
    """Refuses calls that do not bear the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        got = (headers.get("authorization") or [""])[0]
        if not hmac.compare_digest(str(got).encode(), self._expected):
            msg = "expected the header `authorization: Bearer TOKEN`"
            raise flight.FlightUnauthenticatedError(msg)
