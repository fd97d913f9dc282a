"""The `freshet` command: options in, exit codes out; what a command does lives in modules loaded when it runs."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version as distribution_version
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_args

import typer

from gnn.errors import FreshetError, InputError
from job.commands.check import check
from job.commands.export import export
from job.commands.produce import produce
from job.errors import EXIT_SIGINT, UsageError, exit_code, one_line
from job.kafka.output import Delivery
from job.options.output_options import EmbeddingFormat
from job.options.run_config import (
    LATER,
    IdType,
    PartitionerName,
    ProcessorName,
    RunConfig,
    Runtime,
    StateBackend,
    load_run_config,
)
from job.units import format_duration, format_size

_HELP = """Keeps the embeddings of a trained GNN exact while its graph changes.

Graph events in, fresh embeddings out, by an incremental job on Apache Flink (or in one local process).
"""
_PARTITIONERS: tuple[str, ...] = get_args(PartitionerName)
_IO, _RUNTIME, _EPOCHS, _FAULTS = "Input and output", "Runtime", "Epochs and parts", "Fault tolerance"
_KAFKA = "Embeddings to Kafka"
# How the defaults of some options are written; the others as they are.
_SHOWN: dict[str, Callable[[Any], str]] = dict.fromkeys(
    ("checkpoint_interval", "coalesce", "publish_within"), format_duration
) | {"dead_letters_max": format_size}

app = typer.Typer(
    name="freshet",
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
model_app = typer.Typer(help="Bring a trained model in; see what is incremental about it.", no_args_is_help=True)
app.add_typer(model_app, name="model")


def _flag(name: str, panel: str, *decls: str) -> Any:
    """The typer option of a field of RunConfig: name, help and default come from there.

    The flag's own default is None, "not given", so that the --config file can win over the default.
    """
    if name in LATER:
        return typer.Option("--" + name.replace("_", "-"), hidden=True)
    field = next(f for key, f in RunConfig.model_fields.items() if (f.alias or key) == name)
    text, default = f"{field.description}", field.default
    if not field.is_required() and default is not None and not isinstance(default, bool):
        shown = _SHOWN.get(name, str)(default)
        text = f"{text.removesuffix('.')} (default: {shown})."
    flags = decls or ("--" + name.replace("_", "-"),)
    metavar = "PATH" if name == "events" else None
    return typer.Option(*flags, help=text, rich_help_panel=panel, show_default=False, metavar=metavar)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"freshet {distribution_version('freshet-gnn')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Options that stand before a command."""


@app.command()
def run(
    model: Annotated[Path | None, _flag("model", _IO)] = None,
    events: Annotated[list[str] | None, _flag("events", _IO)] = None,
    out: Annotated[Path | None, _flag("out", _IO)] = None,
    from_: Annotated[str | None, _flag("from", _IO)] = None,
    until: Annotated[str | None, _flag("until", _IO)] = None,
    snapshot: Annotated[Path | None, _flag("snapshot", _IO)] = None,
    ignore_positions: Annotated[bool | None, _flag("ignore_positions", _IO, "--ignore-positions")] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file with any of these options; a flag wins.", rich_help_panel=_IO)
    ] = None,
    publish_within: Annotated[str | None, _flag("publish_within", _IO)] = None,
    dead_letters: Annotated[str | None, _flag("dead_letters", _IO)] = None,
    dead_letters_max: Annotated[str | None, _flag("dead_letters_max", _IO)] = None,
    embeddings_to: Annotated[str | None, _flag("embeddings_to", _KAFKA)] = None,
    embedding_format: Annotated[EmbeddingFormat | None, _flag("embedding_format", _KAFKA)] = None,
    delivery: Annotated[Delivery | None, _flag("delivery", _KAFKA)] = None,
    coalesce_epochs: Annotated[int | None, _flag("coalesce_epochs", _KAFKA)] = None,
    coalesce: Annotated[str | None, _flag("coalesce", _KAFKA)] = None,
    undirected: Annotated[bool | None, _flag("undirected", _IO, "--undirected/--directed")] = None,
    id_type: Annotated[IdType | None, _flag("id_type", _IO)] = None,
    id_bytes_max: Annotated[int | None, _flag("id_bytes_max", _IO)] = None,
    stay: Annotated[bool | None, _flag("stay", _IO, "--stay/--no-stay")] = None,
    runtime: Annotated[Runtime | None, _flag("runtime", _RUNTIME)] = None,
    cluster: Annotated[str | None, _flag("cluster", _RUNTIME)] = None,
    parallelism: Annotated[int | None, _flag("parallelism", _RUNTIME)] = None,
    state_backend: Annotated[StateBackend | None, _flag("state_backend", _RUNTIME)] = None,
    memory: Annotated[str | None, _flag("memory", _RUNTIME)] = None,
    processor: Annotated[ProcessorName | None, _flag("processor", _RUNTIME)] = None,
    parts: Annotated[int | None, _flag("parts", _EPOCHS)] = None,
    epoch_events: Annotated[int | None, _flag("epoch_events", _EPOCHS)] = None,
    epoch_ms: Annotated[int | None, _flag("epoch_ms", _EPOCHS)] = None,
    partitioner: Annotated[PartitionerName | None, _flag("partitioner", _EPOCHS)] = None,
    hybrid_threshold: Annotated[int | None, _flag("hybrid_threshold", _EPOCHS)] = None,
    hdrf_lambda: Annotated[float | None, _flag("hdrf_lambda", _EPOCHS)] = None,
    hdrf_epsilon: Annotated[float | None, _flag("hdrf_epsilon", _EPOCHS)] = None,
    checkpoint_dir: Annotated[str | None, _flag("checkpoint_dir", _FAULTS)] = None,
    checkpoint_interval: Annotated[str | None, _flag("checkpoint_interval", _FAULTS)] = None,
    keep_cuts: Annotated[bool | None, _flag("keep_cuts", _FAULTS, "--keep-cuts/--no-keep-cuts")] = None,
    restarts: Annotated[int | None, _flag("restarts", _FAULTS)] = None,
    resume: Annotated[str | None, _flag("resume", _FAULTS)] = None,
    flight_port: Annotated[str | None, _flag("flight_port", "")] = None,
) -> None:
    """Stream graph events through a model and keep every embedding fresh.

    The change log of embeddings goes to OUT/embeddings, the input that each epoch ends with to OUT/epochs; the last
    line on stdout is a JSON summary. The run ends when its input does; Ctrl-C or `freshet stop OUT` end it sooner, and
    --resume goes on from there.

    [bold]Examples[/bold]

    [cyan]freshet run --model M --events changes.jsonl --out O[/cyan]
    starts from an empty graph.

    [cyan]freshet run --model M --snapshot S --events day1.parquet --events day2.parquet --out O --parallelism 2[/cyan]
    starts from a graph, on two subtasks.

    [cyan]freshet run --model M --events changes/ --out O --resume latest[/cyan]
    goes on after a stop or a kill.

    [cyan]freshet run --config job.yaml --epoch-events 100[/cyan]
    takes options from a file (model: M, epoch-ms: 5, ...), save for one.
    """
    # First thing in the function, so that its locals are the parameters and nothing else.
    given = {name: value for name, value in locals().items() if name != "config" and value not in (None, [])}
    if from_ is not None:
        given["from"] = given.pop("from_")
    settings = load_run_config(given, config)
    from job.run.preflight import check_run
    from job.run.processor import settle

    settle(settings)  # before anything loads numpy

    check_run(settings)
    from job.run import runner

    raise typer.Exit(runner.run(settings))


@app.command()
def stop(
    out: Annotated[Path, typer.Argument(help="Output folder of the running job.", show_default=False)],
    savepoint: Annotated[
        str | None, typer.Option(help="Folder or URI for the savepoint (default: OUT/checkpoints).")
    ] = None,
) -> None:
    """Stop the job that writes to OUT, with a savepoint.

    Prints the savepoint's path; what is in OUT is complete up to the epoch that is printed beside it.

    [bold]Examples[/bold]

    [cyan]freshet stop O[/cyan]

    [cyan]freshet stop --savepoint /backups O[/cyan]
    and later: [cyan]freshet run ... --out O --resume PATH[/cyan]
    """
    if not (out / "run.json").is_file():
        msg = f"{out}: no run.json in it; give the --out folder of a running `freshet run`"
        raise UsageError(msg)
    from job.run import stop as stopping

    raise typer.Exit(stopping.stop(out=out, savepoint=savepoint))


app.command()(check)
app.command()(export)
app.command()(produce)


@model_app.command("import")
def import_(
    factory: Annotated[
        str, typer.Argument(metavar="PACKAGE.MODULE:FACTORY", help="Callable that returns the PyTorch module.")
    ],
    weights: Annotated[Path, typer.Option(help="Trained weights: .safetensors, or a .pt state dict.")],
    out: Annotated[Path, typer.Option(help="Model folder to write; new or empty.")],
    edge_type: Annotated[
        list[str] | None, typer.Option(help="Edge type of a typed model, in order of its relations; repeatable.")
    ] = None,
) -> None:
    """Turn a trained PyTorch Geometric model into a model folder.

    Needs torch (pip install 'freshet-gnn[torch]'). The result is run beside the original on a random graph, and
    refused when they differ. From Python: freshet.export_model(module, folder).

    [bold]Example[/bold]

    [cyan]freshet model import mymodels.sage:make --weights sage.safetensors --out M[/cyan]
    """
    if ":" not in factory:
        msg = f"{factory}: expected PACKAGE.MODULE:FACTORY, such as mymodels.sage:make"
        raise UsageError(msg)
    if not weights.is_file() or weights.suffix not in (".safetensors", ".pt"):
        msg = f"--weights {weights}: expected an existing .safetensors or .pt file"
        raise UsageError(msg)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        msg = f"--out {out}: expected a folder that is new or empty"
        raise UsageError(msg)
    importing = _import_with_torch()
    importing.import_model(factory, weights, out, edge_types=edge_type or None)


@model_app.command()
def describe(model: Annotated[Path, typer.Argument(help="Model folder.", show_default=False)]) -> None:
    """Explain a model: per layer its algebra, what is incremental, and the state it keeps per vertex.

    [bold]Example[/bold]

    [cyan]freshet model describe M[/cyan]
    """
    from job.run.preflight import check_model

    check_model(model)
    from rich import print as show

    from gnn import describe as describing

    show(describing.describe(model))


@app.command()
def partition(
    parts: Annotated[int, typer.Option(min=1, help="Number of parts.")],
    events: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Event files or folders; repeatable.")
    ] = None,
    snapshot: Annotated[Path | None, typer.Option(help="Graph to place first, in the order of its rows.")] = None,
    partitioner: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(_PARTITIONERS)}; repeatable (default: all).")
    ] = None,
    undirected: Annotated[bool, typer.Option("--undirected/--directed", help="Mirror every edge.")] = False,
) -> None:
    """Show what each partitioner makes of a graph or a stream.

    Prints replication factor, cut, balance and edges/s of each.

    [bold]Example[/bold]

    [cyan]freshet partition --snapshot S --parts 8[/cyan]
    """
    from job.run.preflight import check_snapshot, event_files

    if snapshot is None and not events:
        msg = "nothing to partition; give --snapshot, --events, or both"
        raise UsageError(msg)
    if snapshot is not None:
        check_snapshot(snapshot)
    event_files(events or [])
    for name in partitioner or []:
        if name not in _PARTITIONERS:
            msg = f"--partitioner: got {name!r}, expected one of {', '.join(_PARTITIONERS)}"
            raise UsageError(msg)
    from job.commands import partition as partitioning

    code = partitioning.partition(
        parts=parts,
        events=events or [],
        snapshot=snapshot,
        partitioners=partitioner or list(_PARTITIONERS),
        undirected=undirected,
    )
    raise typer.Exit(code)


def _later(name: str, instead: str) -> None:
    """Register a command of the interface that this version does not have yet: it says so, whatever follows it."""

    def refuse(context: typer.Context) -> None:
        msg = f"freshet {name}: not in this version of Freshet; {instead}"
        raise UsageError(msg)

    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(name, hidden=True, context_settings=settings)(refuse)


_later("embed", "`freshet run --snapshot` computes the embeddings of the snapshot first")
_later("serve", "read OUT/embeddings")
_later("query", "read OUT/embeddings")
_later("watch", "read OUT/embeddings")


def _import_with_torch() -> ModuleType:
    try:
        from gnn.pyg import importing
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "torch_geometric"):
            raise
        msg = f"needs {error.name}, which is not installed: pip install 'freshet-gnn[torch]', or make install"
        raise UsageError(msg) from None
    return importing


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and end the process with the exit code of the interface.

    An exception that nobody expected ends with 3: its traceback, then its message as the last line of stderr.
    """
    sys.exit(_guarded(lambda: app(args=arguments)))


def _guarded(command: Callable[[], object]) -> int:
    try:
        command()
    except KeyboardInterrupt:
        return EXIT_SIGINT
    except InputError as error:
        for line in str(error).splitlines():
            print(f"freshet: {line}", file=sys.stderr)
        return exit_code(error)
    except Exception as error:
        if not isinstance(error, FreshetError):
            traceback.print_exc()
        print(f"freshet: {one_line(error)}", file=sys.stderr)
        return exit_code(error)
    return 0


if __name__ == "__main__":
    main()
