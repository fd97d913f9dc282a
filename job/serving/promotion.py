"""Changes of a service: another job takes over, or an earlier one again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.folder.job_file import SavedJob
from freshet.job.folder.returned_kinds import refuse_inner
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.service.current_topic import base_of, current_of, pointer_of, publish, topic_of_job
from freshet.job.service.generations import FILE, GENERATIONS_MAX, Contract, Generation, Service, Why
from freshet.job.serving.tables import place
from freshet.job.serving.tables.change_log_rows import positions_at
from freshet.job.serving.tables.seen import read_seen
from freshet.job.serving.tables.served_job import ServedJob, readouts_of

_POLL_S = 0.1
_SHOWN = 3


class Lack(NamedTuple):
    """A partition in which one job is behind another: the next offset that it has, and the one of the other."""

    source: str
    partition: int
    has: int
    wants: int

    def __str__(self) -> str:
        return f"{self.source}:{self.partition} at {self.has}, not {self.wants}"


class JobOfService(NamedTuple):
    """A job that serves, or may serve."""

    out: Path
    job_id: str
    model: str  # SHA-256
    contract: Contract
    served: Mapping[str, ServedJob]  # by kind; under an empty name where the model returns one, or has none
    topic: KafkaAddress | None = None  # of its embeddings

    @staticmethod
    def read(out: Path) -> JobOfService:
        """Return the job of an output folder.

        Raises: UsageError where it holds none, one without embeddings, or one whose first epoch can't be read yet.
        """
        saved = SavedJob.read(out)
        if saved is None:
            msg = f"{out}: holds no job; give the --out folder of a `freshet run`"
            raise UsageError(msg)
        refuse_inner(out, "a service")
        kinds = list(readouts_of(saved.settings.model, saved.model_sha256).widths)
        found = {kind: ServedJob.read(out, kind or None) for kind in kinds}
        served = {kind: job for kind, job in found.items() if job is not None}
        if len(served) < len(kinds):
            msg = f"{out}: its first epoch is not readable yet; wait until `freshet status {out}` says running"
            raise UsageError(msg)
        settings = saved.settings
        contract = Contract(returned=[*settings.returned], id_kind=settings.id_kind, sources=[*settings.sources])
        return JobOfService(out, settings.job_id, saved.model_sha256, contract, served, topic_of_job(out))

    @staticmethod
    def of(generation: Generation) -> JobOfService:
        """Return the job of a generation.

        Raises: UsageError where its folder holds none, or another one.
        """
        job = JobOfService.read(generation.out)
        if job.job_id != generation.job_id:
            msg = (
                f"{generation.job}: it holds the job {job.job_id}, and generation {generation.generation} is of the "
                f"job {generation.job_id}; put its folder back, or give `freshet promote` another job with --force"
            )
            raise UsageError(msg)
        return job

    def positions(self) -> dict[tuple[str, int], int]:
        """Return the next offset by source and partition, as of its newest readable epoch."""
        job = next(iter(self.served.values()))
        rows = positions_at(job.log, job.complete_epoch(), job.sources).tolist()
        return {(job.sources[source], partition): upto for source, partition, upto, _ in rows}

    @property
    def is_over(self) -> bool:
        """True if nobody runs it any more."""
        return next(iter(self.served.values())).is_over()

    def lacks(self, other: JobOfService) -> list[Lack]:
        """Return the partitions in which it is behind another job."""
        mine = self.positions()
        return [
            Lack(source, partition, mine.get((source, partition), 0), wants)
            for (source, partition), wants in sorted(other.positions().items())
            if mine.get((source, partition), 0) < wants
        ]


class Promotion(NamedTuple):
    """A change that was made: the new generation, and whether all servers that run have changed over.

    `published`: whether the topic of generations has it; None where the job writes to no topic.
    """

    generation: Generation
    readable: bool
    published: bool | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what commands print."""
        fields = {**self.generation.model_dump(by_alias=True), "readable": self.readable}
        return fields if self.published is None else {**fields, "published": self.published}

    @property
    def has_reached_all(self) -> bool:
        """True if all readers that are known of have it, or can have it."""
        return self.readable and self.published is not False


def promote(
    service: Service,
    out: Path,
    *,
    wait_s: float,
    force: bool,
    why: Why = "promote",
    properties: ClientProperties | None = None,
) -> Promotion:
    """Have a service go on with another job, or begin with one; readers of the job's topic, too.

    Nothing is written where it is refused. For the current job the topic of generations is written, where it lacks it.

    Raises: UsageError where the job can't serve in its place, or is behind for longer than `wait_s`.
    """
    job = JobOfService.read(out.absolute())  # before the folder is made
    with service.changing():
        deadline, current = time.monotonic() + wait_s, service.current()
        if current is not None and current.job_id == job.job_id:
            made = publish_again(service, current, properties)
            if made.published is None:
                msg = f"{job.out}: it serves already, as generation {current.generation}"
                raise UsageError(msg)
            return made
        if current is not None:
            _check(job, service.contract())
            if not force:
                serving = JobOfService.of(current)
                if why != "swap":  # that has chosen the topic, or was given it
                    _check_topic(job, serving)
                _await(job, serving, deadline)
        return _change(service, current, job, why, deadline, properties)


def rollback(
    service: Service, to: int | None, *, wait_s: float, force: bool, properties: ClientProperties | None = None
) -> Promotion:
    """Have a service go on with the job before, or that of a generation; readers of its topic, too.

    Raises: UsageError where there is none, or it has ended and is behind; nothing is written.
    """
    service.serving()  # before a folder is made
    with service.changing():
        deadline, found = time.monotonic() + wait_s, service.generations()
        current = found[-1]
        earlier = [one for one in found if one.job_id != current.job_id and to in (None, one.generation)]
        if not earlier:
            what = "no earlier job" if to is None else f"no generation {to} of another job than the current one"
            msg = f"{service.folder}: there is {what}; generations: 0 to {current.generation}"
            raise UsageError(msg)
        job = JobOfService.of(earlier[-1])
        if not force:
            _await(job, JobOfService.of(current), deadline)
        return _change(service, current, job, "rollback", deadline, properties)


def _check(job: JobOfService, first: Contract) -> None:
    """Refuse a job that readers of the service could not go on with.

    Raises: UsageError
    """
    own = job.contract
    if own.id_kind != first.id_kind:
        kinds = [("strings" if one.id_kind == "string" else "integers") for one in (own, first)]
        msg = f"{job.out}: its ids are {kinds[0]}, and those of the service {kinds[1]}"
        raise UsageError(msg)
    if lacking := [kind for kind in first.returned if kind not in own.returned]:
        msg = f"{job.out}: its model does not return {', '.join(lacking)}, which the service has from generation 0 on"
        raise UsageError(msg)
    if set(own.sources) != set(first.sources):
        msg = f"{job.out}: it reads {', '.join(own.sources)}, and the service's jobs {', '.join(first.sources)}"
        raise UsageError(msg)


def _check_topic(job: JobOfService, serving: JobOfService) -> None:
    """Refuse a job that readers of the current one's topic could not follow to.

    Raises: UsageError
    """
    if serving.topic is None:
        return
    base, pointer = base_of(serving.topic.topic), pointer_of(serving.topic)
    if job.topic is None or base_of(job.topic.topic) != base:
        writes = "no topic" if job.topic is None else f"the topic {job.topic.topic}"
        msg = (
            f"{job.out}: it writes to {writes}, and readers of {pointer} take {base}, {base}-g1 and so on; begin a job "
            f"with such a topic in --embeddings-to, or give --force: they stay with the job before"
        )
        raise UsageError(msg)


def _publish(generation: Generation, job: JobOfService, properties: ClientProperties | None) -> bool | None:
    """Write which topic is the current one; None where it was written already.

    False where the brokers do not take it, which a line says: the generation stands.
    """
    assert job.topic is not None
    pointer = f"{job.topic} is not the current topic for its readers"
    try:
        current = current_of(generation, job.topic)
        return publish(pointer_of(job.topic), current, properties or ClientProperties()) or None
    except (UsageError, JobFailed) as error:
        say(
            f"{pointer}: {one_line(error)}; generation {generation.generation} serves all the same, and readers of "
            f"topics stay with the one before until `freshet promote V {job.out}` is repeated",
            "warning",
        )
        return False


def publish_again(service: Service, current: Generation, properties: ClientProperties | None) -> Promotion:
    """Write the current generation to the topic of generations, where that lacks it: `published` is None elsewhere."""
    job = JobOfService.of(current)
    published = None if job.topic is None else _publish(current, job, properties)
    return Promotion(current, _is_readable(service, current.generation, lambda: True), published)


def _await(job: JobOfService, current: JobOfService, deadline: float) -> None:
    """Return once a job has read as far as the current one.

    Raises: UsageError where it has not in time, or has ended before.
    """
    while lacks := job.lacks(current):
        shown = "; ".join(map(str, lacks[:_SHOWN]))
        if job.is_over:
            how = f"`freshet run --resume latest --out {job.out}`"
            msg = f"{job.out}: it has ended and is behind: {shown}; resume it by {how}, or give --force"
            raise UsageError(msg)
        if time.monotonic() >= deadline:
            msg = f"{job.out}: it is behind the current job: {shown}; wait longer (--wait), or give --force"
            raise UsageError(msg)
        time.sleep(_POLL_S)


def _change(
    service: Service,
    current: Generation | None,
    job: JobOfService,
    why: Why,
    deadline: float,
    properties: ClientProperties | None,
) -> Promotion:
    number = 0 if current is None else current.generation + 1
    if number >= GENERATIONS_MAX:
        msg = f"{service.folder}: it has had {GENERATIONS_MAX:,} generations; make a new service folder"
        raise UsageError(msg)
    if (seen := max(map(_seen, _folders(service)))) >= number:
        msg = (
            f"{service.folder / FILE}: it ends with generation {number - 1}, and readers have seen generation {seen}; "
            "put it back from a copy that has that one"
        )
        raise UsageError(msg)
    before, since_ms = None if current is None else current.generation, time.time_ns() // 10**6
    made = Generation(
        generation=number,
        job=str(job.out),
        job_id=job.job_id,
        model=job.model,
        since_ms=since_ms,
        why=why,
        from_=before,
    )
    if current is None:
        service.begin(job.contract)
    service.add(made)
    published = None
    if job.topic is not None:
        published = _publish(made, job, properties) is not False
    elif current is not None and (former := topic_of_job(current.out)) is not None:
        say(f"{job.out} writes to no topic: readers of {pointer_of(former)} stay with the job before", "warning")
    return Promotion(made, _is_readable(service, number, lambda: time.monotonic() >= deadline), published)


def _is_readable(service: Service, generation: int, is_late: Callable[[], bool]) -> bool:
    """Return whether all servers of a service that run have changed over, in time."""
    while any(place.shown_generation(one) < generation for one in _live_tables(service)):
        if is_late():
            return False
        time.sleep(_POLL_S)
    return True


def _seen(tables: Path) -> int:
    return max(place.shown_generation(tables), read_seen(tables).generation)


def _live_tables(service: Service) -> list[Path]:
    """Return the folders of tables that a server keeps now."""
    return [one for one in _folders(service) if place.has_server(one)]


def _folders(service: Service) -> list[Path]:
    """Return the folders in which servers keep tables."""
    return [service.tables, *(one for one in service.tables.glob("*/") if one.is_dir())]
