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
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = ROOT / "job" / "serving" / "clients"
# What freshet-client has of the package; a folder stands for its modules.
CLIENT_FILES = (
    "freshet/__init__.py",
    "freshet/errors.py",
    "freshet/py.typed",
    "freshet/version.py",
    "job/__init__.py",
    "job/errors.py",
    "job/serving/__init__.py",
    "job/serving/clients",
    "job/serving/protocol",
    "state/__init__.py",
    "state/served/__init__.py",
    "state/served/generation.py",
    "state/served/ids.py",
)
MAPPED = "job/serving/clients/mapped_client.py"  # reads tables, for which it takes the rest of freshet-gnn
BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"


def stage_gnn(stage: Path) -> None:
    """Copies the folders of the package, and what builds it."""
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    for name in built["package-dir"].values():
        shutil.copytree(ROOT / name, stage / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "setup.py"):
        shutil.copy(ROOT / name, stage)


def stage_client(stage: Path) -> None:
    """Copies what clients of a server need."""
    for name in CLIENT_FILES:
        given = ROOT / name
        for file in sorted(given.glob("*.py")) if given.is_dir() else [given]:
            to = stage / "freshet" / str(file.relative_to(ROOT)).removeprefix("freshet/")
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
