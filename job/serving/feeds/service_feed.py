"""The feed of a service: the job of the generation that readers have, and then of those that follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.folder.returned_kinds import folder_name
from freshet.job.service.generations import FILE, Generation, Service
from freshet.job.serving.tables import place
from freshet.job.serving.tables.seen import read_seen
from freshet.job.serving.tables.served_job import ServedJob
from freshet.kind_names import written_kind

_POLL_S = 0.1


def await_service(folder: Path, wait_s: float, until: Callable[[], bool]) -> Service:
    """Return the service of a folder; waits until `freshet promote` has made it.

    Raises: UsageError when it has not in time.
    """
    service, deadline = Service(folder), time.monotonic() + wait_s
    while service.current() is None and not until():
        if time.monotonic() >= deadline:
            msg = f"--service {folder}: holds no service after {wait_s:g} s; make one by `freshet promote {folder} O`"
            raise UsageError(msg)
        time.sleep(_POLL_S)
    return service


def kind_of(service: Service, kind: str | None) -> str | None:
    """Return the kind that a server of a service has: the only one has a name also where a later model returns more."""
    returned = service.contract().returned
    return returned[0] if kind is None and len(returned) == 1 else kind


def tables_of(service: Service, kind: str | None) -> Path:
    """Return the folder of a kind's tables; the kinds of a service are those of generation 0.

    Raises: UsageError where that returns several and none is named, or not this one.
    """
    return service.tables / written_kind(folder_name(service.contract().returned, kind, service.folder))


def begun(service: Service, kinds: Mapping[Path, str | None]) -> tuple[Generation, list[ServedJob]]:
    """Return the generation that readers have seen last, also of a server that was killed, and its job, by kind.

    `kinds`: by their folders of tables. It is the current generation where nobody has seen any, or where that one's job
    is gone.

    Raises: UsageError where the current one's folder is gone; DamagedFileError.
    """
    found = service.generations()
    shown = max(max(place.shown_generation(one), read_seen(one).generation) for one in kinds)
    if shown > found[-1].generation:
        msg = (
            f"{service.folder / FILE}: it ends with generation {found[-1].generation}, and readers have seen "
            f"generation {shown}; put it back from a copy that has that one"
        )
        raise UsageError(msg)
    if shown >= 0:
        try:
            return found[shown], [job_of(found[shown], kind) for kind in kinds.values()]
        except UsageError as error:
            say(f"{error}; going on with generation {found[-1].generation}")
    return found[-1], [job_of(found[-1], kind) for kind in kinds.values()]


def job_in(folder: Path, kind: str | None, number: int | None = None) -> ServedJob | None:
    """Return the job of an output folder, or of a generation of a service folder: the current one where none is named.

    None where the folder holds neither.

    Raises: UsageError for a generation that there is not, or whose job is gone; DamagedFileError.
    """
    found = Service.at(folder)
    if found is None:
        if number is not None:
            msg = f"{folder}: generation {number} is of a service folder, and this is none"
            raise UsageError(msg)
        return ServedJob.read(folder, kind)
    service, own = found
    generation = service.numbered(number)
    try:
        return job_of(generation, kind_of(service, kind or own))
    except UsageError as error:
        msg = f"generation {generation.generation} of {service.folder}: {error}"
        raise UsageError(msg) from error


def job_of(generation: Generation, kind: str | None) -> ServedJob:
    """Return the job of a generation, as a server of a kind needs to know it.

    Raises: UsageError where its folder holds none, or another one.
    """
    job = ServedJob.read(generation.out, kind)
    if job is None or job.job_id.partition(".")[0] != generation.job_id:
        what = "holds no job" if job is None else f"holds another job than {generation.job_id}"
        msg = f"{generation.job}: it {what}; put the folder back, or promote another job"
        raise UsageError(msg)
    return job.in_generation(generation.generation)
