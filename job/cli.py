"""The `freshet` command: the menu of its commands, and the exit codes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version as distribution_version
from typing import Annotated

import typer

from gnn.errors import FreshetError, InputError
from job.commands.check import check
from job.commands.compact import compact
from job.commands.embed import embed
from job.commands.export import export
from job.commands.model import describe, import_model
from job.commands.partition import partition
from job.commands.produce import produce
from job.commands.query import query
from job.commands.run import run
from job.commands.serve import serve
from job.commands.stop import stop
from job.commands.warm_up import warm_up
from job.commands.watch import watch
from job.errors import EXIT_SIGINT, exit_code, one_line

_HELP = """Keeps the embeddings of a trained GNN exact while its graph changes.

Graph events in, fresh embeddings out, by an incremental job on Apache Flink (or in one local process).
"""

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


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"freshet {distribution_version('freshet-gnn')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Options that stand before a command."""


for command in (run, stop, serve, query, watch, check, embed, export, compact, produce):
    app.command()(command)
app.add_typer(model_app, name="model")
model_app.command("import")(import_model)
model_app.command()(describe)
app.command()(partition)
app.command()(warm_up)


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
