"""Answers of a generation of a service that is named: the current one while it serves, then its table while kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from freshet.job.serving.protocol.errors import BadRequestError, GoneError, NotYetError
from freshet.job.serving.protocol.wanted import Wanted
from freshet.job.serving.tables.kept import read_kept
from freshet.job.serving.tables.lookup import Lookup, joined
from freshet.job.serving.tables.served import JobHere, Served, Tables
from freshet.state.served.mapped import NoTableError

if TYPE_CHECKING:
    from freshet.job.serving.bounds.approximate import Neighbourhoods

_KEPT = -1  # in the place of a number of `Served`, whose tables are those that take each other's place


def of_generation(lookup: Lookup, number: int | None) -> Lookup:
    """Return the lookup of a generation, for one request; None: what serves.

    Raises: BadRequestError where the table is of no service, GoneError for a generation that is not kept.
    """
    if number is None:
        return lookup
    if lookup.job.generation is None:
        msg = f"generation: this server is of one job, without generations, got {number}; leave it out"
        raise BadRequestError(msg)
    return joined([_LookupOfOne(one, _OneGeneration(one.source, number)) for one in lookup.each])


class _OneGeneration:
    """The table of one generation, by whatever file."""

    is_computed = False

    def __init__(self, current: Tables, number: int) -> None:
        self.tables, self.number, self._current = current.tables, number, current
        self._kept: Served | None = None
        self.served()

    @property
    def job(self) -> JobHere:
        """The job of the table."""
        return self.served().job

    @property
    def switches(self) -> int | None:
        """See CurrentTable."""
        return self._current.switches

    @property
    def is_kept(self) -> bool:
        """True if another generation serves: the table stays as it is."""
        return self.served() is self._kept

    def served(self) -> Served:
        """The table and its job.

        Raises: GoneError once it is not kept any more; NotReadyError.
        """
        return self._of(self._current.served)

    at_hand = served

    def whole(self) -> Served:
        """The same with all that can be read of it."""
        return self._of(self._current.whole)

    def _of(self, current: Callable[[], Served]) -> Served:
        if self._kept is not None:
            return self._kept
        found = current()
        if found.job.generation == self.number:
            return found
        self._kept = self._open()
        return self._kept

    def _open(self) -> Served:
        from freshet.state.served.reader import TableReader

        kept = read_kept(self.tables)
        for one in kept:
            if one.generation == self.number:
                with suppress(FileNotFoundError, NoTableError):
                    return Served(_KEPT, JobHere.described(one.of), TableReader(one.path))
        others = ", ".join(str(one.generation) for one in kept)
        there = f"the current one is {self._current.job.generation}, and kept are {others or 'none'}"
        msg = f"generation {self.number} is not kept (`freshet serve --keep`): {there}"
        raise GoneError(msg)


class _LookupOfOne(Lookup):
    """Answers of one generation, within the budget of the lookup that answers all others."""

    def __init__(self, lookup: Lookup, source: _OneGeneration) -> None:
        self._parent, self._one = lookup, source
        super().__init__(source)
        self.budget, self.room = lookup.budget, lookup.room

    def wait(self, wanted: Wanted, gone: Callable[[], bool] | None = None) -> None:
        """Return when the table is as far as wanted.

        Raises: NotYetError at the timeout, or at once where the table goes no further; as `Lookup.wait` else.
        """
        if self.lacks_now(wanted) is not None:
            self._parent.wait(wanted, gone)
            self.lacks_now(wanted)

    def lacks_now(self, wanted: Wanted) -> str | None:
        """Describe what is still missing; None if nothing is.

        Raises: NotYetError where that will never be there.
        """
        lack = super().lacks_now(wanted)
        if lack is not None and self._one.is_kept:
            msg = f"{lack}; generation {self._one.number} is kept as it was, and goes no further"
            raise NotYetError(msg)
        return lack

    @property
    def neighbourhoods(self) -> Neighbourhoods | None:
        """The lists of the current generation; none of one that is kept."""
        return None if self._one.is_kept else self._parent.neighbourhoods

    @property
    def ids_found(self) -> int:
        """Counted with those of the lookup that answers all others."""
        return self._parent.ids_found

    @ids_found.setter
    def ids_found(self, count: int) -> None:
        self._parent.ids_found = count

    @property
    def ids_missing(self) -> int:
        """Likewise."""
        return self._parent.ids_missing

    @ids_missing.setter
    def ids_missing(self, count: int) -> None:
        self._parent.ids_missing = count
