"""The options of `freshet run`, drawn from their classes; what it does is in `job.run`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.options.config_file import load_run_config
from freshet.job.options.flags import keys_of_the_file, parameter, parameters
from freshet.job.options.flink_keys import bare_secrets, resolve
from freshet.job.options.layers import take_layers
from freshet.job.options.marks import IO
from freshet.job.options.runtime_options import AUTO
from freshet.job.uris import uri_in
from freshet.log_lines import log_as


def run(**given: Any) -> None:
    """Stream graph events through a model and keep every embedding fresh.

    The change log of embeddings goes to OUT/embeddings, and the input positions at which each epoch ends to OUT/epochs.
    The last line on stdout is a JSON summary. The run ends when its input ends. Ctrl-C or `freshet stop OUT` ends it
    sooner, and --resume continues from there.

    [bold]Examples[/bold]

    [cyan]freshet run --model M --events changes.jsonl --out O[/cyan]
    starts from an empty graph.

    [cyan]freshet run --model M --snapshot S --events day1.parquet --events day2.parquet --out O --parallelism 2[/cyan]
    starts from a graph, on two subtasks.

    [cyan]freshet run --model M --events changes/ --out O --resume latest[/cyan]
    continues after a stop or a kill.

    [cyan]freshet run --model M --events kafka://B:9092/T --out O --resume auto[/cyan]
    begins in a new folder, continues in a used one: one line for systemd, Compose or Kubernetes.

    [cyan]freshet run --config job.yaml --epoch-events 100[/cyan]
    takes all options but one from a file (model: M, epoch-ms: 5, ...).
    """
    config = given.pop("config")
    options = {name.rstrip("_"): value for name, value in given.items() if value not in (None, [])}
    raise typer.Exit(start(options, config))


def start(options: Mapping[str, Any], config: Path | None, *, in_application: bool = False) -> int:
    """Run the job of these flags and this --config file; returns the exit code.

    `in_application`: Flink has started this program, in application mode; the job begins, goes on, or was recovered.
    """
    given = {**options, "resume": AUTO} if in_application else options
    settings = load_run_config(given, config)
    if settings.log_format is not None:
        log_as(settings.log_format)
    for key in bare_secrets(options.get("flink", ())):
        say(f"-D {key}: everybody on this machine can read a command line; write -D '{key}=${{NAME}}' or use --config")
    from freshet.files.owner_only import close_to_others
    from freshet.job.folder.lock import taken
    from freshet.job.run.preflight import begins, check_application, check_out, check_run
    from freshet.job.run.processor import settle

    if in_application:
        check_application(settings)
    settle(settings.processor, resumed=settings.out if settings.resume else None)  # before anything loads numpy

    take_layers(settings.layers)
    folders = _fetched({"model": settings.model, "snapshot": settings.snapshot}, settings.flink, settings.out)
    settings = settings.model_copy(update=folders)
    check_run(settings)
    with taken(settings.out, "freshet run"):
        if settings.resume == AUTO and begins(settings.out):
            settings = load_run_config({**given, "resume": None, **folders}, config)
        check_out(settings.out, settings.resume)
        close_to_others(settings.out)
        from freshet.job.run import runner

        return runner.run(settings, in_application=in_application)


def _fetched(named: Mapping[str, Path | None], given: Mapping[str, str], out: Path) -> dict[str, Path]:
    """Return the local folders of those options that name a place in a store, fetched from there.

    `given` are Flink's options, by which the store is reached; without any, those of the job in `out`.
    """
    uris = {name: uri for name, path in named.items() if path is not None and (uri := uri_in(path)) is not None}
    if not uris:
        return {}
    from freshet.job.folder.job_file import store_options
    from freshet.job.stores.fetched_folder import fetch_folder

    known = None if given else store_options(out)
    flink = resolve(given) if known is None else known
    return {name: fetch_folder(f"--{name}", uri, flink) for name, uri in uris.items()}


def parameters_of_run() -> list[inspect.Parameter]:
    """Return the flags of the options, with --config after those of the input."""
    found = parameters()
    others = ", ".join(keys_of_the_file())
    text = "YAML file with any of these options, and options without a flag (docs/reference/options.md)"
    order = "A variable such as FRESHET_RUN_PARTS, for --parts, wins over the file; a flag wins over both."
    config = typer.Option(help=f"{text}: {others}. {order}", rich_help_panel=IO)
    at = 1 + next(k for k, one in enumerate(found) if one.name == "snapshot")
    return [*found[:at], parameter("config", Annotated[Path | None, config]), *found[at:]]


class RunCommand(TyperCommand):
    """The command, which also explains options that are keys of the --config file alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises: UsageError for an option that has no flag.
        """
        for flag in (one.partition("=")[0] for one in args if one.startswith("--")):
            key = flag.removeprefix("--").removeprefix("no-")
            if key in keys_of_the_file():
                msg = f"{flag}: a key of the --config file, not a flag; write `{key}: ...` in the file"
                raise UsageError(msg)
        return super().parse_args(ctx, args)


COMMAND = RunCommand
run.__signature__ = inspect.Signature(parameters_of_run())  # type: ignore[attr-defined]
