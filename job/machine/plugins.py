"""A folder of Flink's plugins: those that the installed PyFlink carries, and the one for S3 where it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from freshet.job.machine.java import flink_home

PLUGINS = "FLINK_PLUGINS_DIR"  # by which every Java process of Flink finds the folder
_S3 = "s3-fs-hadoop"


def make_plugins(folder: Path, s3_jars: Sequence[Path]) -> None:
    """Make the folder of links; `s3_jars`: the plugin for S3, if any.

    A plugin has a folder and classes of its own. On the class path, those for S3 would meet other versions.
    """
    folder.mkdir(parents=True, exist_ok=True)
    carried = [path for path in (flink_home() / "plugins").iterdir() if path.is_dir()]
    for path in carried:
        (folder / path.name).symlink_to(path)
    if s3_jars:
        (folder / _S3).mkdir()
    for jar in s3_jars:
        (folder / _S3 / jar.name).symlink_to(jar)
