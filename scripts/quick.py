"""Runs what a change breaks first, in two minutes on two cores: `make quick`.

1. Five seeds of the simulator (`scripts/drills/simulate.py`) and twenty models on random streams against the oracle.
   Which ones depends on the number of commits, so that each commit has others.
2. The order of the rooms and the imports.
3. The unit tests of the rooms that changed since the merge base with main; on main itself since the last commit.

Of the last, tests that have not begun after `SECONDS` are skipped and counted. Ends with 1 if something failed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("gnn", "job", "kernels", "operators", "partitioner", "state", "scripts", "deploy", "docs", "freshet")
SECONDS, SEEDS, MODELS = 55, 5, 20
HOUSE = ("tests/unit/test_house.py", "tests/unit/test_imports.py")
STREAMS = "tests/property/test_stream_equals_oracle.py::test_every_model_on_random_streams"


def git(*words: str) -> str:
    """Return what a command of git prints; nothing where it fails."""
    return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True).stdout.strip()


def changed() -> list[str]:
    """Return the files that differ from the merge base with main; if none does, those of the last commit."""
    head = git("rev-parse", "HEAD")
    bases = (git("merge-base", "HEAD", ref) for ref in ("main", "origin/main"))
    base = next((base for base in bases if base and base != head), head)
    new = git("ls-files", "--others", "--exclude-standard").splitlines()
    return git("diff", "--name-only", base).splitlines() + new or git("diff", "--name-only", "HEAD~1").splitlines()


def unit_tests(files: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return the unit tests of these files: those with a module's name first, then the others of its room."""
    named: dict[str, None] = {}
    rooms: dict[str, None] = {}
    for path in map(Path, files):
        if path.parts[:2] == ("tests", "unit") and path.match("test_*.py") and (root / path).exists():
            named[str(path)] = None
        if path.parts[0] not in PRODUCT:
            continue
        parts = path.parent.parts[1:] if path.parts[0] == "freshet" else path.parent.parts
        room = Path("tests", "unit", *parts)
        while not (tests := [str(room / one.name) for one in (root / room).glob("test_*.py")]) and room != Path(
            "tests/unit"
        ):
            room = room.parent
        same = str(room / f"test_{path.stem}.py")
        named |= dict.fromkeys([same] if same in tests else [])
        rooms |= dict.fromkeys(sorted(tests))
    return list(named | rooms)


def models(turn: int) -> list[str]:
    """Return the tests of twenty models, spread over the kinds of layers."""
    sys.path.insert(0, str(ROOT))
    from tests.support.graphs.models import all_small_models

    names = sorted(all_small_models())
    step = len(names) // MODELS
    return [f"{STREAMS}[{names[(turn + k * step) % len(names)]}]" for k in range(MODELS)]


def main() -> int:
    turn = int(git("rev-list", "--count", "HEAD") or 0)
    files = changed()
    rooms = [path for path in unit_tests(files) if path not in HOUSE]
    print(f"{len(files)} changed files; {len(rooms)} files of their unit tests", flush=True)
    seeds = [sys.executable, "scripts/drills/simulate.py", "--seed", str(turn * SEEDS), "--count", str(SEEDS)]
    simulator = subprocess.Popen(seeds, cwd=ROOT)
    tests = [*HOUSE, *models(turn), *rooms]
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    failed = subprocess.run([*pytest, "--seconds", str(SECONDS), *tests], cwd=ROOT).returncode
    return int(bool(simulator.wait()) or bool(failed))


if __name__ == "__main__":
    sys.exit(main())
