"""Files of supervisors: each repeats one command line, and leaves a stop the time for a savepoint."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

import yaml

from freshet.job.options.flags import parameters
from freshet.job.options.runtime_options import AUTO

ROOT = Path(__file__).resolve().parents[4]
GRACE_S = 120


def flags_in(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def test_compose_repeats_the_job_and_waits_for_its_savepoint() -> None:
    job = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["freshet"]
    assert (job["restart"], job["stop_grace_period"]) == ("unless-stopped", f"{GRACE_S // 60}m")
    assert f"--resume={AUTO}" in job["command"]


def test_the_unit_of_systemd_repeats_the_job_and_waits_for_its_savepoint() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "deploy" / "freshet.service")
    service = unit["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[1:4] == ["run", "--resume", AUTO]
    known = {f"--{one.name.rstrip('_').replace('_', '-')}" for one in parameters()} | {"--config"}
    assert flags_in(words) <= known
    assert (service["TimeoutStopSec"], service["KillMode"]) == (str(GRACE_S), "mixed")
    assert (service["Restart"], service["SuccessExitStatus"]) == ("on-failure", "143")
