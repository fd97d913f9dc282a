"""Builds the wheels of freshet-gnn and freshet-client: `make wheel`, or `.venv/bin/python scripts/wheel.py --dist D`.

Each is built in an empty folder, of copies of its files: build/ and *.egg-info of a checkout may hold modules of
another version, and setuptools would take them in. Needs no network.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = ROOT / "job" / "serving" / "clients"
# What freshet-client has of the package; a folder stands for its modules.
CLIENT_FILES = (
    "__init__.py",
    "errors.py",
    "py.typed",
    "job/__init__.py",
    "job/errors.py",
    "job/serving/__init__.py",
    "job/serving/clients",
    "job/serving/protocol",
    "state/__init__.py",
    "state/served/__init__.py",
    "state/served/ids.py",
)
MAPPED = "job/serving/clients/mapped_client.py"  # reads tables, for which it takes the rest of freshet-gnn
BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"


def stage_gnn(stage: Path) -> None:
    """Copies the whole package; the links in freshet/ become folders."""
    shutil.copytree(ROOT / "freshet", stage / "freshet", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, stage)


def stage_client(stage: Path) -> None:
    """Copies what clients of a server need."""
    for name in CLIENT_FILES:
        given = ROOT / "freshet" / name
        for file in sorted(given.glob("*.py")) if given.is_dir() else [given]:
            to = stage / file.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)
    (stage / "freshet" / MAPPED).unlink()
    shutil.copy(CLIENTS / "pyproject.toml", stage)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="folder for the wheels (dist)")
    dist = parser.parse_args().dist.absolute()
    dist.mkdir(parents=True, exist_ok=True)
    for stage_files in (stage_gnn, stage_client):
        with tempfile.TemporaryDirectory() as folder:
            stage_files(Path(folder))
            shutil.copy(ROOT / "LICENSE", folder)
            done = subprocess.run(
                [sys.executable, "-P", "-c", BUILD, str(dist)],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": ""},
                capture_output=True,
                text=True,
            )
        if done.returncode:
            print(done.stderr, "wheel: it can't be built; the reason stands above", sep="\n", file=sys.stderr)
            return 1
        print(dist / done.stdout.splitlines()[-1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
