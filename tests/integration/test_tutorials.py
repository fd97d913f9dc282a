"""The tutorials are run as notebooks, cell by cell; those that build on each other in one folder.

What differs from what a reader has: the broker's port, and that commands are found from any folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from nbformat import NotebookNode

from freshet.job.machine.ports import free_port
from scripts.site.tutorial import run
from tests.support.runs.jobs import FRESHET, ROOT

pytestmark = pytest.mark.slow
TUTORIALS = ROOT / "docs" / "tutorials"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric")
    monkeypatch.delenv("PYTHONPATH", raising=False)  # tests' light Python has no pandas
    monkeypatch.setenv("PATH", f"{FRESHET.parent}{os.pathsep}{os.environ['PATH']}")


def texts(done: NotebookNode) -> str:
    """Everything that the cells of a notebook printed, and the values of their last lines."""
    return str([cell.get("outputs") for cell in done.cells])


@pytest.fixture
def broker() -> Iterator[str]:
    """The port at which the tutorials start a broker by the script of the checkout; it ends with the test."""
    port = str(free_port(29_092))
    yield port
    subprocess.run([ROOT / "scripts" / "kafka", "stop", "--port", port], check=False, capture_output=True)


@pytest.mark.usefixtures("found")
def test_several_tables_with_keys(tmp_path: Path) -> None:
    assert "largest difference" in texts(run(TUTORIALS / "relational.md", tmp_path))


@pytest.mark.usefixtures("found")
def test_a_table_then_a_topic_then_another_model_then_sql(tmp_path: Path, broker: str) -> None:
    """Each goes on from the one before, in one folder."""
    given = {"scripts/kafka": str(ROOT / "scripts" / "kafka"), "9092": broker}
    with nothing_left(tmp_path):
        assert "largest difference" in texts(run(TUTORIALS / "table.md", tmp_path))
        assert (tmp_path / "table.png").stat().st_size > 10_000
        assert "'score'" in texts(run(TUTORIALS / "topic.md", tmp_path, given))
        run(TUTORIALS / "retrained.md", tmp_path, given)
        if shutil.which("node") is None:
            pytest.skip("the last tutorial wants Node.js, which is not installed")
        assert "16 numbers" in texts(run(TUTORIALS / "languages.md", tmp_path))


@contextmanager
def nothing_left(folder: Path) -> Iterator[None]:
    """End what a tutorial that fails leaves at work in the folder."""
    try:
        yield
    finally:
        for process in psutil.process_iter(["cwd"]):
            if process.info["cwd"] == str(folder) and process.pid != os.getpid():
                process.kill()
