"""Builds the site of the documentation: `make docs`; it needs no network.

Its pages are those of docs/ and README.md, and reference pages made from the options of the commands, the description
of the HTTP interface and the docstrings. A link that leads nowhere ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import nbformat

from scripts.site import command_page, http_page, python_page
from scripts.site.tutorial import notebook

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "docs"
PAGES, CONFIG = OUT / "pages", ROOT / "docs" / "mkdocs.yml"
# Pages that stand beside docs/, and where they are in the site.
BESIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
MADE = {
    "reference/commands.md": command_page.page,
    "reference/http.md": http_page.page,
    "reference/python.md": python_page.page,
}
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def gather() -> None:
    """Make the folder of pages that mkdocs reads."""
    shutil.rmtree(PAGES, ignore_errors=True)
    docs = ROOT / "docs"
    for file in sorted(docs.rglob("*")):
        if file.is_file() and file != CONFIG:
            place(file, str(file.relative_to(docs)))
    for page in sorted((docs / "tutorials").glob("*.md")):
        add_notebook(page)
    for name, inside in BESIDE.items():
        place(ROOT / name, inside)
    for name, made in MADE.items():
        (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / name).write_text(made())


def place(file: Path, inside: str) -> None:
    """Copy a file into the folder; a page with its links as they are there."""
    to = PAGES / inside
    to.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".md":
        to.write_text(LINK.sub(lambda found: moved(found, file, inside), file.read_text()))
    else:
        shutil.copy(file, to)


def add_notebook(page: Path) -> None:
    """Put the notebook of a tutorial beside its page, with a link to it below the title."""
    there = PAGES / "tutorials" / page.name
    nbformat.write(notebook(page), there.with_suffix(".ipynb"))
    title, text = there.read_text().split("\n", 1)
    there.write_text(f"{title}\n\n[This page as a notebook]({page.stem}.ipynb)\n{text}")


def moved(link: re.Match[str], page: Path, inside: str) -> str:
    """A link of a page as the site needs it; a file outside docs/ that is no page comes along, to be downloaded.

    Raises: SystemExit for one that leads nowhere.
    """
    target = Path(os.path.normpath(page.parent / link[2]))
    if not target.is_relative_to(ROOT) or not target.exists():
        sys.exit(f"{page.relative_to(ROOT)}: the link {link[2]} leads nowhere; mend it")
    name = str(target.relative_to(ROOT))
    if target.is_relative_to(ROOT / "docs"):
        there = str(target.relative_to(ROOT / "docs"))
    elif name in BESIDE:
        there = BESIDE[name]
    elif target.is_file():
        there = f"files/{name}"
        (PAGES / there).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(target, PAGES / there)
    else:  # a folder, which a site of files can't show
        return link[1]
    return f"[{link[1]}]({os.path.relpath(there, Path(inside).parent)}{link[3] or ''})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="serve the site on this machine instead")
    given = parser.parse_args()
    gather()
    command = [sys.executable, "-m", "mkdocs", *(["serve"] if given.serve else ["build", "--quiet", "--strict"])]
    done = subprocess.run([*command, "-f", str(CONFIG)], env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False)
    if done.returncode == 0 and not given.serve:
        print(f"docs: {OUT / 'site' / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
