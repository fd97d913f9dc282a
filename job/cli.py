"""The `freshet` command: the menu of its commands, and the exit codes."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

from freshet.job.machine.distributions import mixed_files
from freshet.job.machine.python_path import given_folders

if mixture := mixed_files():
    print(f"freshet: {mixture}", file=sys.stderr)
    sys.exit(2)
sys.path.sort(key=given_folders().__contains__)  # PYTHONPATH may name other versions of what we need

import typer

from freshet import __version__
from freshet.errors import FreshetError, InputError
from freshet.files.owner_only import write_for_owner_only
from freshet.job.errors import EXIT_SIGINT, exit_code, one_line

_HELP = """Keeps the embeddings of a trained GNN exact while its graph changes.

Graph events in, fresh embeddings out, by an incremental job on Apache Flink (or in one local process).
"""

# Each is the function of that name in the module of that name in job/commands. Model's are its own menu.
_COMMANDS = "run stop status serve query history watch check embed export compact produce model warm-up".split()
# Between two looks for garbage: what is imported is none, and a tenth of a command's start went into looking for it.
_ALLOCATIONS = 50_000


def menu(arguments: Sequence[str]) -> typer.Typer:
    """The app with the command that these arguments begin with; with all commands where they name none of them.

    Loading them all takes longer than a server may need to start.
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
    app.callback()(_root)
    asked = [name for name in _COMMANDS if name in arguments[:1]]
    for name in asked or _COMMANDS:
        _add(app, name)
    return app


def _add(app: typer.Typer, name: str) -> None:
    function = name.replace("-", "_")
    module = import_module(f"freshet.job.commands.{function}")
    if name == "model":
        models = typer.Typer(help="Import a trained model, and explain how it is updated.", no_args_is_help=True)
        app.add_typer(models, name=name)
        models.command("import")(module.import_model)
        models.command()(module.describe)
    else:
        app.command(cls=getattr(module, "COMMAND", None))(getattr(module, function))


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"freshet {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Options that stand before a command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and end the process with the exit code of the interface.

    An exception that nobody expected ends with 3: its traceback, then its message as the last line of stderr.
    """
    gc.set_threshold(_ALLOCATIONS, 20, 20)
    write_for_owner_only()
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(_guarded(lambda: menu(given)(args=given)))


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
