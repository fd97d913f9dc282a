"""The servers that a server feeds from, and the job as they tell of it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from job.errors import UsageError
from job.folder.run_file import write_json
from job.serving.served_job import ServedJob

CHANGES = b'{"changes":true}'  # the ticket of a stream of changes
_JOB = "source.json"  # beside the table: what it is of, for a start while no server answers
RETRY_S = 0.2
_ASK_S = 10.0
# A server whose machine has gone says nothing at all.
_ALIVE = [("grpc.keepalive_time_ms", 5000), ("grpc.keepalive_timeout_ms", 5000)]
FAILURES = (flight.FlightError, pa.ArrowException, StopIteration, OSError, ValueError)


@dataclass(frozen=True)
class FedJob(ServedJob):
    """The job as another server tells of it."""

    told_width: int = 0

    @property
    def width(self) -> int:
        """Numbers of an embedding."""
        return self.told_width

    @staticmethod
    def of(told: dict[str, Any], tables: Path) -> FedJob:
        """By what the action `job` answers."""
        sources = tuple(told["sources"])
        return FedJob(tables.parent, told["job_id"], 0, told["strings"], sources, "", told["width"])


class Sources:
    """The servers to feed from, in turns; a name may stand for several addresses."""

    def __init__(self, addresses: list[str], token: str | None) -> None:
        self._addresses, self._token, self._turn = addresses, token, 0

    def job(self, tables: Path, until: Callable[[], bool], timeout_s: float) -> FedJob:
        """What the first server that answers keeps; where none does in time, what was told before.

        Raises: UsageError.
        """
        deadline, file = time.monotonic() + timeout_s, tables / _JOB
        while True:
            told, reason = self._asked()
            if told is not None:
                tables.mkdir(parents=True, exist_ok=True)
                write_json(file, told)
            if file.exists():
                return FedJob.of(orjson.loads(file.read_bytes()), tables)
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

    def _asked(self) -> tuple[dict[str, Any] | None, str]:
        reason = ""
        for _ in self._addresses:
            try:
                client, options = self._next(_ASK_S)
                with client:
                    [result] = client.do_action(flight.Action("job", b""), options)
                    return orjson.loads(result.body.to_pybytes()), ""
            except FAILURES as error:
                reason = str(error).partition("\n")[0][:200]
        return None, reason

    def _next(self, timeout_s: float | None = None) -> tuple[Any, Any]:
        self._turn += 1
        host, _, port = self._addresses[self._turn % len(self._addresses)].rpartition(":")
        found = sorted(
            {info[4][0] for info in socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)}
        )
        at = str(found[self._turn // len(self._addresses) % len(found)])
        location = f"grpc://{f'[{at}]' if ':' in at else at}:{port}"
        headers = [(b"authorization", f"Bearer {self._token}".encode())] if self._token else []
        options = flight.FlightCallOptions(headers=headers, timeout=timeout_s)
        return flight.connect(location, generic_options=_ALIVE), options
