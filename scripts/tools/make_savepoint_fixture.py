"""Makes tests/data/savepoint again: a Flink job stopped with a savepoint in mid-stream, as one compressed archive.

    .venv/bin/python scripts/tools/make_savepoint_fixture.py [FILE]

A later version must continue from it, or refuse it by its version: keep the old archive when the state format changes,
and make the new one under a new name.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.folder.run_file import update_run
from tests.support.runs.jobs import Job, make_input

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "tests" / "data" / "savepoint" / "job.tar.xz"
# What a resume needs, and the change log so far.
KEPT = ("job", "base", "checkpoints", "embeddings", "epochs", "status", "run.json")


def main() -> int:
    """Run, stop, pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=TARGET, help=f"(default: {TARGET.relative_to(ROOT)})")
    target: Path = parser.parse_args().file
    # At the same place for all: the savepoint holds paths.
    folder = Path(tempfile.gettempdir()) / "savepoint-fixture"
    shutil.rmtree(folder, ignore_errors=True)
    job = Job(make_input(folder, 1500, vertices=60, seed=3), folder / "out")
    try:
        options = ("--parts", 2, "--hybrid-threshold", 5, "--epoch-events", 20, "--epoch-ms", 0, "--processor", "any")
        slowly = {"slow": {"parser": 1000}, "chunk": 20}  # so that the stop comes in mid-stream
        job.start(*options, "--checkpoint-interval", "500ms", faults=slowly)
        job.until_epoch(30)
        stopped = job.stop()
        assert stopped.code == 0, stopped.errors
        job.wait()
        update_run(job.out, host="", pids={}, flink_ui="", rest="")
    finally:
        job.end()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in (folder / "model", folder / "events.jsonl", *(folder / "out" / name for name in KEPT)):
            archive.add(path, path.relative_to(folder).as_posix(), filter=_plain)
    print(f"{target}: {target.stat().st_size:,} bytes, epoch {stopped.result['epoch']}")
    shutil.rmtree(folder)
    return 0


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out checkpoints of the run, and who made it."""
    if "/chk-" in entry.name or entry.name.endswith(("/shared", "/taskowned", "/checkpoints/job.json")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    sys.exit(main())
