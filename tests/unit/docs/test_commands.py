"""Commands and code of README and docs: what they name is there, and what a reader tries first works.

Every `freshet …` line of a block, and every `freshet …` amid text, goes through the parser of the real command line.
`…` stands there for options that were given before. README's first steps are run. Other commands start servers,
clusters or brokers, or take long: those have tests of their own, with the same options.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from freshet.gnn.model import save_model
from freshet.job.cli import menu
from freshet.operators.snapshot.writer import write_snapshot
from tests.support.graphs.models import conv, make_model

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FRESHET = Path(sys.executable).with_name("freshet")
ELLIPSIS = "…"
NUMBERS = {"P": "4", "N": "4", "MS": "20"}  # what stands for a number in the text


def blocks(page: Path, language: str = "") -> list[str]:
    """The blocks of code of a page in a language; of none: what one types, and what comes out."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def commands(page: Path) -> Iterator[tuple[str, bool]]:
    """Each `freshet …` of the page, and whether it stands alone on a line of a block."""
    for block in (block for language in ("", "sh", "bash") for block in blocks(page, language)):
        for line in re.sub(r"\n +(?=\[)", " ", block).splitlines():
            if found := re.match(r"(?:\$ )?(?:\.venv/bin/)?(freshet .*)", line):
                yield found[1], True
    for mention in re.findall(r"`(freshet [a-z][^`]*)`", page.read_text()):
        yield " ".join(mention.split()), False


def parse(command: str, is_whole: bool) -> None:
    """Raises what the command line says to options or commands that it does not know."""
    words = [word.strip("[]") for word in shlex.split(command, comments=True)[1:] if word not in (ELLIPSIS, "&")]
    words = [NUMBERS.get(word, word) for word in words]
    one: Any = typer.main.get_command(menu(words[:1]))
    while hasattr(one, "commands"):
        assert words, command
        one = one.commands[words.pop(0)]
    missing = [] if is_whole and ELLIPSIS not in command else ["MissingParameter"]
    if not is_whole and words and words[-1].startswith("--"):  # amid text an option may do without its value
        missing.append("BadOptionUsage")
    try:
        one.make_context(command, words)
    except Exception as error:
        if type(error).__name__ not in missing:
            raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_of_all_commands_are_known(page: Path) -> None:
    for command, is_whole in commands(page):
        try:
            parse(command, is_whole)
        except Exception as error:
            raise AssertionError(f"{page.name}: {command}: {error!r}") from error


def test_what_is_wrong_is_found() -> None:
    assert sum(1 for page in PAGES for _ in commands(page)) > 100
    parse("freshet run … --until latest  # a comment", True)
    parse("freshet serve --kafka", False)
    for wrong in ("freshet run … --no-such", "freshet walk", "freshet run … --parts many", "freshet embed --model M"):
        with pytest.raises(Exception, match=r"No such|walk|valid int|Missing"):
            parse(wrong, True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_and_pages_that_are_named_are_there(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"(?<![\w/.-])((?:scripts|docs|tests)/[\w/.-]*\w)", text)
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    named += [f"{page.parent.relative_to(ROOT)}/{link}" for link in links]
    assert not [name for name in named if not (ROOT / name).exists()]


def run(folder: Path, command: str, *options: str) -> str:
    words = [str(FRESHET), *shlex.split(command)[1:], *options]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_first_steps_of_the_readme(tmp_path: Path) -> None:
    """A run and its check on the events that README shows; here in one process, without Flink."""
    readme = ROOT / "README.md"
    (events,) = (block for block in blocks(readme) if block.startswith('{"op"'))
    (tmp_path / "changes.jsonl").write_text(events)
    save_model(make_model(0, [conv("sage_conv", 2, 3)]), tmp_path / "M")
    write_snapshot(tmp_path / "S", [7, 8, 9], [[1.0, 2.0]] * 3, [8], [7], [1.0])
    steps = [command for command, is_whole in commands(readme) if is_whole and "--events changes.jsonl" in command]
    first, second = steps
    ran = run(tmp_path, first, "--runtime", "local")
    assert f'"events":{len(events.splitlines())},"rejected":0' in ran
    assert '"missing":0,"extra":0' in run(tmp_path, second)
