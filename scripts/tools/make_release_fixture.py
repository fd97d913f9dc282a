"""Makes the fixture of a release: a job of the local runtime, stopped in mid-stream, which later versions resume.

    .venv/bin/python scripts/tools/make_release_fixture.py

Run it once for each release, and commit tests/data/releases/VERSION.tar.xz. The one of a release is never made again.
The savepoint of Flink beside it is tests/data/savepoint (scripts/tools/make_savepoint_fixture.py).
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job import cli
from freshet.job.folder.run_file import update_run
from freshet.job.local.runtime import LocalRuntime
from freshet.version import __version__
from tests.support.runs.jobs import make_input

TARGET = Path(__file__).resolve().parents[2] / "tests" / "data" / "releases" / f"{__version__}.tar.xz"
EVENTS, FILES, BLOCKS = 1500, 10, 4  # of input; blocks after which it stops
OPTIONS = ("--runtime", "local", "--parts", "2", "--epoch-events", "20", "--epoch-ms", "0", "--processor", "any")


def main() -> int:
    """Run, stop, pack."""
    folder = Path(tempfile.gettempdir()) / "release-fixture"  # the same place for all: the state holds paths
    shutil.rmtree(folder, ignore_errors=True)
    given = make_input(folder, EVENTS, vertices=60, seed=3)
    events = folder / "events"  # the local runtime stops between files, or between chunks of a large one
    events.mkdir()
    lines = given.events.read_text().splitlines(keepends=True)
    for k in range(FILES):
        (events / f"{k}.jsonl").write_text("".join(lines[k * EVENTS // FILES : (k + 1) * EVENTS // FILES]))
    given = replace(given, events=events)
    whole = LocalRuntime.run

    def run(runtime: LocalRuntime, on_progress: Callable[[], None]) -> bool:
        seen = [0]

        def progress() -> None:
            on_progress()
            seen[0] += 1
            if seen[0] == BLOCKS:
                runtime.stop()

        return whole(runtime, progress)

    out = folder / "out"
    with patch.object(LocalRuntime, "run", run):
        try:
            cli.main(["run", *given.options, "--out", str(out), *OPTIONS])
        except SystemExit as end:
            assert not end.code
    update_run(out, host="", pids={})
    TARGET.parent.mkdir(exist_ok=True)
    with tarfile.open(TARGET, "w:xz", preset=9) as archive:
        for path in (folder / "model", events, out):
            archive.add(path, path.relative_to(folder).as_posix(), filter=_plain)
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")
    shutil.rmtree(folder)
    return 0


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what the state does not need, and who made it."""
    if entry.name.endswith(("/lock", "/logs", "/tables")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    sys.exit(main())
