"""Tutorials are pages whose code is run: each becomes a notebook, of which tests run every cell.

A block of `python` is a cell, and one of `bash` a cell of `%%bash`; blocks of other names show what comes out. As a
script, `scripts/site/tutorial.py docs/tutorials/table.md` runs a page in an empty folder and puts the pictures that it
saves beside the page; with `--notebook N.ipynb` it writes the notebook and runs nothing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```\n", flags=re.MULTILINE | re.DOTALL)
CELL_S = 300  # a cell that takes longer has failed


def notebook(page: Path) -> NotebookNode:
    """Make the notebook of a page."""
    text, at = page.read_text(), 0
    cells = []
    for block in BLOCK.finditer(text):
        if before := text[at : block.start()].strip():
            cells.append(nbformat.v4.new_markdown_cell(before))
        magic = "%%bash\n" if block[1] == "bash" else ""
        cells.append(nbformat.v4.new_code_cell(magic + block[2].rstrip()))
        at = block.end()
    if rest := text[at:].strip():
        cells.append(nbformat.v4.new_markdown_cell(rest))
    for k, cell in enumerate(cells):
        cell["id"] = f"cell-{k}"  # the same page, the same file
    return nbformat.v4.new_notebook(cells=cells)


def run(page: Path, folder: Path, here: Mapping[str, str] | None = None) -> NotebookNode:
    """Run all cells of a page, in a kernel that works in `folder`; return them with what came out.

    `here`: texts of the cells, and what stands for them on this machine.

    Raises: CellExecutionError, with the cell and its error
    """
    made = notebook(page)
    for cell in made.cells:
        for text, mine in (here or {}).items():
            cell["source"] = cell["source"].replace(text, mine)
    NotebookClient(made, timeout=CELL_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="a page of docs/tutorials")
    parser.add_argument("--notebook", type=Path, help="write the notebook there, and run nothing")
    given = parser.parse_args()
    if given.notebook is not None:
        nbformat.write(notebook(given.page), given.notebook)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        done = run(given.page, Path(folder))
        for cell in done.cells:
            for out in cell.get("outputs", ()):
                print(out.get("text") or out.get("data", {}).get("text/plain", ""))
        for picture in sorted(Path(folder).glob("*.png")):
            print(shutil.copy(picture, given.page.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
