"""Rewrites job/machine/artifacts.toml from Maven, after a change of its roots: `scripts/tools/pin_artifacts.py`.

jgo resolves what the roots need at run time; every jar is then fetched, and its SHA-256 recorded. Maven Central
publishes SHA-256 for few of them, so the first download is trusted (over TLS), and all later ones are compared with it.
"""

import tempfile
import tomllib
from pathlib import Path

import jgo
from rich.progress import track

from freshet.job.machine.artifacts import PINS, maven_download, sha256

HEADER = """\
# Jars that Freshet fetches from Maven, and their SHA-256, by scripts/tools/pin_artifacts.py: edit the roots, run it.
"""


def resolve(roots: list[str]) -> list[str]:
    """The coordinates of the jars that the roots need at run time, the roots first.

    A root with a classifier, such as `all`, has what it needs in it.
    """
    whole = [root for root in roots if root.count(":") > 2]
    parted = [root for root in roots if root not in whole]
    found = [f"{item.groupId}:{item.artifactId}:{item.version}" for root in parted for item in jgo.resolve(root)]
    names = dict[str, str]()
    for coordinate in found:
        names.setdefault(coordinate.rpartition(":")[0], coordinate)  # the first root that names it decides
    return [*names.values(), *whole]


def main() -> None:
    lines = [HEADER]
    for name, section in tomllib.loads(PINS.read_text()).items():
        with tempfile.TemporaryDirectory() as folder:
            coordinates = track(sorted(resolve(section["roots"])), description=name)
            jars = {coordinate: sha256(maven_download(coordinate, Path(folder))) for coordinate in coordinates}
        lines += [f"\n[{name}]\nroots = [\n", *(f'    "{root}",\n' for root in section["roots"]), "]\n"]
        lines += [f"[{name}.jars]\n", *(f'"{coordinate}" = "{digest}"\n' for coordinate, digest in jars.items())]
    PINS.write_text("".join(lines))


if __name__ == "__main__":
    main()
