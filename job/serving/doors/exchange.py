"""A Flight stream of lookups, answered one after the other, by batches of one schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from freshet.errors import FreshetError
from freshet.job.serving.bounds.budget import FREE_BYTES
from freshet.job.serving.bounds.calls import FAILED, LOOKUP, OK, REFUSED, begin
from freshet.job.serving.bounds.forms import Conditions, form_of_json
from freshet.job.serving.doors.one_sentence import as_flight
from freshet.job.serving.protocol.columns import ids_of_column, pieces_of, whole
from freshet.job.serving.protocol.errors import BadRequestError, NotReadyError, kind_of
from freshet.job.serving.protocol.wanted import NOTHING_SPECIAL, ROW, as_metadata
from freshet.job.serving.tables.lookup import FEW, Lookup
from freshet.job.serving.tables.requests import OPTIONS_BYTES_MAX, check_size
from freshet.job.serving.tables.served import Served
from freshet.state.served.ids import Ids, text_bytes

NO_OPTIONS = b"{}"
_NUMBERS = pa.schema({"id": pa.int64()})
_TEXT_BYTES_MAX = 16 << 20  # of the string ids of a lookup
_ROWS = "the rows of the answer"


class Exchange:
    """A stream of lookups, answered one after the other.

    Invariant: all batches have the schema that the stream began with; it ends where the answers have another one.
    """

    def __init__(self, lookup: Lookup, logits: bool, gone: Callable[[], bool]) -> None:
        """`gone`: whether the client has gone."""
        self._lookup, self._logits, self._gone = lookup, logits, gone
        self._before, self._wanted, self._taken = b"", NOTHING_SPECIAL, 0
        self._begin(served := lookup.served, lookup.nothing(served, logits))

    @property
    def schema(self) -> pa.Schema:
        """The schema of the answers."""
        return self._nothing.schema

    def _begin(self, served: Served, nothing: pa.RecordBatch) -> None:
        """Answer from this source; `nothing`: an answer without rows."""
        self._served, self._nothing = served, nothing
        self._bytes, more = served.row_shape(readout=self._logits).in_arrow, served.job.more
        self._more = b"".join(b',"%s":%s' % (key.encode(), orjson.dumps(value)) for key, value in more.items())
        self._epoch, self._metadata = -1, b""

    def _go_on(self, served: Served) -> None:
        """Answer from this source, which may have taken the place of the one before.

        Raises: FlightUnavailableError, which ends the stream, where its answers have another schema.
        """
        if served is self._served:
            return
        nothing = self._lookup.nothing(served, self._logits)
        if nothing.schema != self.schema:
            msg = "the table is another one, and its answers have another schema: open the stream again"
            raise as_flight(NotReadyError(msg))
        self._begin(served, nothing)

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
                wanted = form_of_json(Conditions, raw or NO_OPTIONS).wanted
                if wanted.generation is not None:
                    msg = "generation: a lookup stream is of the current one; give it in a ticket, as clients do"
                    raise BadRequestError(msg)
                self._wanted, self._before = wanted, raw
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
        if epoch != self._epoch or self._served.job.consistency == ROW:  # rows of no one epoch may change within it
            times = as_metadata(self._served.so_far(epoch)).items()
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
                    self._go_on(found[0])
                    return found[1:]
        self._go_on(served := self._lookup.served)
        ids = self._ids(asked)
        self._lookup.check(ids, served)
        self._lookup.wait(self._wanted, self._gone)
        self._go_on(served := self._lookup.served)
        self._take(len(ids) * self._bytes + text_bytes(ids), _ROWS)
        answer = self._lookup.get(ids, served=served)
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
        if text_bytes(ids) > _TEXT_BYTES_MAX:
            msg = f"id: expected at most {_TEXT_BYTES_MAX:,} bytes of text, got {text_bytes(ids):,}"
            raise BadRequestError(msg)
        return ids


def _unfit(expected: str, error: pa.ArrowInvalid) -> BadRequestError:
    return BadRequestError(f"id: expected {expected}: {str(error).partition(chr(10))[0][:200]}")
