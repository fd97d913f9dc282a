"""Makes requirements.lock from pyproject.toml: `make lock`, or `.venv/bin/python scripts/lock.py [--upgrade]`.

One resolution covers everything; the file is then cut into sections (bootstrap, base, torch, dev) at comment lines, so
that scripts/install.py can install `base` without fetching the gigabytes of torch.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
HEADER = """\
# Every package that Freshet installs, pinned, with hashes. Made by scripts/lock.py from pyproject.toml; do not edit.
# Sections build on each other: bootstrap (what scripts/install.py works with), base (the job and its commands),
# torch (model export and import), dev (tests, linters).
"""


def resolve(*wanted: str, constraints: Path | None = None, hashes: bool = False) -> dict[str, str]:
    """Returns the resolved requirements of some of pyproject's extras and groups: package name -> its lock lines."""
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += ["--universal", "--python-version", "3.11", *wanted]
    command += ["--constraints", str(constraints)] if constraints else []
    command += ["--generate-hashes"] if hashes else []
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    return {re.split(r"[=\s]", block, maxsplit=1)[0]: block for block in blocks if block.strip()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions, not those locked now")
    options = parser.parse_args()
    project = "pyproject.toml"
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "pins.txt"
        old = LOCK.read_text() if LOCK.exists() and not options.upgrade else ""
        pins.write_text("\n".join(re.findall(r"^[A-Za-z0-9][^\s;]*==[^\s;\\]+", old, flags=re.MULTILINE)))
        every = resolve(project, "--all-extras", "--group", "bootstrap", constraints=pins, hashes=True)
        # Markers are dropped from the constraints: what is locked for another platform constrains nothing here.
        pins.write_text("\n".join(re.split(r"[\s;\\]", block, maxsplit=1)[0] for block in every.values()))
        sections = {
            "bootstrap": resolve("--group", "bootstrap", constraints=pins),
            "base": resolve(project, constraints=pins),
            "torch": resolve(project, "--extra", "torch", constraints=pins),
            "dev": every,
        }
    lines, seen = [HEADER], set[str]()
    for section, names in sections.items():
        lines += [f"\n# --- {section} ---\n"] + [every[name] for name in sorted(names) if name not in seen]
        seen |= set(names)
    LOCK.write_text("".join(lines))
    print(f"{LOCK.name}: {len(every)} packages")


if __name__ == "__main__":
    main()
