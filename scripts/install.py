"""Make the virtual environment from requirements.lock: `python3 scripts/install.py [--venv .venv] [all | EXTRA ...]`.

Without a name it gets the packages of the job and its commands. Extras and groups of pyproject.toml (torch, serve,
plots, dev) add to it; `all` adds each of them. Only the standard library is used. A second run completes the rest.
Packages are checked against the hashes of the lock; uv, pinned there too, installs them (several times faster than
pip), and pip itself where uv can't. Then all is compiled once: the bytecode, and by `freshet warm-up` the kernels, so
that the first job starts at once.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ((3, 11), (3, 12))
BOOTSTRAP = "bootstrap"  # the group that this script itself works with
# PyTorch's own index: wheels without CUDA. The lock does not have their hashes.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
OF_CUDA = re.compile(r"(torch|nvidia-[\w-]+|cuda-[\w-]+)==")


def read_project() -> dict[str, Any]:
    """Return pyproject.toml."""
    import tomllib  # Python 3.11

    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def read_sets() -> dict[str, set[str]]:
    """Return the packages that pyproject.toml names: those of the base as "", then of each extra and group."""
    read = read_project()
    extras = read["project"]["optional-dependencies"] | read["dependency-groups"]
    listed = {"": read["project"]["dependencies"], **extras}
    return {key: {name_of(requirement) for requirement in requirements} for key, requirements in listed.items()}


def name_of(requirement: str) -> str:
    """Return the name of a package as the lock spells it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def locked(packages: Iterable[str]) -> list[str]:
    """Return the blocks of the lock that packages need: their own and, by its "via" lines, what they ask for."""
    blocks = re.split(r"^(?=\w)", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)[1:]
    askers = {block: set(re.findall(r"^ +#(?: via)? +(?!via$)(\S+)", block, flags=re.MULTILINE)) for block in blocks}
    names, count = set(packages), 0
    while count < len(names):
        count = len(names)
        names |= {name_of(block) for block in blocks if askers[block] & names}
    return [block for block in blocks if name_of(block) in names]


def steps(blocks: list[str], scratch: Path, cpu: bool) -> list[list[str]]:
    """Return the arguments of each installation: the locked packages, a torch of PyTorch's CPU index, this checkout."""
    torch = [f"{block.split()[0]}+cpu" for block in blocks if cpu and name_of(block) == "torch"]
    wanted = scratch / "wanted.txt"
    wanted.write_text("".join(block for block in blocks if not (torch and OF_CUDA.match(block))))
    return [
        # Four packages of Beam have no wheels: the setuptools of the lock builds them.
        ["--require-hashes", "--no-build-isolation", "-r", str(wanted)],
        *([["--index-url", CPU_INDEX, *torch]] if torch else []),
        ["--no-build-isolation", "--editable", str(ROOT)],
    ]


def install(python: Path, names: Iterable[str], cpu: bool) -> bool:
    """Install the base and these extras in the environment of `python`; False where neither uv nor pip can."""
    sets = read_sets()
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    uv = [str(python.with_name("uv")), "pip", "install", "--quiet", "--no-deps", "--python", str(python)]
    # A mirror that is configured for pip is meant for uv as well.
    mirror = os.environ.get("PIP_INDEX_URL")
    environment = ({"UV_DEFAULT_INDEX": mirror} if mirror else {}) | os.environ
    with tempfile.TemporaryDirectory() as scratch:
        first = steps(locked(sets[BOOTSTRAP]), Path(scratch), cpu=False)[0]
        if subprocess.run([*pip, *first]).returncode:
            return False
        chosen = set[str]().union(*(sets[key] for key in ("", BOOTSTRAP, *names)))
        rest = steps(locked(chosen), Path(scratch), cpu)
        for tool in (uv, pip):
            if not any(subprocess.run([*tool, *step], env=environment).returncode for step in rest):
                return True
            if tool is uv:
                print("install: uv could not; trying again with pip", file=sys.stderr, flush=True)
    return False


def compile_all(python: Path, packages: Path, kernels: bool) -> None:
    """Compile the modules of all packages, but not their tests, and those of this checkout; then the kernels.

    Where Python may not write bytecode later (PYTHONDONTWRITEBYTECODE, an image whose files are root's), each process
    of a job would compile some 2,000 modules by itself, for half of the processor time that its start takes.
    """
    bytecode = [str(python), "-m", "compileall", "-qq", "-j", "0", "-x", r"/(tests?|testing|examples)/"]
    quiet = subprocess.DEVNULL
    folders = [str(ROOT / folder) for folder in read_project()["tool"]["setuptools"]["package-dir"].values()]
    subprocess.run([*bytecode, str(packages), *folders], stdout=quiet, stderr=quiet)
    if kernels and subprocess.run([str(python), "-m", "freshet.job.cli", "warm-up"], cwd=ROOT, stdout=quiet).returncode:
        print("install: the kernels could not be compiled; the first job will try again and say why", file=sys.stderr)


def main() -> int:
    if sys.version_info[:2] not in PYTHONS:
        wanted, got = " or ".join("{}.{}".format(*one) for one in PYTHONS), "{}.{}.{}".format(*sys.version_info)
        print(f"install: needs Python {wanted}, this is {got}; name one: make install PYTHON=…", file=sys.stderr)
        return 2
    extras = sorted(read_sets().keys() - {"", BOOTSTRAP})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", metavar="EXTRA", choices=["all", *extras, []], help=", ".join(extras))
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--torch", choices=["cpu"], help="PyTorch's CPU wheels, from its own index and without hashes")
    parser.add_argument("--no-warm-up", action="store_true", help="leave the kernels to the first job")
    options = parser.parse_args()
    names = extras if "all" in options.extras else options.extras
    started, folder = time.monotonic(), options.venv.absolute()
    python = folder / "bin" / "python"
    print(f"install: {folder}: {', '.join(['base', *names])}", file=sys.stderr, flush=True)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    # A torch of that index stays one when a later lock completes the environment.
    if not install(python, names, cpu=options.torch == "cpu" or any(packages.glob("torch-*+cpu.dist-info"))):
        print("install: failed; what went wrong stands above; `make install` goes on from here", file=sys.stderr)
        return 1
    compile_all(python, packages, kernels=not options.no_warm_up)
    print(f"install: {folder} ready in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
