"""The `freshet` command: the menu of its commands, and the exit codes."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any, NoReturn

from freshet.job.machine.python_path import given_folders, mixed_files

if mixture := mixed_files():
    print(f"freshet: {mixture}", file=sys.stderr)
    sys.exit(2)
sys.path.sort(key=given_folders().__contains__)  # PYTHONPATH may name other versions of what we need

import typer

from freshet.errors import FreshetError, InputError
from freshet.files.owner_only import write_for_owner_only
from freshet.job.console import LOG_FORMAT_HELP
from freshet.job.errors import EXIT_SIGINT, EXIT_USAGE, exit_code, one_line
from freshet.job.machine.processes import run_as_process
from freshet.log_lines import FORMATS, LogFormat, is_json, log, log_as, log_exception
from freshet.version import __version__

_HELP = """Keeps the embeddings of a trained GNN exact while its graph changes.

Graph events in, fresh embeddings out, by an incremental job on Apache Flink (or in one local process).
"""

# Each is the function of that name in the module of that name in job/commands. Those of model and layer are menus.
_COMMANDS = (
    "run spec stop status size serve promote rollback swap query history watch check embed export train compact "
    "produce model layer warm-up"
).split()
# Those that take long enough to be logged; run has the option among its own.
_LOGGED = frozenset("stop serve promote rollback watch check embed export train compact produce warm-up".split())
_LOG_FORMAT = "--log-format"
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
    elif name == "layer":
        layers = typer.Typer(help="Check what layers declare, built-in or your own.", no_args_is_help=True)
        app.add_typer(layers, name=name)
        layers.command()(module.check)
    else:
        command = getattr(module, function)
        app.command(name, cls=getattr(module, "COMMAND", None))(_logged(command) if name in _LOGGED else command)


def _logged(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the option for the format of its log, which `main` has followed already."""

    @wraps(command)
    def called(*, log_format: str, **given: Any) -> Any:
        return command(**given)

    signature = inspect.signature(command, eval_str=True)
    annotation = Annotated[LogFormat, typer.Option(_LOG_FORMAT, help=LOG_FORMAT_HELP, show_default=False)]
    extra = inspect.Parameter("log_format", inspect.Parameter.KEYWORD_ONLY, default="text", annotation=annotation)
    called.__signature__ = signature.replace(parameters=[*signature.parameters.values(), extra])  # type: ignore[attr-defined]
    return called


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
    given = list(sys.argv[1:] if arguments is None else arguments)
    if (chosen := log_format_in(given)) is not None:
        log_as(chosen)  # before the options are parsed, so that their errors have it, too
    sys.exit(_guarded(lambda: _call(menu(_of_text(given)), given)))


def _of_text(given: Sequence[str]) -> Sequence[str]:
    """Return the arguments; they stand in files of JSON and Parquet, which have text alone.

    Raises: InputError for bytes that are not UTF-8.
    """
    for one in given:
        if (shown := one.encode(errors="surrogateescape").decode(errors="backslashreplace")) != one:
            msg = f"{shown}: got bytes that are not UTF-8; give the file or folder another name"
            raise InputError(msg)
    return given


def log_format_in(given: Sequence[str]) -> LogFormat | None:
    """Return the format that a command line asks for; None where it does not, or for what is none."""
    asked = [one.partition("=")[2] for one in given if one.startswith(f"{_LOG_FORMAT}=")]
    asked += [value for flag, value in pairwise(given) if flag == _LOG_FORMAT]
    return asked[-1] if asked and asked[-1] in FORMATS else None  # type: ignore[return-value]


def _call(app: typer.Typer, given: list[str]) -> int:
    """Call a command, and return its exit code; errors of the command line are one line in a log of objects."""
    if not is_json():
        app(args=given)
        return 0
    try:
        return int(app(args=given, standalone_mode=False) or 0)
    except Exception as error:
        if not hasattr(error, "format_message"):  # of the parser that typer has inside
            raise
        log(error.format_message(), "error")
        return EXIT_USAGE


def _guarded(command: Callable[[], int]) -> int:
    try:
        return command()
    except KeyboardInterrupt:
        return EXIT_SIGINT
    except InputError as error:
        for line in str(error).splitlines():
            _complain(line)
        return exit_code(error)
    except Exception as error:
        if not isinstance(error, FreshetError):
            log_exception(error)
        _complain(one_line(error))
        return exit_code(error)


def _complain(text: str) -> None:
    log(text if is_json() else f"freshet: {text}", "error")


def program() -> NoReturn:
    """Run the command line as the program of this process."""
    run_as_process(main)


if __name__ == "__main__":
    program()
