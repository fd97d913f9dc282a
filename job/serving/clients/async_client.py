"""`freshet.AsyncEmbeddingClient`: the client for programs that must not block, its calls on threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from freshet.job.serving.clients.asked import AskedIds
from freshet.job.serving.clients.client import EmbeddingClient, Rows
from freshet.job.serving.protocol.wanted import TIMEOUT_S

_T = TypeVar("_T")


class AsyncEmbeddingClient:
    """Asynchronous counterpart of EmbeddingClient, with coroutines for methods; of one event loop.

    Invariant: a call has no older epoch than any that had ended before it began.
    """

    def __init__(
        self,
        address: str | Path,
        *,
        token: str | None = None,
        timeout: float = TIMEOUT_S,
        tls_roots: str | Path | bytes | None = None,
        at_once: int = 4,
    ) -> None:
        """`address`, `token`, `timeout`, `tls_roots`: as for EmbeddingClient; `at_once`: how many calls under way."""
        self._client = EmbeddingClient(address, token=token, timeout=timeout, tls_roots=tls_roots)
        self._threads = ThreadPoolExecutor(at_once, "freshet-client")

    async def get(self, ids: AskedIds, **options: Any) -> pa.Table:
        """See EmbeddingClient.get."""
        return await self._on_thread(partial(self._client.get, ids, **options))

    async def rows(self, ids: AskedIds, **options: Any) -> Rows:
        """See EmbeddingClient.rows."""
        return await self._on_thread(partial(self._client.rows, ids, **options))

    async def all(self, **options: Any) -> pa.Table:
        """See EmbeddingClient.all."""
        return await self._on_thread(partial(self._client.all, **options))

    async def nearest(self, id: int | str | None = None, **options: Any) -> pa.Table:
        """See EmbeddingClient.nearest."""
        return await self._on_thread(partial(self._client.nearest, id, **options))

    async def epoch(self) -> int:
        """See EmbeddingClient.epoch."""
        return await self._on_thread(self._client.epoch)

    async def health(self) -> dict[str, Any]:
        """See EmbeddingClient.health."""
        return await self._on_thread(self._client.health)

    async def close(self) -> None:
        """Close open resources, once the calls under way have ended."""
        await asyncio.to_thread(self._threads.shutdown)
        self._client.close()

    async def __aenter__(self) -> AsyncEmbeddingClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _on_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
