"""Alerts of deploy/alerts.yml, by promtool: which rules find which death, and after how long.

tests/data/alerts has what Prometheus scraped of a job on a cluster, and of one in the local runtime, while all of it
was killed step by step. A test takes a recording up to the next kill, and has what is there then stay so for half an
hour, except for series that it names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
import yaml

from tests.unit.test_imports import ROOT

ALERTS = ROOT / "deploy" / "alerts.yml"
DATA = ROOT / "tests" / "data" / "alerts"
HELD_S, STEP_S = 1800, 5
FIRING = 'sgn(count by (alertname) (ALERTS{alertstate="firing"}))'
GONE = "stale _x360"  # a series of which nothing is scraped any more


class Death(NamedTuple):
    """Part of a recording, and the alerts that fire: by the seconds after the death from which on they do.

    `more`: by the begin of series, how they go on after the death instead; None: they were never there.
    """

    recording: str
    death: str
    until: str
    alerts: dict[str, int]
    more: Mapping[str, str | None] = MappingProxyType({})


CHECKPOINTS = {"flink_jobmanager_job_lastCheckpointCompletedTimestamp": "65000+5000x360"}
MORE_EVENTS = {"freshet_events_total": "110000+100x360"}
DEATHS = {
    "nobody": Death("cluster", "a checkpoint", "TaskManager killed", {}, CHECKPOINTS),
    "no checkpoint ever": Death(
        "cluster", "first checkpoint", "first checkpoint", {"FreshetNoCheckpoint": 570}, {"freshet_lag": "0+0x360"}
    ),
    "checkpoints end": Death("cluster", "a checkpoint", "TaskManager killed", {"FreshetCheckpointOld": 360}),
    "frozen with a backlog": Death(
        "cluster",
        "a checkpoint",
        "TaskManager killed",
        {"FreshetFrozen": 600},
        CHECKPOINTS | {"flink_taskmanager_job_task_operator_pendingRecords": "40+0x360"},
    ),
    "frozen, seen by a server alone": Death(
        "cluster",
        "a checkpoint",
        "TaskManager killed",
        {"FreshetFrozen": 600},
        {"flink_": None, "freshet_lag": "5+1x360"},
    ),
    "TaskManager": Death(
        "cluster",
        "TaskManager killed",
        "JobManager killed",
        {"FreshetServerStale": 90, "FreshetFlinkDown": 150, "FreshetNoTasks": 210, "FreshetCheckpointOld": 360},
    ),
    "pod of the TaskManager": Death(
        "cluster",
        "TaskManager killed",
        "JobManager killed",
        {"FreshetServerStale": 90, "FreshetNoTasks": 210, "FreshetCheckpointOld": 360},
        {'up{instance="taskmanager': GONE},
    ),
    "JobManager too": Death(
        "cluster",
        "JobManager killed",
        "server killed",
        {"FreshetServerStale": 60, "FreshetFlinkGone": 90, "FreshetFlinkDown": 90, "FreshetJobGone": 330},
    ),
    "pods of both": Death(
        "cluster",
        "JobManager killed",
        "server killed",
        {"FreshetServerStale": 60, "FreshetFlinkGone": 90, "FreshetJobGone": 330},
        {'up{instance="jobmanager': GONE, 'up{instance="taskmanager': GONE},
    ),
    "both, of a job that no server sees": Death(
        "cluster",
        "JobManager killed",
        "server killed",
        {"FreshetFlinkGone": 90, "FreshetFlinkDown": 90, "FreshetJobGone": 330},
        {"freshet_": None, 'up{instance="serve': "1+0x360"},
    ),
    "job alone, of two": Death(
        "cluster", "a checkpoint", "TaskManager killed", {"FreshetJobGone": 300}, {"flink_": GONE, "freshet_": None}
    ),
    "server too": Death(
        "cluster",
        "server killed",
        "end",
        {
            "FreshetFlinkGone": 60,
            "FreshetFlinkDown": 60,
            "FreshetServerDown": 90,
            "FreshetServersGone": 90,
            "FreshetJobGone": 300,
        },
    ),
    "all pods": Death(
        "cluster",
        "server killed",
        "end",
        {"FreshetFlinkGone": 60, "FreshetServersGone": 90, "FreshetJobGone": 300},
        {"up{": GONE},
    ),
    "local: nobody": Death("local", "frozen", "frozen", {}, MORE_EVENTS),
    "local: frozen with a backlog": Death(
        "local", "frozen", "killed", {"FreshetServerStale": 90, "FreshetFrozen": 630}
    ),
    "local: killed": Death("local", "killed", "server killed", {"FreshetServerStale": 60, "FreshetJobDown": 90}),
    "local: server": Death(
        "local", "server killed", "end", {"FreshetServerDown": 90, "FreshetServersGone": 90, "FreshetJobGone": 330}
    ),
    "local: machine of both": Death(
        "local", "frozen", "frozen", {"FreshetServersGone": 60, "FreshetJobGone": 300}, {"freshet_": GONE, "up{": GONE}
    ),
    "local: no checkpoint ever": Death(
        "local",
        "frozen",
        "frozen",
        {"FreshetNoCheckpoint": 600},
        MORE_EVENTS | {"freshet_checkpoint_age_seconds": None},
    ),
    "local: checkpoints end": Death(
        "local",
        "frozen",
        "frozen",
        {"FreshetCheckpointOld": 360},
        MORE_EVENTS | {"freshet_checkpoint_age_seconds": "3+5x360"},
    ),
}


def promtool() -> str:
    """Return the path of promtool: FRESHET_PROMTOOL, or the one of the PATH."""
    found = os.environ.get("FRESHET_PROMTOOL") or shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool here: install Prometheus (Debian's package prometheus), or set FRESHET_PROMTOOL")
    return found


def unrolled(values: str) -> list[str]:
    """Return the values of a series one by one, from promtool's notation."""
    found: list[str] = []
    for one in values.split():
        value, _, times = re.sub(r"\+0x", "*", one).replace("_x", "_*").partition("*")
        found += [value] * (int(times) + (value != "_") if times else 1)
    return found


def series_of(death: Death) -> list[dict[str, str]]:
    recorded = yaml.safe_load((DATA / f"{death.recording}.yml").read_text())
    until = recorded["marks"][death.until]
    found = []
    for name, values in recorded["series"].items():
        shown = unrolled(values)[:until]
        rest = GONE if shown[-1] in ("stale", "_") else f"{shown[-1]}+0x{HELD_S // STEP_S}"
        for begin, other in death.more.items():
            if name.startswith(begin):
                shown, rest = (shown[: recorded["marks"][death.death]], other) if other is not None else ([], "")
        if shown:
            found.append({"series": name, "values": f"{' '.join(shown)} {rest}"})
    return found


def run_promtool(folder: Path, death: Death, checks: list[tuple[int, str, list[str]]]) -> str:
    """Return what promtool has against these checks: at each time the alerts of a query that fire."""
    asked = [
        {
            "expr": query,
            "eval_time": f"{at}s",
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names],
        }
        for at, query, names in checks
    ]
    rules = yaml.safe_load(ALERTS.read_text())
    if death.recording == "local":  # no Flink is scraped there: as the file says
        rules["groups"] = [one for one in rules["groups"] if one["name"] != "freshet-flink"]
    (folder / "alerts.yml").write_text(yaml.safe_dump(rules))
    test = {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "10s",
        "tests": [{"interval": f"{STEP_S}s", "input_series": series_of(death), "promql_expr_test": asked}],
    }
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump(test, width=1000))
    done = subprocess.run([promtool(), "test", "rules", str(path)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("name", DEATHS)
def test_each_death_is_found(tmp_path: Path, name: str) -> None:
    death = DEATHS[name]
    died_s = STEP_S * yaml.safe_load((DATA / f"{death.recording}.yml").read_text())["marks"][death.death]
    checks = []
    for alert, after_s in death.alerts.items():
        query = FIRING.replace("{", f'{{alertname="{alert}",')
        checks += [(died_s + after_s - 30, query, []), (died_s + after_s, query, [alert])]
    assert death.alerts or "nobody" in name
    assert run_promtool(tmp_path, death, [*checks, (died_s + 1500, FIRING, sorted(death.alerts))]) == ""
