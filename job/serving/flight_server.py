"""Arrow Flight: `DoExchange` streams of lookups, `DoGet` by ids, all, or nearest, `ListFlights`, `DoAction` health.

A request is JSON: {"ids": [...]} or {"all": true} or {"nearest": {...}}, and in any of them min_epoch, min_position,
timeout, logits. In a lookup stream each batch has the column `id`, its metadata the rest of the request; the answer's
metadata is {"epoch": E} (and "consistency": "row" where rows are of no one epoch), or {"error": ..., "kind": ...} with
an empty batch. No batch has more than 3 MiB, which clients of any language take: a larger answer comes in several, with
{"more": true} instead of the epoch before the last one.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.flight as flight

from gnn.errors import FreshetError
from job.serving.columns import ids_of_column, numbers, pieces_of, whole
from job.serving.health import Health
from job.serving.lookup import NOTHING_SPECIAL, ROW, Answer, BadRequestError, Lookup, NotReadyError, NotYetError, Wanted
from job.serving.requests import kind_of, nearest_of, request_of, wanted_of
from job.serving.served_job import TailsHere
from job.serving.tls import Certificate
from state.served.ids import Ids

ALL = b'{"all":true}'
_NUMBERS = pa.schema({"id": pa.int64()})


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

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Answer one request as a stream of batches, all at one epoch."""
        try:
            request = request_of(ticket.ticket)
            if request.get("changes") is True:
                return self._changes(context, request)
            if "tails" in request:
                return self._tails(context, request)
            table = self._table(request)
        except FreshetError as error:
            raise _as_flight(error) from error
        pieces = (piece for batch in table.to_batches() for piece in pieces_of(batch))
        return flight.GeneratorStream(table.schema, pieces)

    def shutdown(self) -> None:
        """End, and what other servers feed from as well."""
        self._ending.set()
        super().shutdown()

    def _tails(self, context: Any, request: dict[str, Any]) -> flight.FlightDataStream:
        from job.serving.feeds.tail_stream import SCHEMA, pieces_of_tails

        if self._here is None:
            msg = "this server has no tails"
            raise BadRequestError(msg)
        pieces = pieces_of_tails(self._here, request, self._lookup, self._until_end(context))
        return flight.GeneratorStream(SCHEMA, pieces)

    def _until_end(self, context: Any) -> Callable[[], bool]:
        return lambda: self._ending.is_set() or context.is_cancelled()

    def _changes(self, context: Any, request: dict[str, Any]) -> flight.FlightDataStream:
        from job.serving.feeds import change_stream

        if request.get("job", self._job_id) != self._job_id:
            msg = f"changes of the job {request['job']!r}: this server is of the job {self._job_id!r}"
            raise BadRequestError(msg)
        if self._lookup.consistency == ROW:
            msg = "this server feeds from a Kafka topic, whose rows are of no one epoch; feed from the topic as well"
            raise _as_flight(BadRequestError(msg))
        table = self._lookup.table

        def pieces() -> Iterator[tuple[pa.RecordBatch, bytes]]:
            for change, told in change_stream.changes(self._lookup, self._until_end(context)):
                yield from change_stream.batches_of(change, told)

        return flight.GeneratorStream(change_stream.schema_of(table.strings, table.width), pieces())

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Answer one lookup after the other, until the client ends the stream; its command may ask for logits."""
        try:
            logits = bool(request_of(descriptor.command or b"").get("logits"))
            nothing = self._nothing(logits)
        except FreshetError as error:
            raise _as_flight(error) from error
        writer.begin(nothing.schema)
        more = b"".join(b',"%s":"%s"' % (key.encode(), value.encode()) for key, value in self._lookup.more.items())
        before, wanted = b"", NOTHING_SPECIAL
        for chunk in _chunks(reader):
            try:
                metadata = chunk.app_metadata
                raw = metadata.to_pybytes() if metadata else b""
                if raw != before:  # most requests want the epoch that the one before them did
                    wanted = wanted_of(request_of(raw))
                    before = raw
                epoch, batch = self._looked_up(chunk.data, wanted, logits)
                *pieces, last = pieces_of(batch)
                for piece in pieces:
                    writer.write_with_metadata(piece, b'{"more":true}')
                writer.write_with_metadata(last, b'{"epoch":%d%s}' % (epoch, more))
            except FreshetError as error:
                writer.write_with_metadata(nothing, orjson.dumps({"error": str(error), "kind": kind_of(error)}))

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """The one flight that there is: all embeddings."""
        yield self._info(flight.FlightDescriptor.for_path("embeddings"))

    def get_flight_info(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        """Where to get what a descriptor's command asks for (nothing: all)."""
        return self._info(descriptor)

    def do_action(self, context: Any, action: flight.Action) -> Iterator[bytes]:
        """`health`: how fresh the table is, `job`: what it is of; as JSON. `model`: its files."""
        if action.type == "job":
            yield orjson.dumps(self._job())
        elif action.type == "model" and self._model:
            from job.serving.feeds.sent_model import pieces_of

            yield from pieces_of(self._model)
        elif action.type == "health":
            yield orjson.dumps(self._health.figures())
        else:
            msg = f"action {action.type!r}: expected health, job or, where there is one, model"
            raise flight.FlightServerError(msg)

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """What `do_action` knows."""
        return [
            ("health", "How fresh the table is, as JSON."),
            ("job", "What the table is of, as JSON."),
            ("model", "The model's files."),
        ]

    def _job(self) -> dict[str, Any]:
        from job.serving.feeds.sent_model import digest_of

        told: dict[str, Any] = {"job_id": self._job_id, "model_digest": digest_of(self._model)}
        told |= {} if self._here is None else self._here.told()
        try:
            table = self._lookup.table
            told |= {"strings": table.strings, "width": table.width}
        except FreshetError as error:
            if not told.get("width"):
                raise _as_flight(error) from error
        return told | {"sources": list(self._lookup.sources), "consistency": self._lookup.consistency}

    def _info(self, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        command = descriptor.command or ALL
        try:
            schema, live = self._nothing(False).schema, self._lookup.table.live
        except FreshetError as error:
            raise _as_flight(error) from error
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(command, self._locations)], live, -1)

    def _looked_up(self, asked: pa.RecordBatch | None, wanted: Wanted, logits: bool) -> tuple[int, pa.RecordBatch]:
        if asked is not None:
            try:
                asked = whole(asked)
            except pa.ArrowInvalid as error:
                expected = "a batch that fits its buffers"
                raise _unfit(expected, error) from error
        if asked is not None and not logits and asked.schema.equals(_NUMBERS):
            column = asked.column(0)
            found = None if column.null_count else self._lookup.few(column, wanted)
            if found is not None:
                return found
        answer = self._lookup.get(self._ids(asked), wanted)
        return answer.epoch, self._lookup.as_batch(answer, logits=logits)

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
            return ids_of_column(column)
        except pa.ArrowInvalid as error:
            expected = "integers of 64 bits"
            raise _unfit(expected, error) from error

    def _nothing(self, logits: bool) -> pa.RecordBatch:
        """No rows."""
        table = self._lookup.table
        rows = np.empty((0, table.width), np.float32)
        ids = self._lookup.ids_of([])
        return self._lookup.as_batch(Answer(0, ids, np.empty(0, np.int64), rows, 0), logits=logits)

    def _table(self, request: dict[str, Any]) -> pa.Table:
        wanted, logits = wanted_of(request), bool(request.get("logits"))
        if "nearest" in request:
            answer, scores = nearest_of(self._lookup, request["nearest"], wanted)
            return self._lookup.as_table(answer, logits=logits).append_column("score", numbers(scores))
        if request.get("all") is True:
            return self._lookup.as_table(self._lookup.all(wanted), logits=logits)
        if "ids" not in request:
            msg = 'a ticket: expected {"ids": [...]}, {"all": true} or {"nearest": {...}}'
            raise BadRequestError(msg)
        return self._lookup.as_table(self._lookup.get(self._lookup.ids_of(request["ids"]), wanted), logits=logits)


def _unfit(expected: str, error: pa.ArrowInvalid) -> BadRequestError:
    return BadRequestError(f"id: expected {expected}: {str(error).partition(chr(10))[0][:200]}")


def _as_flight(error: FreshetError) -> Exception:
    text = f"{kind_of(error)}: {error}"
    if isinstance(error, NotReadyError):
        return flight.FlightUnavailableError(text)
    if isinstance(error, NotYetError):
        return flight.FlightTimedOutError(text)
    return flight.FlightServerError(text)


def _chunks(reader: Any) -> Iterator[Any]:
    while True:
        try:
            yield reader.read_chunk()
        except StopIteration:
            return


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
