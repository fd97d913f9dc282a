"""What all tests share."""

import gc
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

from freshet.gnn.own import loading
from freshet.gnn.own.loading import LOADED
from freshet.kernels.kernel_calls import check_calls
from tests.support.flink.class_archive import FOLDER_VARIABLE, ArchiveMaker, use_archives
from tests.support.runs.light_python import use_light_python
from tests.support.stages.checked import check_stages

# Kernels are compiled at their first call, so the time of one example says nothing; a failure prints how to repeat it.
settings.register_profile("freshet", deadline=None, print_blob=True)
settings.load_profile("freshet")

# Where kernels are not compiled yet, one test process does it while the other one is busy without them; then come the
# jobs, which take longest, and what is short fills the end.
_ORDER = (
    "tests/property/test_stream_equals_oracle.py",
    "tests/unit/gnn/",
    "tests/integration/test_broker.py",
    "tests/integration/test_local_cluster.py",
    "tests/integration/",
    "tests/drills/",
    "tests/simulation/",
    "tests/",
)


def _not_synced(file: Any) -> None:
    """Stand in for `fsync` and `fdatasync`: what a killed process has written stays in the page cache all the same.

    Waiting for a disk that is busy with the rest of the tests took nine tenths of some of them. When files are synced,
    and in which order, is the matter of tests that watch the calls.
    """
    os.fstat(file if isinstance(file, int) else file.fileno())


_TORCH_SEED = 67280421310721  # as in a process in which nobody has set one
_ALWAYS = ("tests/unit/test_house.py", "tests/unit/test_imports.py", "tests/property/")  # also where no time is left
_BEGAN = time.monotonic()
_IN_MEMORY, _ROOM_MIN = "/dev/shm", 14 << 30
_OWN = pytest.StashKey[str]()  # the folder for what libraries and processes that were killed leave behind
_MAKER = pytest.StashKey[ArchiveMaker]()


def _temporary() -> str:
    """Return where temporary files lie: in memory where there is plenty, since a busy disk takes ms to remove a folder.

    TMPDIR says another place.
    """
    if "TMPDIR" not in os.environ and os.access(_IN_MEMORY, os.W_OK):
        room = shutil.disk_usage(_IN_MEMORY).free, psutil.virtual_memory().available
        if min(room) >= _ROOM_MIN:
            return _IN_MEMORY
    return tempfile.gettempdir()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make quick`."""
    parser.addoption("--seconds", type=float, default=math.inf, help="skip tests of rooms that have not begun by then")


def pytest_configure(config: pytest.Config) -> None:
    """Have temporary files lie in a folder that goes with the run; pytest keeps its own, of tests that failed.

    Direct calls of kernels are held against the types of the first one, blocks against their table, in this process;
    jobs of their own do without, but for those of `faulty`.
    """
    check_calls()
    check_stages()
    os.fsync = os.fdatasync = _not_synced
    if not hasattr(config, "workerinput"):
        root = _temporary()
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", root)
        own = tempfile.mkdtemp(prefix="freshet-tests-", dir=root)
        tempfile.tempdir = os.environ["TMPDIR"] = config.stash[_OWN] = own
        os.environ[FOLDER_VARIABLE] = archives = tempfile.mkdtemp(prefix="classes-")
        config.stash[_MAKER] = ArchiveMaker(Path(archives))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the folder away."""
    if _OWN in config.stash:
        config.stash[_MAKER].end()
        shutil.rmtree(config.stash[_OWN], ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files; `make quick` has its own order."""
    if math.isinf(config.getoption("--seconds")):
        items.sort(key=lambda item: next(k for k, start in enumerate(_ORDER) if item.nodeid.startswith(start)))


def _keep_templates(template: Any) -> None:
    """Have PyTorch Geometric parse each of its templates once, not for each conv: it took a third of an export."""
    for name in ("FileSystemLoader", "Environment"):
        made = getattr(template, name)
        if not hasattr(made, "cache_info"):
            setattr(template, name, cache(made))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have Java map the classes of Flink that an earlier test has listed, and Python leave out what is never used.

    Weights that torch draws are the same whatever tests come before: with some, a tolerance may just not do.
    """
    late = time.monotonic() > _BEGAN + item.config.getoption("--seconds")
    if late and not item.nodeid.startswith(_ALWAYS):
        pytest.skip("no time left")
    use_archives()
    use_light_python()
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(_TORCH_SEED)
    if (template := sys.modules.get("torch_geometric.template")) is not None:
        _keep_templates(template)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while tests are collected, nor later among what is loaded by then, which all stays.

    It took a quarter of the time of collecting, and a tenth of that of the tests.
    """
    gc.disable()
    yield
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """Return a folder on the disk, for what is about disks: `tmp_path` may lie in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def _layers_of_one_s_own(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have no other test find the written layers that a test loads or imports."""
    before = dict(LOADED)
    monkeypatch.setattr(loading, "imported_classes", lambda: iter(()))
    yield
    LOADED.clear()
    LOADED.update(before)
