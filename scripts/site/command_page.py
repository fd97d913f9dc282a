"""The reference of all commands, from the options as the command line has them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from freshet.job.cli import menu

_HEAD = """# Commands

Each command prints this by `--help`. Results in JSON stand alone on stdout, progress goes to stderr.
"""


def page() -> str:
    """Markdown: a section for each command."""
    top: Any = typer.main.get_command(menu([]))
    return "\n".join(
        [_HEAD, *(line for name, one in top.commands.items() for line in _section(f"freshet {name}", one))]
    )


def _section(name: str, command: Any) -> Iterator[str]:
    if hasattr(command, "commands"):
        for below, one in command.commands.items():
            yield from _section(f"{name} {below}", one)
        return
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## `{name}`\n"
    yield f"```text\n{name} {usage}\n```\n"
    yield _plain(command.help or "") + "\n"
    yield "| option | meaning |\n|---|---|"
    for one in command.get_params(context):
        if (record := one.get_help_record(context)) is not None and one.name != "help":
            words, about = record
            yield f"| {_cell('`' + words.strip() + '`')} | {_cell(about)} |"
    yield ""


def _plain(text: str) -> str:
    """The text of a help without its marks for terminals."""
    text = inspect.cleandoc(text).replace("\b", "")
    text = re.sub(r"\[bold\](.*?)\[/bold\]", r"**\1**", text)
    return re.sub(r"\[cyan\](.*?)\[/cyan\]\n?", r"\n```text\n\1\n```\n\n", text, flags=re.DOTALL)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
