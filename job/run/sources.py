"""What `--events` names, in order: files (those of a folder one by one) and Kafka topics, numbered as sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from job.errors import UsageError
from job.kafka.address import KafkaAddress, KafkaAddressError, is_kafka
from operators.parser.files import Chunk, EventFile, EventFileError, list_files, plan_file


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a job; an event's `source` is the index in `names`."""

    names: tuple[str, ...] = ()
    files: tuple[EventFile, ...] = ()
    topics: dict[int, KafkaAddress] = field(default_factory=dict)

    def chunks(self) -> list[Chunk]:
        """The reading plan of the files.

        Raises: EventFileError for one that can't be read.
        """
        return [chunk for file in self.files for chunk in plan_file(file)]


def find_sources(events: Sequence[str]) -> Sources:
    """Return what the values of `--events` name.

    Raises: EventFileError for a path that can't be read; KafkaAddressError; UsageError for a topic that comes twice.
    """
    names: list[str] = []
    files: list[EventFile] = []
    topics: dict[int, KafkaAddress] = {}
    for given in events:
        if not is_kafka(given):
            found = [replace(file, source=file.source + len(names)) for file in list_files([given])]
            files += found
            names += [file.name for file in found]
            continue
        address = KafkaAddress.parse(given)
        if address.topic in {other.topic for other in topics.values()}:
            message = f"--events {given}: the topic {address.topic} is named twice; its events would count twice"
            raise UsageError(message)
        topics[len(names)] = address
        names.append(str(address))
    return Sources(tuple(names), tuple(files), topics)


def named_sources(events: Sequence[str], recorded: Sequence[str]) -> tuple[Sources, list[str]]:
    """The sources, and for each the name that the run recorded for it, in reading order.

    Files that lie elsewhere now, and brokers that have another address, are taken by their place in the order.

    Raises:
        UsageError: they can't be the run's.
    """
    try:
        sources = find_sources(events)
    except (EventFileError, KafkaAddressError) as error:
        message = f"--events: {error}"
        raise UsageError(message) from None
    if set(recorded) <= set(sources.names):
        return sources, list(sources.names)
    if len(recorded) == len(sources.names):
        return sources, list(recorded)
    message = f"--events: got {len(sources.names)} files, the run read {len(recorded)}: {', '.join(recorded)}"
    raise UsageError(message)
