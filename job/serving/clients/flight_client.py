"""The client's way over Arrow Flight: a lookup stream that stays open, and requests of their own for all else."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.flight as flight

from freshet.job.serving.clients.asked import ERROR_KINDS, as_batch, error_of
from freshet.job.serving.clients.changed import Piece, tables_of
from freshet.job.serving.clients.patience import Patient, late
from freshet.job.serving.protocol.columns import ids_of_column, rows_of, values_of, whole
from freshet.job.serving.protocol.errors import BadRequestError, NotReadyError
from freshet.job.serving.protocol.tls import Address
from freshet.job.serving.protocol.wanted import ANSWERED, EPOCH, NOTHING_SPECIAL, Wanted
from freshet.state.served.ids import Ids, Texts, plain_ids

# A server that was started again is found at once: gRPC would try after 1, 1.6, 2.6, ... seconds.
_RECONNECT_MS = [(f"grpc.{kind}_reconnect_backoff_ms", 100) for kind in ("initial", "min", "max")]
ANSWER_S = 1.0  # a lookup that need not wait has at least so long
_ALL_ROWS_S = 60.0  # beyond what the server may wait
_SPARE_S = 10.0  # beyond what the server may wait, before the server counts as away
_ALL = flight.FlightDescriptor.for_path("embeddings")
_TURNS = itertools.count(random.randrange(1 << 16))  # clients of this process begin with one server process each


class _Stream(Patient):
    """An open lookup stream."""

    def __init__(self, client: Any, options: Any, ids: pa.Schema, asked: dict[str, Any]) -> None:
        command = orjson.dumps(asked)
        self.writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(command), options)
        super().__init__(reader)
        with self.within(_SPARE_S):
            self.writer.begin(ids)

    def ask(self, batch: pa.RecordBatch, options: bytes, timeout_s: float) -> tuple[dict[str, Any], pa.RecordBatch]:
        """Send a batch of ids, and wait for the answer.

        Raises: TimeoutError when there is none in time.
        """
        with self.within(max(timeout_s, ANSWER_S)):
            self.writer.write_with_metadata(batch, options)
            pieces = [self.reader.read_chunk()]
            while (metadata := orjson.loads(pieces[-1].app_metadata.to_pybytes())).get("more"):
                pieces.append(self.reader.read_chunk())
        batches = [whole(piece.data) for piece in pieces]
        if len(batches) > 1:
            batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
        return metadata, batches[0]

    def close(self) -> None:
        """End it, also where the server does not take notice."""
        with suppress(Exception), self.within(ANSWER_S):
            self.writer.close()


class FlightTransport:
    """Transport to one server; after an error the next call connects again."""

    def __init__(
        self, address: Address, token: str | None, roots: bytes | None = None, kind: str | None = None
    ) -> None:
        """`kind`: of the vertices whose rows are read."""
        self._of_kind = {} if kind is None else {"kind": kind}
        self._address, self._roots, self._location = address, roots, address.location()
        self._headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        self._lock = threading.Lock()
        self._client: Any = None
        self._ports: list[int] = []
        self._turn: int | None = None
        self._newest = 0
        self.consistency = EPOCH
        self._streams: dict[tuple[bool, bool], _Stream] = {}

    def table(self, ids: Ids | None, wanted: Wanted, logits: bool) -> tuple[int, pa.Table]:
        """Ask for rows as a table."""
        if ids is None:
            return self._get({"all": True, "logits": logits} | self._of_kind, wanted)
        answered, batch = self._lookup(ids, wanted, logits)
        metadata = {name: str(answered[name]) for name in ANSWERED if answered.get(name) is not None}
        return int(answered["epoch"]), pa.Table.from_batches([batch]).replace_schema_metadata(metadata)

    def rows(self, ids: Ids, wanted: Wanted) -> tuple[int, Ids, np.ndarray, np.ndarray]:
        """Ask for rows as arrays."""
        head, batch = self._lookup(ids, wanted, False)
        return int(head["epoch"]), ids_of_column(batch.column(0)), values_of(batch.column(1)), rows_of(batch.column(2))

    def quick(self, ids: Ids, min_epoch: int) -> tuple[int, Ids, np.ndarray, np.ndarray] | None:
        """There is no way but by a request."""
        return None

    def ask(self, name: str, asked: dict[str, Any], wanted: Wanted, logits: bool = False) -> tuple[int, pa.Table]:
        """Send a request of this name."""
        return self._get({name: asked} | ({"logits": True} if logits else {}), wanted)

    def changes(self, since_epoch: int) -> Iterator[pa.Table | None]:
        """Open a stream of changes."""
        ticket = flight.Ticket(orjson.dumps({"changes": True, "since_epoch": since_epoch} | self._of_kind))
        reader = self._guarded(lambda client: client.do_get(ticket, self._options(None)), _SPARE_S)
        stream = Patient(reader)

        def read(_client: Any) -> Piece:
            with stream.within(_SPARE_S):
                chunk = reader.read_chunk()
            return whole(chunk.data), chunk.app_metadata.to_pybytes()

        def pieces() -> Iterator[Piece]:
            while True:
                yield self._guarded(read, _SPARE_S)

        try:
            yield from tables_of(pieces())
        finally:
            with suppress(Exception):
                reader.cancel()

    def health(self) -> dict[str, Any]:
        """Ask how fresh the table is."""

        def ask(client: Any) -> dict[str, Any]:
            [result] = client.do_action(flight.Action("health", b""), self._options(_SPARE_S))
            found: dict[str, Any] = orjson.loads(result.body.to_pybytes())
            return found

        return self._guarded(ask, _SPARE_S)

    def close(self) -> None:
        """End the streams."""
        with self._lock:
            self._drop()

    def _get(self, request: dict[str, Any], wanted: Wanted) -> tuple[int, pa.Table]:
        ticket = flight.Ticket(orjson.dumps(request | _fields_of(wanted), option=orjson.OPT_SERIALIZE_NUMPY))
        limit_s = wanted.timeout_s + (_ALL_ROWS_S if "all" in request else _SPARE_S)

        def ask(client: Any) -> pa.Table:
            return whole(client.do_get(ticket, self._options(limit_s)).read_all())

        table = self._guarded(ask, wanted.timeout_s)
        epoch = int(table.schema.metadata[b"epoch"])
        self.consistency = table.schema.metadata.get(b"consistency", EPOCH.encode()).decode()
        self._newest = max(self._newest, epoch)
        return epoch, table

    def _lookup(self, ids: Ids, wanted: Wanted, logits: bool) -> tuple[dict[str, Any], pa.RecordBatch]:
        """Return the metadata of the answer, and its rows."""
        # It may wait, and nobody else should wait for it; and streams are of the current generation.
        if wanted.min_position or wanted.min_epoch > self._newest or wanted.generation is not None:
            _, table = self._get({"ids": plain_ids(ids), "logits": logits} | self._of_kind, wanted)
            columns = [column.combine_chunks() for column in table.columns]
            metadata = {name.decode(): value.decode() for name, value in table.schema.metadata.items()}
            return metadata, pa.RecordBatch.from_arrays(columns, table.column_names)
        batch, metadata = as_batch(ids), _fields_of(wanted)
        options = orjson.dumps(metadata) if metadata else b""
        key = isinstance(ids, Texts), logits

        def ask(client: Any) -> tuple[dict[str, Any], pa.RecordBatch]:
            stream = self._streams.get(key)
            if stream is None:
                asked = {"logits": logits} | self._of_kind
                stream = self._streams[key] = _Stream(client, self._options(None), batch.schema, asked)
            try:
                return stream.ask(batch, options, wanted.timeout_s)
            except BaseException:  # by Ctrl-C, too: the rest of this answer would be taken for that of the next lookup
                del self._streams[key]
                stream.close()
                raise

        with self._lock:
            found, rows = self._guarded(ask, wanted.timeout_s, locked=True)
        if "error" in found:
            raise error_of(found["kind"], found["error"])
        self.consistency = found.get("consistency", EPOCH)
        self._newest = max(self._newest, int(found["epoch"]))
        return found, rows

    def _guarded(self, ask: Any, timeout_s: float, locked: bool = False) -> Any:
        """Call the server; an error other than its own answers means that it is away. `timeout_s` bounds connecting."""
        try:
            if self._client is None:
                self._client = self._connected(max(timeout_s, ANSWER_S))
            return ask(self._client)
        except flight.FlightUnauthenticatedError as error:
            raise BadRequestError(_first_line(error)) from error
        except (flight.FlightError, pa.ArrowException, StopIteration, OSError, AttributeError) as error:
            text = _first_line(error)
            kind, _, rest = text.partition(": ")
            if kind in ERROR_KINDS:
                raise error_of(kind, rest) from error
            if locked:
                self._drop()
            else:
                with self._lock:
                    self._drop()
            msg = f"{self._location}: no server answers there ({text[:200]})"
            raise NotReadyError(msg) from error

    def _connected(self, timeout_s: float) -> Any:
        """A client of one of the server's processes, each in its turn; after a failure of another one."""
        first = self._address.connect(self._roots, _RECONNECT_MS)
        try:
            info = first.get_flight_info(_ALL, self._options(timeout_s))
            addresses = [Address.parse(one.uri.decode()) for each in info.endpoints for one in each.locations]
            self._ports = [one.port for one in addresses if one is not None]
        except flight.FlightUnauthenticatedError:
            raise
        except flight.FlightTimedOutError as error:
            if not self._ports:
                raise late(timeout_s) from error
        except (flight.FlightError, pa.ArrowException):  # it knows nothing yet, or is away: others may not be
            pass
        if len(self._ports) < 2:
            return first
        turn = self._turn = next(_TURNS) if self._turn is None else self._turn + 1
        port = self._ports[turn % len(self._ports)]
        if port == self._address.port:
            return first
        first.close()
        # by the name that we know, whatever the server calls itself
        return replace(self._address, port=port).connect(self._roots, _RECONNECT_MS)

    def _options(self, timeout_s: float | None) -> Any:
        return flight.FlightCallOptions(headers=self._headers, timeout=timeout_s)

    def _drop(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams = {}
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.close()


def _fields_of(wanted: Wanted) -> dict[str, Any]:
    if wanted == NOTHING_SPECIAL:
        return {}
    fields: dict[str, Any] = {} if wanted.generation is None else {"generation": wanted.generation}
    if wanted.min_epoch <= 0 and not wanted.min_position:
        return fields
    fields |= {"min_epoch": wanted.min_epoch, "timeout": min(wanted.timeout_s, 60.0)}
    return fields | ({"min_position": dict(wanted.min_position)} if wanted.min_position else {})


def _first_line(error: BaseException) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return text.partition(". Detail:")[0].partition(" gRPC client debug")[0]
