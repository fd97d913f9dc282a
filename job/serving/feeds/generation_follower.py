"""Follows the jobs of a service one after the other: the next one is prepared beside the current one, then shown."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from freshet.errors import FreshetError
from freshet.job.console import say
from freshet.job.service.generations import Generation, Service
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.feeds.service_feed import job_of
from freshet.job.serving.feeds.table_progress import Place
from freshet.job.serving.tables.kept import KeptTables
from freshet.job.serving.tables.served_job import ServedJob
from freshet.state.served.layout import HISTORY_BYTES
from freshet.state.served.writer import TableWriter

_LOOK_S = 0.2  # between two looks at which generation serves
_AGAIN_S = 2.0  # before a job that could not be prepared is tried again
_HOLD_S, _REST_S = 0.5, 2.0  # the current job waits for a next one that is near; then it goes on for a while
_NEAR_S = 0.25
_POLL_S = 0.002


class Numbered(Protocol):
    """A generation, as followers need to know it."""

    @property
    def generation(self) -> int:
        """Its number."""

    @property
    def place(self) -> str:
        """Source of its embeddings, in words."""


class Succession(Follower):
    """Follower of the job of one generation, which looks for the next one.

    The next job's table is loaded on another thread and kept up to date beside the current one; it is shown once it
    has read at least as far. Readers have the current table until then, whatever becomes of the next job.
    """

    generation: Numbered

    def _begin_with(self, generation: Numbered, kept: KeptTables) -> None:
        """Set what the methods below go by."""
        self.generation, self._kept = generation, kept
        self._next: Succession | None = None
        self._ending = threading.Lock()
        self._is_loaded = self._is_hidden = self._is_dropped = self._is_tried = False
        self._failed: str | None = None  # why its table could not be loaded
        self._lacking: tuple[int, str] | None = None  # the generation that can't be followed, and why
        self._looked_at = self._held_at = self._mark_at = float("-inf")
        self._due_at = float("inf")
        self._mark: dict[Place, int] = {}

    def turn(self) -> bool:
        """Apply the next epoch if it is there, and bring on the next generation, if there is one."""
        if self.is_left_behind:  # by the turn of another kind
            return False
        now = time.monotonic()
        moved = not self._is_held(now) and self._tried(self.step)
        return self._bring_on_next(now) or moved

    @abstractmethod
    def _newest(self) -> Numbered | None:
        """Return the generation that is the current one; None where it is not known.

        Raises: FreshetError saying why that can't be known.
        """

    @abstractmethod
    def _follower_of(self, newest: Any) -> Succession:
        """Return the follower of a generation's job.

        Raises: FreshetError where it can't be followed.
        """

    def next_figures(self) -> dict[str, Any] | None:
        """Return the generation that is to follow: partitions in which it is behind, and why else it does not yet."""
        if (found := self._next) is None:
            return None if self._lacking is None else dict(zip(("generation", "reason"), self._lacking, strict=True))
        has, lacks = found.read_upto() if found._is_loaded else {}, list[dict[str, Any]]()
        for place, wants in sorted(self.read_upto().items()):
            if has.get(place, 0) < wants:
                lacks.append({"source": place[0], "partition": place[1], "has": has.get(place, 0), "wants": wants})
        return {"generation": found.generation.generation, "lacks": lacks}

    @property
    def next_one(self) -> Follower | None:
        """The follower of the next generation, once it has a table."""
        return self._next if self._next is not None and self._next._is_loaded else None

    def close(self, forget: bool) -> None:
        """Let the tails go; with `forget` the table, too."""
        self._drop_next()
        if forget:
            self._kept.forget()
        super().close(forget)

    def _offer(self) -> None:
        if not self._is_hidden:
            super()._offer()

    def _prepare(self) -> None:
        """Make a table that readers do not get yet, on a thread of its own."""
        self._is_hidden = True

        def load() -> None:
            try:
                self._load()
                self._is_loaded = True
            except Exception as error:  # whatever it is: the current job is served
                self._failed = f"{self.generation.place}: {type(error).__name__}: {error}"
            with self._ending:
                self._is_tried = True
                if self._is_dropped:
                    self._clear()

        threading.Thread(target=load, name="freshet-next-generation", daemon=True).start()

    def _bring_on_next(self, now: float) -> bool:
        """Prepare the next generation, if there is one, and have it take the place; whether it moved."""
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            self._kept.drop_old()
            self._look()
        following = self._next
        if following is None or not following._is_loaded:
            return False
        try:
            moved = following.step()
        except Exception as error:  # of a full disk, or of a file that is damaged: the current job is served
            self._cannot_follow(following.generation, f"{following.generation.place}: {type(error).__name__}: {error}")
            return False
        for one in self._all_due(following, now):
            one._change_over()
        if not self.is_left_behind and now - self._mark_at >= _NEAR_S and following.covers(self._mark):
            if self._mark and now - self._held_at > _HOLD_S + _REST_S:
                self._held_at = now  # the next one is as far as this one was a moment ago
            self._mark, self._mark_at = self.read_upto(), now
        return moved

    def _all_due(self, following: Succession, now: float) -> list[Succession]:
        """Return those that are to change over to a generation, once its tables of all kinds are as far; else none."""
        number = following.generation.generation
        mine = [one for one in self.beside or [self] if isinstance(one, Succession)]
        waiting = [one for one in mine if one.generation.generation < number]
        theirs = [one._next for one in waiting if one._next is not None and one._is_due(number)]
        if len(theirs) < len(waiting) or not _are_at_one(theirs):
            return []
        self._due_at = min(self._due_at, now)  # the current tables may be kept: pairs are scored at one epoch of them
        return waiting if _are_at_one(waiting) or now - self._due_at > _HOLD_S else []

    def _is_due(self, number: int) -> bool:
        """Return whether a generation is prepared, and has read at least as far."""
        found = self._next
        if found is None or found.generation.generation != number or not found._is_loaded:
            return False
        return found.covers(self.read_upto())

    def _is_held(self, now: float) -> bool:
        """Return whether it waits, so that the next one gets as far."""
        return self._next is not None and now - self._held_at < _HOLD_S

    def _look(self) -> None:
        """Begin with the newest generation that is not followed yet."""
        try:
            newest = self._newest()
        except FreshetError as error:
            self._cannot_follow(self.generation, str(error))
            return
        if newest is None or newest.generation <= self.generation.generation:
            self._lacking = None
            return
        following = self._next
        if following is not None and following.generation.generation == newest.generation:
            if following._failed is not None:
                self._cannot_follow(newest, following._failed)
            return
        self._drop_next()  # another promotion meanwhile
        try:
            following = self._follower_of(newest)
        except FreshetError as error:
            self._cannot_follow(newest, str(error))
            return
        say(f"generation {newest.generation}: preparing the table of {newest.place}")
        self._mark, self._lacking, self._due_at = {}, None, float("inf")
        self._next = following
        self._next._prepare()

    def _cannot_follow(self, generation: Numbered, why: str) -> None:
        """Say, once, why a generation can't be followed, and try it again in a while."""
        self._drop_next()
        if self._lacking != (found := (generation.generation, why)):
            say(f"generation {generation.generation}: {why}; the current job is served")
        self._lacking, self._looked_at = found, time.monotonic() + _AGAIN_S

    def _change_over(self) -> None:
        """Show the next one's table; where that can't be, go on with the current one."""
        following = self._next
        assert following is not None
        try:
            self._give_place_to(following)
        except Exception as error:
            self._cannot_follow(following.generation, f"{following.generation.place}: {type(error).__name__}: {error}")

    def _give_place_to(self, following: Succession) -> None:
        """Show the next one's table; no time in answers goes back."""
        following.take_place_of(self)
        following._is_hidden = False
        self._kept.keep(self.job, self._shown or self.table)
        following._offer()
        number, out = following.generation.generation, following.generation.place
        say(f"generation {number}: {out} serves, at epoch {following.table.epoch}")
        self.following, self._next, self.is_left_behind = following, None, True

    def _is_kept(self, table: TableWriter) -> bool:
        return table in self._kept

    def _drop_next(self) -> None:
        following, self._next = self._next, None
        if following is None:
            return
        with following._ending:  # whoever comes second clears
            following._is_dropped = True
            if following._is_tried:
                following._clear()

    def _clear(self) -> None:
        """Take away a table that nobody has got."""
        super().close(forget=False)
        if hasattr(self, "table"):
            self.table.supersede()
            self.table.path.unlink(missing_ok=True)


class GenerationFollower(Succession):
    """Follower of the job of a service's generation; the next one has to read as far in every partition."""

    def __init__(
        self,
        service: Service,
        generation: Generation,
        job: ServedJob,
        tables: Path,
        history_bytes: int = HISTORY_BYTES,
        *,
        kept: KeptTables,
    ) -> None:
        super().__init__(job, tables, history_bytes)
        self._service = service
        self._begin_with(generation, kept)

    def _newest(self) -> Generation | None:
        return self._service.current()

    def _follower_of(self, newest: Generation) -> GenerationFollower:
        job = job_of(newest, self.job.kind_name or None)
        return GenerationFollower(self._service, newest, job, self.tables, self._history_bytes, kept=self._kept)


def _are_at_one(followers: Sequence[Follower]) -> bool:
    return len({one.table.epoch for one in followers}) == 1
