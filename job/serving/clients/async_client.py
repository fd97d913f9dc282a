"""`freshet.AsyncEmbeddingClient`: the client for programs that must not block, its calls on threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from freshet.job.serving.clients.client import EmbeddingClient
from freshet.job.serving.protocol.wanted import TIMEOUT_S

_T = TypeVar("_T")
_P = ParamSpec("_P")


def _on_thread(
    method: Callable[Concatenate[EmbeddingClient, _P], _T],
) -> Callable[Concatenate[AsyncEmbeddingClient, _P], Coroutine[Any, Any, _T]]:
    """Return the method as a coroutine function, which runs on one of the client's threads."""

    @wraps(method)
    async def called(self: AsyncEmbeddingClient, /, *args: _P.args, **options: _P.kwargs) -> _T:
        call = partial(method, self._client, *args, **options)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    return called


class AsyncEmbeddingClient:
    """Asynchronous counterpart of EmbeddingClient, with coroutines for methods; of one event loop.

    Invariant: a call has no older epoch than any that had ended before it began.
    """

    def __init__(
        self,
        address: str | Path,
        *,
        kind: str | None = None,
        token: str | None = None,
        timeout: float = TIMEOUT_S,
        tls_roots: str | Path | bytes | None = None,
        at_once: int = 4,
    ) -> None:
        """`at_once`: how many calls under way; the others as for EmbeddingClient."""
        self._client = EmbeddingClient(address, kind=kind, token=token, timeout=timeout, tls_roots=tls_roots)
        self._threads = ThreadPoolExecutor(at_once, "freshet-client")

    get = _on_thread(EmbeddingClient.get)
    rows = _on_thread(EmbeddingClient.rows)
    all = _on_thread(EmbeddingClient.all)
    nearest = _on_thread(EmbeddingClient.nearest)
    score = _on_thread(EmbeddingClient.score)
    what_if = _on_thread(EmbeddingClient.what_if)
    epoch = _on_thread(EmbeddingClient.epoch)
    health = _on_thread(EmbeddingClient.health)

    async def changes(self, since_epoch: int | None = None, *, timeout: float | None = None) -> AsyncIterator[pa.Table]:
        """Yield changed rows as they come, like EmbeddingClient.changes; it takes one of the calls under way."""
        loop = asyncio.get_running_loop()
        since = await self.epoch() if since_epoch is None else since_epoch
        found = self._client.changes_and_beats(since, timeout)
        try:
            while True:
                table = await loop.run_in_executor(self._threads, next, found)
                if table is not None:
                    yield table
        finally:
            with suppress(ValueError):  # a thread is amid it until the next beat
                found.close()  # type: ignore[attr-defined]

    async def close(self) -> None:
        """Close open resources, once the calls under way have ended."""
        await asyncio.to_thread(self._threads.shutdown)
        self._client.close()

    def __repr__(self) -> str:
        return f"{self._client!r}, read by coroutines"

    async def __aenter__(self) -> AsyncEmbeddingClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
