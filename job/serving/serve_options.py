"""Options of `freshet serve`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freshet.job.serving.protocol.tls import Certificate
from freshet.job.serving.tables.health import STALE_AFTER_S
from freshet.state.served.layout import HISTORY_BYTES

if TYPE_CHECKING:
    from freshet.job.kafka.address import KafkaAddress
    from freshet.job.kafka.client import ClientProperties


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of a server; default ports (None) fall back to the next free one, 0 is any."""

    tables: Path | None
    host: str = "127.0.0.1"
    port: int | None = None
    http_port: int | None = None
    workers: int = 1  # processes that answer, this one among them
    token: str | None = None
    without_token: bool = False  # also where others than this machine reach it
    certificate: Certificate | None = None  # None: no TLS
    history_bytes: int = HISTORY_BYTES
    stale_after_s: float = STALE_AFTER_S
    wait_s: float = 60.0
    compact: Callable[[], object] | None = None
    compact_every_s: float = 0.0
    sources: tuple[str, ...] = ()  # HOST:PORT of servers to feed from
    source_token: str | None = None
    source_roots: bytes | None = None  # certificates that those servers are trusted by
    topic: KafkaAddress | None = None  # to feed from
    kafka_properties: ClientProperties | None = None
    kind: str | None = None  # of the vertices, where the model returns several
