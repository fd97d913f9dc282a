"""Kernels are compiled anew when anything that they may depend on has changed, and kept otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from numba.core import caching

from freshet.kernels import compiled

ROOT = Path(__file__).resolve().parents[3]

NUMBERS = "STEP = 1\n"
INNER = """
from freshet.state import probe_numbers as numbers
from freshet.kernels.kernel import kernel

@kernel
def inner(x):
    return x + numbers.STEP
"""
OUTER = """
from freshet.kernels.kernel import kernel
from freshet.partitioner.probe_inner import inner

@kernel
def outer(x):
    return inner(x) * 10
"""
PROGRAM = """
from freshet.operators.probe_outer import outer
print(outer(5), sum(outer.stats.cache_hits.values()))
"""

# Reads everything, as one does an installation, and writes to nothing of root's.
_READS = "+dac_read_search"
OTHER_USER = f"setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps={_READS} --ambient-caps={_READS}".split()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the packages, with kernels in three modules that import each other."""
    for package in ("kernels", "gnn", "state", "partitioner", "operators"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "freshet", tmp_path / "freshet", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "state" / "probe_numbers.py").write_text(NUMBERS)
    (tmp_path / "partitioner" / "probe_inner.py").write_text(INNER)
    (tmp_path / "operators" / "probe_outer.py").write_text(OUTER)
    return tmp_path


def run(checkout: Path, before: Sequence[str] = (), **variables: str) -> tuple[int, bool]:
    """What the outer kernel returns for 5, and whether its code came from the cache."""
    passed = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "FRESHET_CACHE")}
    command, env = [*before, sys.executable, "-c", PROGRAM], passed | variables
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    value, hits = done.stdout.split()
    return int(value), hits != "0"


def test_a_sign_flipped_in_the_kernel_of_another_module_counts(checkout: Path) -> None:
    assert run(checkout) == (60, False)
    assert run(checkout) == (60, True)
    (checkout / "partitioner" / "probe_inner.py").write_text(INNER.replace("x + ", "x - "))
    assert run(checkout)[0] == 40


def test_a_constant_changed_two_modules_away_counts(checkout: Path) -> None:
    assert run(checkout) == (60, False)
    (checkout / "state" / "probe_numbers.py").write_text("STEP = 2\n")
    assert run(checkout) == (70, False)
    (checkout / "state" / "probe_numbers.py").write_text(NUMBERS)
    assert run(checkout) == (60, True)  # both are kept, for a while


def test_a_module_that_is_not_imported_does_not_count(checkout: Path) -> None:
    run(checkout)
    (checkout / "operators" / "sink.py").write_text("# changed\n")
    assert run(checkout) == (60, True)


def test_the_cache_can_lie_elsewhere(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("cache")
    assert run(checkout, NUMBA_CACHE_DIR=str(elsewhere)) == (60, False)
    assert run(checkout, NUMBA_CACHE_DIR=str(elsewhere)) == (60, True)
    assert not list(checkout.glob("operators/__pycache__/operators.probe_outer-*"))


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_kernels_are_as_readable_as_the_folder_that_they_lie_in(checkout: Path, mode: int) -> None:
    """What a job writes is its owner's alone: its umask is not for an installation that others use as well."""
    (checkout / "operators").chmod(mode)
    ours_alone = ["sh", "-c", 'umask 077; exec "$@"', "sh"]
    assert run(checkout, ours_alone) == (60, False)
    [folder] = (checkout / "operators" / "__pycache__").glob("operators.probe_outer-*")
    kept = [folder.parent, folder, *folder.glob("*.nb[ci]")]
    assert len(kept) > 3
    assert {path.stat().st_mode & 0o777 for path in kept} == {mode, mode & 0o666}


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can be another user")
def test_another_user_runs_what_lies_in_the_installation(checkout: Path, tmp_path: Path) -> None:
    """Who can write neither there nor to a home: what is missing goes to a temporary folder of the user's own."""
    assert run(checkout) == (60, False)
    temporary = checkout / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    other = {"before": OTHER_USER, "TMPDIR": str(temporary), "HOME": "/nonexistent", "XDG_CACHE_HOME": ""}
    assert run(checkout, **other) == (60, True)
    (checkout / "partitioner" / "probe_inner.py").write_text(INNER.replace("x + ", "x - "))
    assert run(checkout, **other) == (40, False)
    assert run(checkout, **other) == (40, True), "kept for the next start"
    [made] = temporary.iterdir()
    assert made.name == "freshet-65534" and made.stat().st_mode & 0o777 == 0o700


def test_folders_that_nobody_uses_go_when_a_new_one_comes(tmp_path: Path) -> None:
    kept, gone, other = (tmp_path / name for name in ("a.b-1", "a.b-2", "a.c-3"))
    for folder in (kept, gone, other):
        folder.mkdir()
        (folder / "code.nbc").touch()
    long_ago = time.time() - (compiled.UNUSED_DAYS + 1) * 86_400
    for folder in (gone, other):
        os.utime(folder, (long_ago, long_ago))
    compiled._use(tmp_path / "a.b-4", "a.b")
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["a.b-1", "a.b-4", "a.c-3"]


def test_a_folder_that_is_used_again_stays(tmp_path: Path) -> None:
    folder = tmp_path / "a.b-1"
    folder.mkdir()
    os.utime(folder, (1e9, 1e9))
    compiled._use(folder, "a.b")
    assert time.time() - folder.stat().st_mtime < 60


def test_two_writers_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = object.__new__(compiled._Cache)
    cache._cache_path = str(tmp_path)
    steps: list[str] = []

    def save(self: object, signature: str, data: object) -> None:
        steps.append(signature)
        time.sleep(0.05)
        steps.append(signature)

    monkeypatch.setattr(caching.FunctionCache, "save_overload", save)
    threads = [threading.Thread(target=cache.save_overload, args=(name, None)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert sorted(steps[::2]) == list("abc") and steps[::2] == steps[1::2]


def test_kernels_that_one_python_compiled_are_not_ready_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba keeps them apart by the name of the file, and both Pythons share the folder of a checkout."""
    monkeypatch.setattr(sys, "implementation", SimpleNamespace(cache_tag="cpython-311"))
    one = compiled.ready_stamps().every
    monkeypatch.setattr(sys, "implementation", SimpleNamespace(cache_tag="cpython-312"))
    assert not set(one) & set(compiled.ready_stamps().every)


def test_every_kernel_of_the_project_is_kept_by_all_of_its_sources() -> None:
    beside = [
        f"{path.relative_to(ROOT)}:{number}"
        for package in compiled.PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if ("njit(" in line or "cache=True" in line) and path.name != "compiled.py"
    ]
    assert not beside, f"compiled without kernels.kernel: {beside}"


def test_python_is_refused_by_an_inner_kernel_rather_than_crashing(checkout: Path) -> None:
    (checkout / "partitioner" / "probe_inner.py").write_text(
        INNER.replace("@kernel", "@inner").replace("import kernel", "import inner").replace("def inner", "def added")
    )
    (checkout / "operators" / "probe_outer.py").write_text(
        OUTER.replace("inner(x)", "added(x)").replace("import inner", "import added")
    )
    assert run(checkout) == (60, False)
    program = "from freshet.operators.probe_outer import outer, added; assert outer(5) == 60; added(5)"
    done = subprocess.run([sys.executable, "-c", program], cwd=checkout, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("TypeError: added: an inner kernel")


def test_a_kernel_is_compiled_once_for_all_numbers_that_stand_in_calls(checkout: Path) -> None:
    (checkout / "operators" / "probe_outer.py").write_text(OUTER.replace("inner(x) * 10", "inner(1) + inner(2) * x"))
    program = "from freshet.operators.probe_outer import outer, inner; print(outer(5), len(inner.signatures))"
    done = subprocess.run([sys.executable, "-c", program], cwd=checkout, capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["17", "1"], done.stderr
