"""The servers that a server feeds from, and their description of the job."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.gnn.model import ModelError
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.serving.feeds.checked import job_fields, parsed, whole_batches
from freshet.job.serving.feeds.sent_model import folder_of, take
from freshet.job.serving.protocol.tls import Address
from freshet.job.serving.protocol.token_values import TokenError, token_to_send
from freshet.job.serving.protocol.wanted import ROW
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.output_folders import TAIL, LogFolders, kind_of_log
from freshet.operators.sink.tail.layout import VERSION, TailNote

_JOB = "source.json"  # beside the table: what it is of, for a start while no server answers
RETRY_S = 0.2
_ASK_S = 10.0
_SEND_S = 600.0  # for a large model
# A server whose machine has gone says nothing at all.
_ALIVE = [("grpc.keepalive_time_ms", 5000), ("grpc.keepalive_timeout_ms", 5000)]
# The last two: an answer has a form that nothing here can read.
FAILURES = (flight.FlightError, pa.ArrowException, StopIteration, OSError, ValueError, LookupError, TypeError)


def reason_of(error: BaseException) -> str:
    """Return the reason why a server did not answer, without gRPC's own details."""
    said = str(error).partition("\n")[0].partition(". gRPC client debug")[0]
    return (said.rpartition(": ")[2] if "failed to connect" in said else said)[:200]


@dataclass(frozen=True)
class FedJob(ServedJob):
    """The job as another server describes it."""

    noted_width: int = 0
    model_tag: str = ""  # the first digits of its SHA-256, where a topic has them

    @property
    def width(self) -> int:
        """Numbers of an embedding."""
        return self.noted_width

    @property
    def tails(self) -> Path:
        """The folder of its tails on this machine."""
        return Path(self.tables_folder) / TAIL

    @property
    def quick_width(self) -> int:
        """Same as `width`."""
        return self.noted_width

    @staticmethod
    def of(sent: object, tables: Path) -> FedJob:
        """Make it from the answer to the action `job`, or from a note beside tails.

        Raises: ValueError naming the field that does not fit.
        """
        fields = job_fields(sent)
        model = fields["model_folder"] or str(folder_of(tables, fields["model_digest"] or "none"))
        kept = model if Path(model).is_dir() else ""
        tails = str(tables), fields["begins_empty"]
        more = fields["width"], fields["model"]
        job = fields["job_id"], fields["parts"], fields["strings"], tuple(fields["sources"])
        out, kind = LogFolders.of_tables(tables).out, kind_of_log(fields["job_id"], fields["kind_name"])
        lacks = str(sent.get("lacks", "")) if isinstance(sent, dict) else ""  # of our own note on a topic
        named: dict[str, Any] = {"kind_name": kind or fields["kind_name"], "lacks": lacks}
        named |= {name: fields[name] for name in ("consistency", "generation", "model_sha256")}
        return FedJob(out, *job, kept, *tails, kind, *more, **named)

    @staticmethod
    def recorded(tables: Path) -> FedJob | None:
        """Read the record that `write` left beside a table; None if there is none, or a power loss has damaged it."""
        fields = FedJob.note(tables)
        try:
            return FedJob.of(fields, tables) if fields else None
        except ValueError:
            return None

    @staticmethod
    def note(tables: Path) -> dict[str, Any]:
        """Return the fields of that record, empty where there is none or it is damaged."""
        try:
            found = read_json(tables / _JOB, dict[str, Any], "it is written again from what the next server sends")
        except DamagedFileError:
            return {}
        return found or {}

    @staticmethod
    def write(fields: dict[str, Any], tables: Path) -> FedJob:
        """Record the description of the job, for a start while no server answers, and for readers of the table."""
        job = FedJob.of(fields, tables)
        tables.mkdir(parents=True, exist_ok=True)
        write_json(tables / _JOB, fields)
        return job


@dataclass(frozen=True, slots=True)
class FedServer:
    """One server, at one of the addresses that its name stands for."""

    address: Address
    at: str

    def __str__(self) -> str:
        return f"{self.address.host}:{self.address.port}"


class FedServers:
    """The servers to feed from, in turns; a name may stand for several addresses."""

    def __init__(self, addresses: list[str], token: str | None, roots: bytes | None = None) -> None:
        """`addresses`: HOST:PORT, or grpc+tls://HOST:PORT; `roots`: certificates to trust, None: the system's.

        `token` may be the path of a file, whose first one is sent, as it is then.
        """
        self._sent: str | None = None
        self._addresses, self._token, self._roots, self._turn = addresses, token, roots, 0

    def job(self, tables: Path, until: Callable[[], bool], timeout_s: float) -> FedJob:
        """Return the job of the tails in this folder, or of the first server that answers.

        If none answers in time, return the recorded job.

        Raises: UsageError.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            noted = TailNote.read(tables / TAIL)
            fields, reason = (None, "") if noted is not None and _has_model(noted) else self.first_asked(tables)
            if noted is not None and fields is not None and fields["generation"] is not None:
                fields, reason = None, f"it is of a service, and {tables} has the tails of one job: leave --tables out"
            elif noted is not None:
                fields = (fields if fields is not None and fields["job_id"] == noted["job_id"] else {}) | noted
            found = FedJob.recorded(tables) if fields is None else FedJob.write(fields, tables)
            if found is not None:
                return found
            if until() or time.monotonic() > deadline:
                msg = f"--from {','.join(self._addresses)}: no server answers ({reason})"
                raise UsageError(msg)
            time.sleep(RETRY_S)

    def identity_of(self, source: FedServer) -> tuple[str, int | None] | None:
        """Return the id and the generation of the job that a server has now; None while it does not answer."""
        try:
            client, options = self._connected(source, _ASK_S)
            with client:
                [result] = client.do_action(flight.Action("job", b""), options)
                fields = job_fields(parsed(result.body.to_pybytes()))
                return fields["job_id"], fields["generation"]
        except FAILURES:
            return None

    def changes(self, job: ServedJob, source: FedServer | None = None) -> Iterator[tuple[Any, pa.RecordBatch]]:
        """Pieces of changes from one server, until it fails; without `source` each call asks the next one."""
        return self._stream({"changes": True} | _of(job), source or self._next())

    def tails(self, job: ServedJob, wanted: list[int], source: FedServer) -> Iterator[tuple[Any, pa.RecordBatch]]:
        """Records of a server's tails from these epochs on, one for each part, and what it knows besides.

        Epochs are those of the job.
        """
        return self._stream({"tails": wanted, "version": VERSION} | _of(job), source)

    def all(self) -> tuple[set[FedServer], dict[Address, str]]:
        """Every server at every address, and the names that nobody knows just now, with the reason."""
        found, unknown = set[FedServer](), dict[Address, str]()
        for one in self._addresses:
            try:
                found.update(_sources_of(one))
            except (OSError, UnicodeError) as error:
                address = Address.parse(one)
                assert address is not None
                unknown[address] = getattr(error, "strerror", None) or str(error)
        return found, unknown

    def _stream(self, ticket: dict[str, Any], source: FedServer) -> Iterator[tuple[Any, pa.RecordBatch]]:
        client, options = self._connected(source)
        try:
            yield from whole_batches(client.do_get(flight.Ticket(orjson.dumps(ticket)), options))
        finally:
            client.close()

    def first_asked(self, tables: Path) -> tuple[dict[str, Any] | None, str]:
        """Return what the first server that answers says of its job; where none does, None and why."""
        reason = ""
        for _ in self._addresses:
            try:
                client, options = self._connected(self._next(), _ASK_S)
                with client:
                    [result] = client.do_action(flight.Action("job", b""), options)
                    fields = job_fields(parsed(result.body.to_pybytes()))
                    if fields["consistency"] == ROW:
                        reason = "it feeds from a Kafka topic, whose rows are of no one epoch: give --kafka instead"
                        continue
                    fields["model_folder"] = ""  # a path of another machine
                    self._take_model(client, fields["model_digest"], tables)
                    return fields, ""
            except FAILURES as error:
                reason = reason_of(error)
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
        with suppress(TokenError):  # of a file that is being written: the server says whether the former one will do
            self._sent = token_to_send(self._token)
        return [(b"authorization", f"Bearer {self._sent}".encode())] if self._sent else []

    def _next(self) -> FedServer:
        self._turn += 1
        found = _sources_of(self._addresses[self._turn % len(self._addresses)])
        return found[self._turn // len(self._addresses) % len(found)]

    def _connected(self, source: FedServer, timeout_s: float | None = None) -> tuple[Any, Any]:
        options = flight.FlightCallOptions(headers=self._headers, timeout=timeout_s)
        return source.address.connect(self._roots, _ALIVE, source.at), options


def _sources_of(given: str) -> list[FedServer]:
    """Return the servers at all addresses of a name.

    Raises: OSError where it is not known, UnicodeError where nobody could know it.
    """
    address = Address.parse(given)
    assert address is not None
    infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return [FedServer(address, at) for at in sorted({str(info[4][0]) for info in infos})]


def _of(job: ServedJob) -> dict[str, Any]:
    """Return the fields of a ticket that say of which job an answer must be."""
    return {"job": job.job_id} | ({} if job.generation is None else {"generation": job.generation})


def _has_model(noted: dict[str, Any]) -> bool:
    return Path(noted["model_folder"]).is_dir()
