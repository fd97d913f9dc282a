"""The options of `freshet produce`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from freshet.job.errors import UsageError
from freshet.operators.parser.formats import SUFFIXES


def produce(
    events: Annotated[
        list[str], typer.Option(metavar="PATH", help=f"Event file ({', '.join(SUFFIXES)}) or folder; repeatable.")
    ],
    to: Annotated[str, typer.Option(metavar="KAFKA", help="Topic: kafka://HOST:PORT/TOPIC.")],
    rate: Annotated[float | None, typer.Option(min=0.001, help="Events per second (default: no limit).")] = None,
    key: Annotated[
        Literal["dst", "src", "one"],
        typer.Option(
            help="Key that selects the partition: an edge's destination, its source, or one (all in partition 0)."
        ),
    ] = "dst",
    batch: Annotated[
        int | None, typer.Option(min=1, help="Maximum events per message (default: 1, with Arrow 1000).")
    ] = None,
    message_format: Annotated[
        Literal["jsonl", "arrow"],
        typer.Option("--format", help="Format of the messages: JSON lines, or an Arrow IPC stream."),
    ] = "jsonl",
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Number of partitions with which to create the topic if it does not exist."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with client properties under `kafka:`.")] = None,
) -> None:
    """Feed event files to a Kafka topic.

    JSON lines are sent unchanged, malformed ones included. Each partition keeps the order of the files; there is no
    order between partitions, so --key decides which events stay in order: dst an edge and its deletion, a vertex and
    its in-edges; src the same with out-edges; one all. Prints a JSON line when the broker has acknowledged all events.

    [bold]Example[/bold]

    [cyan]freshet produce --events changes.jsonl --to kafka://localhost:9092/changes --partitions 4[/cyan]
    """
    from freshet.job.kafka.address import KafkaAddress, KafkaAddressError
    from freshet.job.options.config_file import load_properties
    from freshet.job.run.preflight import event_files

    try:
        address = KafkaAddress.parse(to)
    except KafkaAddressError as error:
        msg = f"--to: {error}"
        raise UsageError(msg) from None
    event_files(events)
    from freshet.job.kafka import produce as producing

    summary = producing.produce(
        events=events,
        to=address,
        key=key,
        batch=batch,
        message_format=message_format,
        rate=rate,
        partitions=partitions,
        properties=load_properties(config),
    )
    print(json.dumps(summary), flush=True)
