"""`freshet.EmbeddingClient`: embeddings of a running job, by Arrow Flight or straight from the mapped table.

Answers of one client never go back in epochs, also when a server is started again or another one answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.job.errors import UsageError
from freshet.job.serving.clients.asked import AskedIds, Transport, ids_of
from freshet.job.serving.clients.flight_client import FlightTransport
from freshet.job.serving.protocol.errors import BadRequestError, NotReadyError
from freshet.job.serving.protocol.tls import Address, read_roots
from freshet.job.serving.protocol.wanted import EPOCH, IDS_MAX, TIMEOUT_S, Wanted
from freshet.state.served.generation import generation_of
from freshet.state.served.ids import Ids, Texts, plain_ids

_RETRY_S = 0.05


class Rows(tuple[Any, np.ndarray, np.ndarray]):
    """(ids found, their rows' epochs, rows), and `epoch`, that of the whole answer.

    Shapes: ids (n,) int64 or strings (object); epochs (n,) int64; rows (n, width) float32
    """

    epoch: int

    @staticmethod
    def of(epoch: int, ids: Any, epochs: np.ndarray, rows: np.ndarray) -> Rows:
        """The rows of an answer."""
        found = Rows((ids, epochs, rows))
        found.epoch = epoch
        return found


class EmbeddingClient:
    """Reads embeddings; safe for threads.

    Invariant: no answer has an older epoch than one before it, but from a server whose rows are of no one epoch, and of
    an earlier `generation` that a call names.
    """

    ids_max = IDS_MAX  # of a call

    def __init__(
        self,
        address: str | Path,
        *,
        kind: str | None = None,
        token: str | None = None,
        timeout: float = TIMEOUT_S,
        tls_roots: str | Path | bytes | None = None,
    ) -> None:
        """`address` is HOST:PORT of a server, or the folder O/tables of a job on this machine.

        `kind`: that of the vertices whose rows are read, where the server has several.

        With grpc+tls://HOST:PORT the server must prove who it is; `tls_roots`: PEM file (or its bytes) of the
        certificates to trust, None: those of the system.
        `timeout`: seconds to wait for an answer, a server that comes back among them, where a call says nothing else.
        """
        found, roots = Address.parse(str(address)), read_roots(tls_roots)
        if roots is not None and (found is None or not found.tls):
            msg = f"tls_roots: goes with grpc+tls://HOST:PORT, got the address {address}"
            raise UsageError(msg)
        self._transport: Transport
        if found is not None:
            self._transport = FlightTransport(found, token, roots, kind)
        else:
            self._transport = _mapped(Path(address), kind)
        self._timeout, self._seen, self._kind, self._address = timeout, 0, kind, str(address)

    def get(
        self,
        ids: AskedIds,
        *,
        min_epoch: int = 0,
        min_position: Mapping[str, int] | None = None,
        timeout: float | None = None,
        logits: bool = False,
        generation: int | None = None,
    ) -> pa.Table:
        """The rows of these ids as id, epoch, embedding (and with `logits` logits and class); unknown ids are absent.

        `min_position`: partition -> offset of a record that must be covered. The schema's metadata has the answer's
        epoch, and `consistency: row` from a server whose rows are of no one epoch. `generation`: of a service, the
        current one, or an earlier one while its server keeps it (`freshet serve --keep`).
        Raises: NotYetError when that is not there in time; BadRequestError; NotReadyError; GoneError.
        """
        asked, wanted = ids_of(ids), self._wanted(min_epoch, min_position, timeout, generation)
        return self._seen_table(self._asked(wanted, lambda now: self._transport.table(asked, now, logits)))

    def rows(
        self,
        ids: AskedIds,
        *,
        min_epoch: int = 0,
        min_position: Mapping[str, int] | None = None,
        timeout: float | None = None,
        generation: int | None = None,
    ) -> Rows:
        """Like `get`, as numpy arrays (see Rows), which is faster for few ids."""
        asked = ids_of(ids)
        is_current = not min_position and generation is None
        if is_current and (quick := self._quick(asked, max(min_epoch, self._seen))) is not None:
            return quick
        wanted = self._wanted(min_epoch, min_position, timeout, generation)
        epoch, found, epochs, rows = self._asked(wanted, lambda now: self._transport.rows(asked, now))
        return self._seen_rows(epoch, found, epochs, rows)

    def all(
        self,
        *,
        min_epoch: int = 0,
        timeout: float | None = None,
        logits: bool = False,
        generation: int | None = None,
    ) -> pa.Table:
        """The rows of all ids, at one epoch; `generation` as for `get`."""
        wanted = self._wanted(min_epoch, None, timeout, generation)
        return self._seen_table(self._asked(wanted, lambda now: self._transport.table(None, now, logits)))

    def nearest(
        self,
        id: int | str | None = None,
        *,
        vector: Sequence[float] | np.ndarray | None = None,
        k: int = 10,
        metric: str = "cosine",
        model: str | None = None,
        kinds: Sequence[str] | None = None,
        among: AskedIds | None = None,
        exclude_self: bool = False,
        approximate: bool = False,
        timeout: float | None = None,
        generation: int | None = None,
    ) -> pa.Table:
        """The k ids nearest to a vertex or a vector as id, epoch, embedding, score, the nearest first.

        `metric`: cosine, dot, euclidean (whose score is the distance), or link: the score of the vertex, or the vector,
        and each other row as a pair. `model`: SHA-256 of the model that the vector is of, as it stands in the metadata
        of a service's answers. `kinds`: those of the vertex and of the ones to find, with link as for `score`.
        `among`: none but these ids; the metadata lists those without a row as `unknown`, in JSON. `exclude_self`:
        without the vertex itself, which is among its neighbours else. `approximate`: by an index, which is made at the
        first such call; the metadata says whether the answer is `approximate` and its measured `recall`.

        Raises: BadRequestError for a vertex without a row, too; OtherModelError where the embeddings are of another
            model by now; as `get` for the rest.
        """
        asked: dict[str, Any] = {"k": k, "metric": metric} | ({} if model is None else {"model": model})
        asked |= {} if kinds is None else {"kinds": [*kinds]}
        asked |= {} if self._kind is None or metric == "link" or kinds is not None else {"kind": self._kind}
        asked |= {} if among is None else {"among": plain_ids(ids_of(among))}
        asked |= {name: True for name, on in (("exclude_self", exclude_self), ("approximate", approximate)) if on}
        asked |= {"id": id} if id is not None else {}
        asked |= {"vector": np.asarray(vector, np.float32).tolist()} if vector is not None else {}
        return self._of_request("nearest", asked, self._wanted(0, None, timeout, generation))

    def score(
        self,
        pairs: Sequence[tuple[Any, Any]] | np.ndarray,
        *,
        kinds: Sequence[str] | None = None,
        min_epoch: int = 0,
        min_position: Mapping[str, int] | None = None,
        timeout: float | None = None,
        generation: int | None = None,
    ) -> pa.Table:
        """Score pairs of ids by the model's link head, all at one epoch, as left, right, score.

        A score is null where one of both ids is unknown. Without a link head it is the dot product; `scored_by` in the
        metadata is `link_head` or `dot`. `kinds`: those of the left and of the right ids, where the server has more
        than one link head for its kinds.

        Raises: BadRequestError for more than 100,000 pairs, as `get` for the rest.
        """
        listed = np.asarray(pairs).tolist() if isinstance(pairs, np.ndarray) else [*map(list, pairs)]
        asked = {"pairs": listed} | ({} if kinds is None else {"kinds": [*kinds]})
        return self._of_request("score", asked, self._wanted(min_epoch, min_position, timeout, generation))

    def what_if(
        self,
        id: int | str | None = None,
        *,
        x: Sequence[float] | np.ndarray | None = None,
        in_edges: Sequence[Any] = (),
        out_edges: Sequence[Any] = (),
        del_in_edges: Sequence[Any] = (),
        del_out_edges: Sequence[Any] = (),
        also: AskedIds = (),
        vertices: Sequence[Mapping[str, Any]] | None = None,
        kind: str | None = None,
        max_touched: int = 10_000,
        logits: bool = True,
        min_epoch: int = 0,
        min_position: Mapping[str, int] | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """Return the row of a vertex as it would be after events that have not happened, as `get` does.

        It is a new vertex if `id` is None (so is the id in the answer) or unknown. A known one keeps its features
        without `x`, and all edges but those that are deleted. An edge is a tuple or a dict as in docs/guide/what_if.md,
        of which the ID of its other end is needed; it is added as by `add_edge`. `also`: other
        vertices whose rows follow. `vertices`: several dicts with `id`, `x`, edges and `also`, each tried by itself;
        the column `vertex` then says which of them a row is of. `kind`: that of the vertex, where the server has
        several. `max_touched`: how many rows of inner layers may change. The metadata has the epoch of the graph.

        Raises: TooFarError where more would change; BadRequestError for what the job would reject, and of a server
        without `--what-if`; as `get` for the rest.
        """
        named = {"in_edges": in_edges, "out_edges": out_edges, "del_in_edges": del_in_edges}
        named |= {"del_out_edges": del_out_edges, "also": plain_ids(ids_of(also)) if len(also) else ()}
        asked: dict[str, Any] = {name: [*values] for name, values in named.items() if len(values)}
        asked |= {} if id is None else {"id": id}
        asked |= {} if x is None else {"x": np.asarray(x, np.float64).tolist()}
        asked |= {} if vertices is None else {"vertices": [*vertices]}
        asked |= {} if (kind or self._kind) is None else {"kind": kind or self._kind}
        wanted = self._wanted(min_epoch, min_position, timeout)
        return self._of_request("what_if", asked | {"max_touched": max_touched}, wanted, logits=logits)

    def changes(self, since_epoch: int | None = None, *, timeout: float | None = None) -> Iterator[pa.Table]:
        """Yield changed rows as they come, without end: a table of id, epoch, embedding, deleted for each newer epoch.

        `since_epoch`: an epoch whose rows the caller has; None: changes from now on. A caller that is slow gets several
        epochs as one, with each row as of the last one. The metadata of a table has `epoch`, to go on with later, and
        `whole`: `true` where the server does not know what followed the epoch, or another generation of a service has
        begun. Then the table has all rows, and those that the caller has are void. A server that comes back within
        `timeout` seconds is gone on with.

        Raises: BadRequestError at once for an epoch that is none, and of a server whose rows are of no one epoch;
        NotReadyError where no server comes back in time.
        """
        if since_epoch is not None and (type(since_epoch) is not int or since_epoch < 0):
            msg = f"since_epoch: expected an epoch, 0 or more, got {since_epoch!r}"
            raise BadRequestError(msg)
        since = self.epoch() if since_epoch is None else since_epoch
        return (one for one in self.changes_and_beats(since, timeout) if one is not None)

    def changes_and_beats(self, since: int, timeout: float | None = None) -> Iterator[pa.Table | None]:
        """Like `changes`, with None now and then while nothing changes, for callers that have to look elsewhere."""
        timeout_s = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                for one in self._transport.changes(since):
                    deadline = time.monotonic() + timeout_s
                    if one is not None:
                        since = int(one.schema.metadata[b"epoch"])
                        self._saw(since)
                    yield one
            except NotReadyError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_S)

    def epoch(self) -> int:
        """The newest complete epoch."""
        return int(self.rows(np.empty(0, np.int64)).epoch)

    def health(self) -> dict[str, Any]:
        """Return the freshness of the table, and the server's counters."""
        return self._transport.health()

    def close(self) -> None:
        """Close open resources."""
        self._transport.close()

    def __repr__(self) -> str:
        return f"Embeddings{self._of()} at {self._address}, {self._how_new()}"

    def _repr_html_(self) -> str:
        of, address = escape(self._of()), escape(self._address)
        return f"<div><b>Embeddings{of}</b> at <code>{address}</code>, {self._how_new()}</div>"

    def _of(self) -> str:
        return "" if self._kind is None else f" of {self._kind}"

    def _how_new(self) -> str:
        return f"epoch {self._seen:,} or newer" if self._seen else "no answer read yet"

    def __enter__(self) -> EmbeddingClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _of_request(self, name: str, asked: dict[str, Any], wanted: Wanted, *, logits: bool = False) -> pa.Table:
        return self._seen_table(self._asked(wanted, lambda now: self._transport.ask(name, asked, now, logits)))

    def _quick(self, ids: Ids, min_epoch: int) -> Rows | None:
        try:
            found = self._transport.quick(ids, min_epoch)
        except NotReadyError:
            return None
        return None if found is None else self._seen_rows(*found)

    def _seen_rows(self, epoch: int, ids: Ids, epochs: np.ndarray, rows: np.ndarray) -> Rows:
        if epoch > self._seen:
            self._saw(epoch)
        return Rows.of(epoch, np.array(ids.decode(), object) if isinstance(ids, Texts) else ids, epochs, rows)

    def _wanted(
        self,
        min_epoch: int,
        min_position: Mapping[str, int] | None,
        timeout: float | None,
        generation: int | None = None,
    ) -> Wanted:
        """Return the condition on an answer; one of an earlier generation has none of the epochs that were seen."""
        seen = self._seen if generation in (None, generation_of(self._seen)) else 0
        timeout_s = self._timeout if timeout is None else timeout
        return Wanted(max(min_epoch, seen), min_position, timeout_s, generation)

    def _asked(self, wanted: Wanted, ask: Any) -> Any:
        """Ask until there is an answer; a server that is away, or has no table yet, may come back in time."""
        deadline = time.monotonic() + wanted.timeout_s
        while True:
            try:
                return ask(wanted)
            except NotReadyError:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                time.sleep(min(_RETRY_S, left))
                wanted = wanted._replace(timeout_s=max(0.0, deadline - time.monotonic()))

    def _seen_table(self, answer: tuple[int, pa.Table]) -> pa.Table:
        epoch, table = answer
        self._saw(epoch)
        return table

    def _saw(self, epoch: int) -> None:
        """No answer may be older from now on; where rows are of no one epoch, no answer has an age."""
        if epoch > self._seen and self._transport.consistency == EPOCH:
            self._seen = epoch


def _mapped(tables: Path, kind: str | None) -> Transport:
    """The way to the table in shared memory, which freshet-client does not have.

    Raises: UsageError there.
    """
    try:
        from freshet.job.serving.clients.mapped_client import MappedTransport
    except ModuleNotFoundError as error:
        if error.name != "freshet.job.serving.clients.mapped_client":
            raise
        msg = (
            f"address {tables}: expected HOST:PORT of a `freshet serve`; folders are read where freshet-gnn is "
            "installed, and here is freshet-client"
        )
        raise UsageError(msg) from None
    return MappedTransport(tables, kind)
