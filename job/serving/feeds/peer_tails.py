"""The tails that other servers have, as one stream of epochs of each part: a copy of an epoch is as good as any other.

Each server is asked on a thread of its own, from the epochs on that are lacking here. What comes is held until the
table has it; if that is too much, the streams wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.job.serving.feeds.change_stream import ended_of
from freshet.job.serving.feeds.checked import is_integer, is_row_of_integers
from freshet.job.serving.feeds.fed_job import FAILURES, RETRY_S, FedServer, FedServers, reason_of
from freshet.job.serving.protocol.tls import Address
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.sink.tail.layout import R_BYTES
from freshet.operators.sink.tail.reader import Beat, NotATailError, TailEpoch, record_of
from freshet.state.served.layout import RUNS

HELD_BYTES_MAX = 128 << 20
_AT_HAND = 16  # epochs behind the table's that are taken in beyond that: they let it go on
_LOOK_S = 1.0  # between two looks at what names stand for
_WAIT_S = 0.5
_TIME_MAX_MS = 1 << 50  # of a clock; a record's time is counted in microseconds, too
_PATIENCE_S, _PATIENCE_MAX_S = 1.0, 16.0  # without a new epoch of the table, until what is lacking is asked for again


@dataclass
class _Peer:
    """State of a peer server."""

    source: FedServer
    table: int = -1
    ended: int = RUNS
    beats: list[Beat | None] = field(default_factory=list)
    reason: str = "not reached yet"
    patience_s: float = _PATIENCE_S
    gone: bool = False
    other: tuple[str, int | None] | None = None  # the job that it serves, once it has refused to tell of ours

    def hear(self, head: dict[str, Any], parts: int) -> None:
        """Note a heartbeat.

        Raises: NotATailError for one that is of other parts, or none.
        """
        beats, table, now_us = head["beats"], head["table"], time.time_ns() // 1000
        sound = is_integer(table) and isinstance(beats, list) and len(beats) == parts
        if not (sound and all(one is None or is_row_of_integers(one) for one in beats)):
            msg = f"a heartbeat: expected four numbers for each of {parts} parts, got {str(head)[:100]}"
            raise NotATailError(msg)
        self.beats = [None if one is None else Beat(now_us - one[0], *one[1:]) for one in beats]
        self.table, self.ended, self.reason, self.other = table, ended_of(head), "", None


class PeerTails:
    """Tails of a job on other servers; `get` is for one thread, which reports by `pass_epoch` what it has."""

    def __init__(self, sources: FedServers, job: ServedJob) -> None:
        self._sources, self._job = sources, job
        self._held: list[dict[int, TailEpoch]] = [{} for _ in range(job.parts)]
        self._bytes, self._epoch = 0, -1
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._peers: dict[FedServer, _Peer] = {}
        self._unknown: dict[Address, str] = {}
        self._thread = threading.Thread(target=self._run, name="freshet-peers", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Stop asking; calls under way end on their own."""
        self._stop.set()

    def get(self, part: int, wanted: int) -> TailEpoch | None:
        """A part's rows of an epoch; None while nobody has sent them."""
        return self._held[part].get(wanted)

    def after(self, part: int, wanted: int) -> TailEpoch | None:
        """The part's earliest epoch from `wanted` on that was sent."""
        with self._lock:
            later = [epoch for epoch in self._held[part] if epoch >= wanted]
            return self._held[part][min(later)] if later else None

    def pass_epoch(self, epoch: int) -> None:
        """The table has all up to this epoch of the job."""
        if epoch == self._epoch:
            return
        with self._lock:
            former, self._epoch = self._epoch, epoch
            for held in self._held:
                few = range(former + 1, epoch + 1) if epoch - former < len(held) else list(held)
                for one in [known for known in few if known <= epoch and known in held]:
                    self._bytes -= held.pop(one).raw.nbytes

    def beats(self) -> list[Beat | None]:
        """Return the last heartbeat of each part, as far as others have received it."""
        known = [peer.beats for peer in list(self._peers.values()) if peer.beats]
        return [newest_beat([beats[part] for beats in known]) for part in range(self._job.parts)]

    def further(self) -> FedServer | None:
        """The server whose table is the furthest, if it is further than ours."""
        best = max(self._peers.copy().values(), key=lambda peer: peer.table, default=None)
        return best.source if best is not None and best.table > self._epoch else None

    def how_ended(self) -> int:
        """Return the job's end, as reported by servers that are no further than ours."""
        return max((peer.ended for peer in self._peers.copy().values() if peer.table <= self._epoch), default=RUNS)

    @property
    def are_of_another_job(self) -> bool:
        """True if every server that answers has another job than ours, and one does."""
        peers = list(self._peers.copy().values())
        return any(peer.other for peer in peers) and not any(peer.other is None and not peer.reason for peer in peers)

    def unheard(self) -> list[str]:
        """The servers of which nothing is heard, and why."""
        unheard = [f"{peer.source}: {peer.reason}" for peer in self._peers.copy().values() if peer.reason]
        return sorted(unheard + [f"{at.host}:{at.port}: {reason}" for at, reason in self._unknown.items()])

    def _run(self) -> None:
        """Ask every server at every address; names may come to stand for others."""
        while not self._stop.wait(_LOOK_S if self._peers else 0):
            found, self._unknown = self._sources.all()
            for source in found - self._peers.keys():
                peer = self._peers[source] = _Peer(source)
                threading.Thread(target=self._ask, args=(peer,), name=f"freshet-{source}", daemon=True).start()
            for source in self._peers.keys() - found:
                if source.address not in self._unknown:  # else its addresses stay those that it had
                    self._peers.pop(source).gone = True
            if not self._peers:
                self._stop.wait(_LOOK_S)

    def _ask(self, peer: _Peer) -> None:
        """Take in what a server has, again and again."""
        while not (self._stop.is_set() or peer.gone):
            try:
                self._take(peer)
            except FAILURES as error:
                peer.reason = reason_of(error) or "it has ended"
                peer.table, peer.ended = -1, RUNS
                found = self._sources.identity_of(peer.source)
                peer.other = None if found == self._job.identity else found
            self._stop.wait(RETRY_S)

    def _take(self, peer: _Peer) -> None:
        """Follow one stream, until it ends, or until missing epochs should be requested again."""
        at, since = self._epoch, time.monotonic()
        pieces: list[np.ndarray] = []
        for head, batch in self._sources.tails(self._job, self._wanted(), peer.source):
            if self._stop.is_set() or peer.gone:
                return
            if "beats" in head:
                peer.hear(head, self._job.parts)
            else:
                pieces.append(_bytes_of(batch))
                _check_size(pieces)
                if not head["more"]:
                    self._keep(head["part"], _checked(np.concatenate(pieces), self._job))
                    pieces = []
                    if not self._has_room(head["epoch"]):
                        return
            if at != self._epoch:
                at, since, peer.patience_s = self._epoch, time.monotonic(), _PATIENCE_S
            elif time.monotonic() - since > peer.patience_s and any(self._held):
                peer.patience_s = min(2 * peer.patience_s, _PATIENCE_MAX_S)
                return

    def _wanted(self) -> list[int]:
        """Return the first missing epoch of each part."""
        with self._lock:
            found = []
            for held in self._held:
                epoch = max(self._epoch, 0) + 1  # epoch 0 is in no tail
                while epoch in held:
                    epoch += 1
                found.append(epoch)
            return found

    def _keep(self, part: int, one: TailEpoch) -> None:
        if type(part) is not int or not 0 <= part < self._job.parts:
            msg = f"epoch {one.epoch} of part {part}: the job has {self._job.parts} parts"
            raise NotATailError(msg)
        with self._lock:
            held = self._held[part]
            if one.epoch > self._epoch and one.epoch not in held:
                held[one.epoch] = one
                self._bytes += one.raw.nbytes

    def _has_room(self, epoch: int) -> bool:
        """Wait for a moment if too much is buffered; False: request again, beginning with the most urgent epochs."""
        deadline = time.monotonic() + _WAIT_S
        while (held := self._bytes) > HELD_BYTES_MAX:
            at_hand = _AT_HAND if held <= 2 * HELD_BYTES_MAX else 1  # the very next one is always wanted
            if epoch <= max(self._epoch, 0) + at_hand:
                return True
            if time.monotonic() > deadline or self._stop.wait(0.005):
                return False
        return True


def newest_beat(beats: Sequence[Beat | None]) -> Beat | None:
    """A part that has moved to another machine leaves an old one behind."""
    return max((one for one in beats if one is not None), key=lambda one: one.beat_us, default=None)


def _bytes_of(batch: pa.RecordBatch) -> np.ndarray:
    if batch.schema.names != ["record"] or batch.schema.field("record").type != pa.uint8():
        msg = f"a piece of a tail: expected the column record of bytes, got {batch.schema}"
        raise NotATailError(msg)
    return batch.column(0).to_numpy()


def _check_size(pieces: list[np.ndarray]) -> None:
    """Refuse more than the record's own word for its size, before it takes memory."""
    size = int(pieces[0][:8].view(np.int64)[R_BYTES]) if pieces[0].nbytes >= 8 else 0
    if sum(piece.nbytes for piece in pieces) > size:
        msg = f"a record of more than the {size} bytes that it names"
        raise NotATailError(msg)


def _checked(raw: np.ndarray, job: ServedJob) -> TailEpoch:
    """A record whose counts and offsets stay inside it: another process has sent it."""
    if raw.nbytes < 64 or raw.nbytes % 8:
        msg = f"a record of {raw.nbytes} bytes"
        raise NotATailError(msg)
    one = record_of(raw, job.width)
    if one.epoch < 0 or not 0 <= one.arrived_ms <= _TIME_MAX_MS:
        msg = f"a record of epoch {one.epoch}, arrived at {one.arrived_ms} ms"
        raise NotATailError(msg)
    if job.strings and one.text is not None:
        sound = one.ids[0] == 0 and one.ids[-1] == len(one.text) and (np.diff(one.ids) >= 0).all()
        sound = bool(sound) and _are_texts(one.ids, one.text)
    else:
        sound = one.text is None
    if not sound or (job.strings and one.text is None and len(one.ids)):
        msg = f"epoch {one.epoch}: a record whose ids are of another kind, or lie outside it"
        raise NotATailError(msg)
    return one


def _are_texts(offsets: np.ndarray, text: np.ndarray) -> bool:
    """Return whether the bytes between consecutive offsets are valid UTF-8."""
    try:
        text.tobytes().decode()
    except UnicodeDecodeError:
        return False
    begins = offsets[:-1][offsets[:-1] < len(text)]
    return bool(((text[begins] & 0xC0) != 0x80).all())  # none within a character
