"""Kills the JobManager of a Flink application with high availability: the job recovers, and its result is exact.

    .venv/bin/python scripts/drills/jobmanager_ha.py                 # two kills, some minutes
    .venv/bin/python scripts/drills/jobmanager_ha.py --kills 5 --events 200000

ZooKeeper, one server on this machine, keeps the leader and the job, as the API of Kubernetes does there. The JobManager
runs the program of `freshet spec`, and is started again after each kill. Checked: one job id, the state `ended`, every
event once (`freshet check`). Prints a JSON line, and exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.console import say
from freshet.job.lifecycle.job_state import ENDED, state_of
from freshet.job.lifecycle.summary import progress
from tests.support.flink.high_availability import (
    application,
    await_true,
    run_file,
    write_events,
    zookeeper,
)

ROOT = Path(__file__).resolve().parents[2]
FRESHET = Path(sys.executable).with_name("freshet")
MODEL = ROOT / "tests" / "data" / "state" / "format-2" / "model"
_VERTICES, _WIDTH, _EPOCH_EVENTS = 500, 6, 20
_DEADLINE_S = 600.0


def drill(folder: Path, kills: int, events: int) -> dict[str, Any]:
    """Run the job, kill, and compare."""
    write_events(folder / "e.jsonl", _VERTICES, events - _VERTICES, _WIDTH, 1)
    out, epochs = folder / "O", events // _EPOCH_EVENTS
    given = {"model": str(MODEL), "events": [str(folder / "e.jsonl")], "out": str(out)}
    ids = set()
    with zookeeper(folder / "zookeeper") as (quorum, jar):
        options = {**given, "checkpoint-interval": "1s", "epoch-events": _EPOCH_EVENTS, "epoch-ms": 0}
        cluster = application(folder, ROOT, options, quorum, (jar,))
        with cluster:
            for kill in range(1, kills + 1):
                _await_epoch(out, epochs * kill // (kills + 2))
                ids.add(run_file(out)["job_id"])
                assert cluster.job_manager is not None
                cluster.kill(cluster.job_manager)
                say(f"killed the JobManager at epoch {progress(out)['epoch']}; {state_of(out).detail}")
                time.sleep(1)
                cluster.start_job_manager(wait=False)
            await_true(lambda: "summary" in run_file(out), _DEADLINE_S, "the end of the job")
            ids.add(run_file(out)["job_id"])
    command = [str(FRESHET), "check", "--oracle", "own", "--model", str(MODEL), "--events", *given["events"]]
    found = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=False)
    summary = run_file(out)["summary"]
    return {
        "kills": kills,
        "jobs": len(ids),
        "state": state_of(out).state,
        "events": summary["events"],
        "epochs": summary["epochs"],
        "exact": found.returncode == 0,
        "holds": len(ids) == 1
        and state_of(out).state == ENDED
        and (summary["events"], summary["epochs"]) == (events, epochs)
        and found.returncode == 0,
    }


def _await_epoch(out: Path, epoch: int) -> None:
    await_true(lambda: out.exists() and progress(out)["epoch"] > epoch, _DEADLINE_S, f"epoch {epoch}")


def main() -> int:
    """Run the drill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--events", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="freshet-ha-") as folder:
        told = drill(Path(folder), given.kills, given.events)
    print(json.dumps(told), flush=True)
    return 0 if told["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
