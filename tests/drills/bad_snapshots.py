"""Snapshots that are wrong about kinds of vertices, given to `freshet run` and `freshet embed` as a user would."""

from __future__ import annotations

import subprocess
from pathlib import Path

from freshet.job.errors import EXIT_USAGE
from tests.support.malformed.snapshots import WRONG_SNAPSHOTS
from tests.support.runs.jobs import DEADLINE_S, FRESHET


def refused_snapshots(folder: Path, *, kinds: bool) -> tuple[list[str], int]:
    """Give all wrong snapshots to both commands, with the model in the folder; what is wrong about it, and their count.

    Each has to be refused as wrong use, by its file and its reason, without an output.
    """
    events, notes, tried = folder / "none.jsonl", list[str](), 0
    events.touch()
    for wrong in (one for one in WRONG_SNAPSHOTS if one.kinds == kinds):
        given = folder / f"wrong-{tried}"
        wrong.write(given)
        for command in (["run", "--runtime", "local", "--events", str(events)], ["embed"]):
            out = folder / f"wrong-{tried}-{command[0]}"
            options = ["--model", str(folder / "model"), "--snapshot", str(given), "--out", str(out)]
            ended = subprocess.run(
                [FRESHET, *command, *options], capture_output=True, text=True, timeout=DEADLINE_S, check=False
            )
            said = (ended.stderr.strip().splitlines() or [""])[-1]
            right = ended.returncode == EXIT_USAGE and f"{wrong.file}.parquet" in said and wrong.reason in said
            if not right or list(out.glob("embeddings/**/*.parquet")):
                notes.append(f"{command[0]} of a snapshot ({wrong.reason}): exit {ended.returncode}, {said}")
        tried += 1
    return notes, tried
