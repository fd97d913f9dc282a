"""Builds the virtual environment from requirements.lock: `python3.11 scripts/install.py [--venv .venv] base|all`.

`base` is what the job and its commands need; `all` adds torch and the developers' tools. Only the standard library is
used, any Python 3.11 will do, and running it again completes what is there. Packages are checked against the hashes of
the lock; uv, pinned there too, installs them (several times quicker than pip), and pip itself where uv can't. Then all
is compiled once: the bytecode, and by `freshet warm-up` the kernels, so that the first job starts at once.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETS = {"base": ("bootstrap", "base"), "all": ("bootstrap", "base", "torch", "dev")}


def read_sections() -> dict[str, str]:
    """Returns the sections of the lock file: name -> requirements."""
    parts = re.split(r"^# --- (\w+) ---$", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def install(python: Path, requirements: Path, setuptools_pin: Path) -> None:
    """Installs the requirements and then this checkout (editable) in the environment of `python`."""
    uv = [str(python.with_name("uv")), "pip", "install", "--quiet", "--python", str(python)]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    locked = ["--require-hashes", "-r", str(requirements)]
    # A mirror that is configured for pip is meant for uv as well.
    mirror = os.environ.get("PIP_INDEX_URL")
    environment = os.environ | ({"UV_DEFAULT_INDEX": mirror} if mirror and "UV_DEFAULT_INDEX" not in os.environ else {})
    editable = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    for command in (uv + locked + ["--build-constraints", str(setuptools_pin)], uv + editable):
        if subprocess.run(command, env=environment).returncode != 0:
            print("install: uv could not; trying again with pip", file=sys.stderr, flush=True)
            subprocess.run(pip + locked, check=True)
            subprocess.run(pip + editable, check=True)
            return


def compile_bytecode(python: Path) -> None:
    """Compiles the modules of all packages, but not their tests, and those of this checkout.

    Where Python may not write bytecode later (PYTHONDONTWRITEBYTECODE, an image whose files are root's), each process
    of a job would compile some 2,000 modules by itself, for half of the processor time that its start takes.
    """
    packages = python.parent.parent / "lib" / "python3.11" / "site-packages"
    own = [str(ROOT / "freshet")]
    command = [str(python), "-m", "compileall", "-qq", "-j", "0", "-x", r"/(tests?|testing|examples)/"]
    subprocess.run([*command, str(packages), *own], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def warm_up(python: Path) -> None:
    """Compiles the kernels; where that fails, the first job tries again and says why."""
    if subprocess.run(
        [str(python), "-m", "freshet.job.cli", "warm-up"], cwd=ROOT, stdout=subprocess.DEVNULL
    ).returncode:
        print("install: the kernels could not be compiled; the first job will try again", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--no-warm-up", action="store_true", help="leave the kernels to the first job")
    options = parser.parse_args()
    if sys.version_info[:2] != (3, 11):
        got = ".".join(map(str, sys.version_info[:3]))
        print(f"install: needs Python 3.11, this is {got}; name one: make install PYTHON=python3.11", file=sys.stderr)
        return 2
    started, folder = time.monotonic(), options.venv.absolute()
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"install: making {folder}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, symlinks=True)
    sections = read_sections()
    print(f"install: {', '.join(SETS[options.set])}", file=sys.stderr, flush=True)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            bootstrap, wanted, pin = (Path(scratch) / name for name in ("bootstrap.txt", "wanted.txt", "build.txt"))
            bootstrap.write_text(sections["bootstrap"])
            wanted.write_text("".join(sections[name] for name in SETS[options.set]))
            found = re.search(r"^setuptools==\S+", sections["bootstrap"], flags=re.MULTILINE)
            pin.write_text(found[0] if found else "")
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
            subprocess.run([*pip, "-r", str(bootstrap)], check=True)
            install(python, wanted, pin)
        compile_bytecode(python)
    except subprocess.CalledProcessError as failure:
        print(
            f"install: failed ({failure.returncode}): {' '.join(failure.cmd[:5])} …; what went wrong stands above; "
            "`make install` again goes on from here",
            file=sys.stderr,
        )
        return 1
    if not options.no_warm_up:
        warm_up(python)
    for name in {"base", options.set}:
        (folder / f".freshet-{name}").touch()
    print(f"install: {folder} ready in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
