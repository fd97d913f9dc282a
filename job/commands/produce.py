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
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Events per second (default: as fast as it goes).")
    ] = None,
    key: Annotated[
        Literal["dst", "src", "one"],
        typer.Option(help="What chooses the partition: an edge's destination, its source, or all to partition 0."),
    ] = "dst",
    batch: Annotated[
        int | None, typer.Option(min=1, help="Most events per message (default: 1, of Arrow 1000).")
    ] = None,
    message_format: Annotated[
        Literal["jsonl", "arrow"], typer.Option("--format", help="Messages of JSON lines, or of an Arrow IPC stream.")
    ] = "jsonl",
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Make the topic with that many partitions if it is not there.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with client properties under `kafka:`.")] = None,
) -> None:
    """Feed event files to a Kafka topic.

    Lines of JSON go as they stand, malformed ones too. Each partition keeps the order of the files; between partitions
    there is none, so --key decides which events stay in order: dst an edge and its deletion, a vertex and its in-edges;
    src the same with out-edges; one all. Ends with a JSON line when the broker has everything.

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
