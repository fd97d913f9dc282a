"""`scripts/cluster start|stop`: a local Flink cluster of several processes, for tests and demos."""

from __future__ import annotations

import shutil
import signal
from typing import Annotated

import typer

from freshet.job.dev.broker_files import forget, remember, remembered, servers_folder
from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.errors import UsageError
from freshet.job.machine.ports import server_port
from freshet.job.machine.processes import Process
from freshet.job.options.flink_keys import resolve
from freshet.job.stores.plugins import wanted_plugins

KIND = "cluster"

_END_TIMEOUT_S = 10.0

app = typer.Typer(help=f"{__doc__}", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command()
def start(
    taskmanagers: Annotated[int, typer.Option(min=1, help="TaskManagers, of one slot each.")] = 1,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the REST interface (0: a free one).")] = 0,
    define: Annotated[
        list[str] | None,
        typer.Option(
            "-D", metavar="KEY=VALUE", help="Option of Flink, such as s3.endpoint=http://minio:9000; ${NAME} is read."
        ),
    ] = None,
) -> None:
    """Start a JobManager and TaskManagers, and print the JobManager's REST address when their slots are there."""
    options = resolve(dict(_pair(one) for one in define or ()))
    wanted_plugins(options, ())
    port = server_port(port)
    folder = servers_folder(KIND) / str(port)
    shutil.rmtree(folder, ignore_errors=True)
    typer.echo(f"cluster: starting a JobManager and {taskmanagers} TaskManager(s); logs in {folder}/log", err=True)
    cluster = LocalCluster(folder, taskmanagers, options=options, port=port).start()
    processes = [cluster.job_manager, *cluster.task_managers]
    remember(KIND, port, processes=[(process.pid, process.began_s) for process in processes if process])
    pids = ", ".join(f"{process.name} {process.pid}" for process in processes if process)
    typer.echo(f"cluster: {pids}; Flink's web page: http://{cluster.rest}", err=True)
    typer.echo(cluster.rest)


@app.command()
def stop(
    port: Annotated[int | None, typer.Option(help="Only the cluster on this port (default: all).")] = None,
) -> None:
    """Stop the clusters that start has started; checkpoints of their jobs stay."""
    found = {known: note for known, note in remembered(KIND).items() if port in (None, known)}
    for known, note in found.items():
        _kill([Process(pid, began_s) for pid, began_s in note["processes"]])
        shutil.rmtree(servers_folder(KIND) / str(known), ignore_errors=True)
        forget(KIND, known)
        typer.echo(f"cluster: stopped 127.0.0.1:{known}", err=True)
    if not found:
        typer.echo("cluster: nothing to stop" + (f" on port {port}" if port else ""), err=True)


def _pair(given: str) -> tuple[str, str]:
    key, sign, value = given.partition("=")
    if not sign:
        msg = f"-D {key}: got no value, expected KEY=VALUE"
        raise UsageError(msg)
    return key, value


def _kill(processes: list[Process]) -> None:
    """End processes, and return when they can write nothing any more."""
    for process in processes:
        process.send(signal.SIGKILL)
    for process in processes:
        process.await_end(_END_TIMEOUT_S)
