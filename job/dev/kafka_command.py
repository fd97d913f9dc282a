"""`scripts/kafka start|stop`: a Kafka broker on this machine, for development."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from freshet.job.dev.broker import Broker, start_broker
from freshet.job.dev.broker_files import forget, remember, remembered, servers_folder
from freshet.job.machine.ports import server_port

KIND = "kafka"

app = typer.Typer(help=f"{__doc__}", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command()
def start(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the broker (0: a free one).")] = 0,
    data: Annotated[
        Path | None, typer.Option(help="Its folder, kept by stop (default: one of its own, removed by stop).")
    ] = None,
    sasl: Annotated[bool | None, typer.Option("--sasl/--no-sasl", help="Clients log in (SASL/PLAIN).")] = None,
    tls: Annotated[bool | None, typer.Option("--tls/--no-tls", help="Clients speak TLS.")] = None,
    password: Annotated[
        str | None, typer.Option(envvar="FRESHET_KAFKA_PASSWORD", help="Of the user freshet (default: made up).")
    ] = None,
) -> None:
    """Start a broker, and print HOST:PORT when it answers.

    A broker that was killed comes back with its topics by the same --port or --data.
    """
    note = remembered(KIND).get(port, {})
    if note and _broker(port, note).is_alive():
        typer.echo(f"kafka: port {port}: runs already (process {note['pid']})", err=True)
        typer.echo(_broker(port, note).address)
        return
    if data is None:
        port = port or server_port()
        data = Path(note["data"]) if note else servers_folder(KIND) / str(port)
    own, new = data.parent == servers_folder(KIND), not data.exists()
    typer.echo(f"kafka: starting in {data}", err=True)
    try:
        broker = start_broker(data, port, sasl=sasl, tls=tls, password=password)
    except BaseException:
        if own and new:
            shutil.rmtree(data, ignore_errors=True)
        raise
    remember(KIND, broker.port, pid=broker.pid, began_s=broker.began_s, data=str(broker.data), own=own)
    typer.echo(f"kafka: process {broker.pid}; how clients connect (--config): {broker.client_file}", err=True)
    typer.echo(broker.address)


@app.command()
def stop(
    port: Annotated[int | None, typer.Option(help="Only the broker on this port (default: all).")] = None,
) -> None:
    """Stop the brokers that start has started; a folder that was not given by --data goes with its broker."""
    found = {known: note for known, note in remembered(KIND).items() if port in (None, known)}
    for known, note in found.items():
        broker = _broker(known, note)
        broker.stop()
        if note["own"]:
            shutil.rmtree(broker.data, ignore_errors=True)
        forget(KIND, known)
        typer.echo(f"kafka: stopped {broker.address}", err=True)
    if not found:
        typer.echo("kafka: nothing to stop" + (f" on port {port}" if port else ""), err=True)


def _broker(port: int, note: dict[str, object]) -> Broker:
    return Broker(int(str(note["pid"])), float(str(note["began_s"])), Path(str(note["data"])), port)
