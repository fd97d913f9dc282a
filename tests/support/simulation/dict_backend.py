"""The dict that stands for a place of durable state in the simulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.support.backend import Backend


class DictBackend(Backend):
    def __init__(self, entries: dict[str, bytes] | None = None) -> None:
        self.entries = dict(entries or {})

    def apply(self, puts: Sequence[tuple[str, bytes]], deletes: Sequence[str]) -> None:
        self.entries.update(puts)
        for key in deletes:
            self.entries.pop(key, None)

    def items(self) -> Iterator[tuple[str, bytes]]:
        return iter(list(self.entries.items()))
