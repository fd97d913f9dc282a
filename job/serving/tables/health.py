"""Freshness of a table, and whether it may be relied on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from freshet.job.serving.bounds.budget import Budget
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.protocol.wanted import ROW
from freshet.job.serving.tables.history import History
from freshet.job.serving.tables.kept import read_kept
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import Served
from freshet.state.served import layout as lay

STALE_AFTER_S = 10.0
_ASK_S = 2.0
_SILENT = "silent"
_COUNTS = "vertices", "history_misses", "ids_found", "ids_missing"
_OF_KIND = "tables", "epoch", "vertices"
_HOW_ENDED = {lay.ENDED: "ended", lay.STOPPED: "stopped"}


def status_of(figures: dict[str, Any], path: str, stale_ok: bool = False) -> int:
    """Return the HTTP status of a probe: 200 where the server answers, and 503 where `/readyz` finds it not ready.

    With `stale_ok` a server whose table is stale is ready, too: it answers, and all servers of a job turn stale at
    once.
    """
    degraded = stale_ok and "epoch" in figures
    return 200 if figures["ready"] or path == "/healthz" or degraded else 503


class Health:
    """Figures of a table and of what it follows, as of now."""

    def __init__(self, lookup: Lookup, stale_after_s: float = STALE_AFTER_S) -> None:
        self._lookup, self._stale_after_s = lookup, stale_after_s
        self.trouble: Callable[[], str | None] = lambda: None  # what whoever keeps the table knows
        self.following: Callable[[], dict[str, Any] | None] = lambda: None  # likewise, of a service's next job
        self.history = History()  # of a server of several processes, in memory that they share
        self._asked_s, self._found = float("-inf"), _SILENT

    @property
    def budget(self) -> Budget:
        """Budget of data in flight."""
        return self._lookup.budget

    def in_flight(self) -> dict[str, int]:
        """Bytes in flight and their limit, requests refused, and calls of this process that wait."""
        rooms = [one.room for one in self._lookup.each if one.room is not None]
        return {**self.budget.figures(), "waiting": sum(map(len, rooms))}

    def figures(self) -> dict[str, Any]:
        """The figures; `ready` and, where it is not, `reason`.

        `behind_s`: how long the job, or the server, has said nothing, or what it said is not in the table. `job`:
        running, ended, stopped, failed, lost, or silent (its folder is not here, or says that it runs); of a server
        that feeds from a topic it is the brokers that say something, and the job is unknown; `lacks` says which rows
        the topic can't have, where it does not have all. Of several kinds, they are those of the table that is the
        least fresh, with counts of all, and `kinds` has folder, epoch and vertices of each.
        """
        each = {kind: self._of(one) for kind, one in self._lookup.beside.items()}
        if not each:
            return self._of(self._lookup)
        found = min(each.values(), key=lambda one: (one["ready"], one.get("epoch", -1)))
        found.pop("kind", None)
        sums = {name: sum(one.get(name, 0) for one in each.values()) for name in _COUNTS if name in found}
        kinds = {kind: {name: one.get(name) for name in _OF_KIND} for kind, one in each.items()}
        return found | sums | {"kinds": kinds}

    def _of(self, lookup: Lookup) -> dict[str, Any]:
        try:
            served = lookup.served
        except NotReadyError as error:
            return {"ready": False, "reason": self.trouble() or str(error)}
        table, job = served.table, served.job
        now_us = time.time_ns() // 1000
        ended = table.word(lay.T_ENDED)
        server_s, source_us = (now_us - table.word(lay.T_BEAT_US)) / 1e6, table.word(lay.T_SOURCE_BEAT_US)
        source_s = (now_us - source_us) / 1e6 if source_us else float("inf")
        behind_s = server_s if ended else max(server_s, source_s)
        stale = behind_s > self._stale_after_s
        published, readable = table.word(lay.T_PUBLISHED_US), table.word(lay.T_READABLE_US)
        arrived = table.word(lay.T_ARRIVED_US)
        row, failures = job.consistency == ROW, table.word(lay.T_TAIL_FAILURES)
        return {
            "ready": not stale,
            "tables": str(lookup.folder),
            "reason": self.trouble() or (f"nothing was heard for {behind_s:.1f} s" if stale else None),
            **({"kind": job.kind_name} if job.kind_name else {}),
            **({"lacks": job.lacks} if job.lacks else {}),
            **({} if job.generation is None else self._of_service(job.generation)),
            "epoch": table.epoch,
            "vertices": table.live,
            "consistency": job.consistency,
            "job": _HOW_ENDED.get(ended, self._silence() if stale else "unknown" if row else "running"),
            "behind_s": None if behind_s == float("inf") else round(behind_s, 3),
            "age_of_last_event_s": round((now_us - arrived) / 1e6, 3) if arrived else None,
            "publish_to_readable_ms": round((readable - published) / 1e3, 3) if published else None,
            "positions": _positions(served),
            "tail_failures": 0 if row else failures,
            "records_refused": failures if row else 0,
            "history_misses": table.misses,
            "ids_found": lookup.ids_found,
            "ids_missing": lookup.ids_missing,
            **self.in_flight(),
        }

    def _of_service(self, generation: int) -> dict[str, Any]:
        kept = [one.generation for one in read_kept(self._lookup.folder)]
        return {"generation": generation, "next": self.following(), "kept": kept}

    def _silence(self) -> str:
        """Describe a job that says nothing, by its folder where that is here; asked every two seconds at most."""
        now_s = time.monotonic()
        if now_s - self._asked_s >= _ASK_S:
            self._asked_s, self._found = now_s, _state_of(self._lookup.job.log_beside(self._lookup.folder).out)
        return self._found


def _positions(served: Served) -> list[dict[str, Any]]:
    names = served.job.sources
    return [
        {"source": names[a] if 0 <= a < len(names) else "", "partition": b, "next_offset": c, "epoch": d}
        for a, b, c, d in served.table.positions().tolist()
    ]


def _state_of(out: Path) -> str:
    """Return `failed` or `lost` for a job whose folder says so, else `silent`."""
    from freshet.errors import InputError
    from freshet.job.lifecycle.job_state import FAILED, LOST, state_of

    try:
        found = state_of(out).state
    except InputError:  # it is on another machine, or damaged
        return _SILENT
    return found if found in (FAILED, LOST) else _SILENT
