"""The servers that a server feeds from, and the job as they tell of it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from gnn.model import ModelError
from job.console import say
from job.errors import UsageError
from job.folder.run_file import write_json
from job.serving.feeds.sent_model import folder_of, take
from job.serving.lookup import EPOCH, ROW
from job.serving.served_job import ServedJob
from job.serving.tls import Address

if TYPE_CHECKING:
    from gnn.plan import Plan

CHANGES = b'{"changes":true}'  # the ticket of a stream of changes
_JOB = "source.json"  # beside the table: what it is of, for a start while no server answers
RETRY_S = 0.2
_ASK_S = 10.0
_SEND_S = 600.0  # for a large model
# A server whose machine has gone says nothing at all.
_ALIVE = [("grpc.keepalive_time_ms", 5000), ("grpc.keepalive_timeout_ms", 5000)]
FAILURES = (flight.FlightError, pa.ArrowException, StopIteration, OSError, ValueError)


@dataclass(frozen=True)
class FedJob(ServedJob):
    """The job as another server tells of it."""

    told_width: int = 0
    consistency: str = EPOCH
    model_tag: str = ""  # the first digits of its SHA-256, where a topic tells them

    @property
    def width(self) -> int:
        """Numbers of an embedding."""
        return self.told_width

    @staticmethod
    def of(told: dict[str, Any], tables: Path) -> FedJob:
        """By what the action `job` answers."""
        sources = tuple(told["sources"])
        consistency = told.get("consistency", EPOCH)
        more = told["width"], consistency, told.get("model", "")
        model = folder_of(tables, told.get("model_digest", ""))
        kept = str(model) if told.get("model_digest") and model.is_dir() else ""
        return FedJob(tables.parent, told["job_id"], 0, told["strings"], sources, kept, *more)

    @staticmethod
    def read(tables: Path) -> FedJob | None:
        """By what `write` left beside a table; None where there is nothing."""
        try:
            return FedJob.of(orjson.loads((tables / _JOB).read_bytes()), tables)
        except (FileNotFoundError, NotADirectoryError):
            return None

    @staticmethod
    def write(told: dict[str, Any], tables: Path) -> FedJob:
        """Note what is told, for a start while nobody tells anything, and for readers of the table."""
        tables.mkdir(parents=True, exist_ok=True)
        write_json(tables / _JOB, told)
        return FedJob.of(told, tables)

    @property
    def plan_of(self) -> Callable[[], Plan] | None:
        """What gives the model; None where nobody has sent it."""
        return (lambda: self.plan) if self.model else None


class Sources:
    """The servers to feed from, in turns; a name may stand for several addresses."""

    def __init__(self, addresses: list[str], token: str | None, roots: bytes | None = None) -> None:
        """`addresses`: HOST:PORT, or grpc+tls://HOST:PORT; `roots`: certificates to trust, None: the system's."""
        self._addresses, self._token, self._roots, self._turn = addresses, token, roots, 0

    def job(self, tables: Path, until: Callable[[], bool], timeout_s: float) -> FedJob:
        """What the first server that answers keeps; where none does in time, what was told before.

        Raises: UsageError.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            told, reason = self._asked(tables)
            found = FedJob.read(tables) if told is None else FedJob.write(told, tables)
            if found is not None:
                return found
            if until() or time.monotonic() > deadline:
                msg = f"--from {','.join(self._addresses)}: no server answers ({reason})"
                raise UsageError(msg)
            time.sleep(RETRY_S)

    def changes(self) -> Iterator[tuple[dict[str, Any], pa.RecordBatch]]:
        """Pieces of changes from one server, until it fails: then the next call asks the next one."""
        client, options = self._next()
        try:
            for chunk in client.do_get(flight.Ticket(CHANGES), options):
                yield orjson.loads(chunk.app_metadata.to_pybytes()), chunk.data
        finally:
            client.close()

    def _asked(self, tables: Path) -> tuple[dict[str, Any] | None, str]:
        reason = ""
        for _ in self._addresses:
            try:
                client, options = self._next(_ASK_S)
                with client:
                    [result] = client.do_action(flight.Action("job", b""), options)
                    told = orjson.loads(result.body.to_pybytes())
                    if told.get("consistency") == ROW:
                        reason = "it feeds from a Kafka topic, whose rows are of no one epoch: give --kafka instead"
                        continue
                    self._take_model(client, told.get("model_digest", ""), tables)
                    return told, ""
            except FAILURES as error:
                reason = str(error).partition("\n")[0][:200]
        return None, reason

    def _take_model(self, client: Any, digest: str, tables: Path) -> None:
        """Have the model that the source gives logits by, where it has one; without it all else goes on."""
        if not digest or folder_of(tables, digest).is_dir():
            return
        options = flight.FlightCallOptions(headers=self._headers, timeout=_SEND_S)
        try:
            sent = client.do_action(flight.Action("model", b""), options)
            take((one.body.to_pybytes() for one in sent), tables, digest)
        except ModelError as error:
            say(f"--from: no logits: {error}")

    @property
    def _headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"authorization", f"Bearer {self._token}".encode())] if self._token else []

    def _next(self, timeout_s: float | None = None) -> tuple[Any, Any]:
        self._turn += 1
        address = Address.parse(self._addresses[self._turn % len(self._addresses)])
        assert address is not None
        told = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        found = sorted({str(info[4][0]) for info in told})
        at = found[self._turn // len(self._addresses) % len(found)]
        options = flight.FlightCallOptions(headers=self._headers, timeout=timeout_s)
        return address.connect(self._roots, _ALIVE, at), options
