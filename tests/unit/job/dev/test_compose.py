"""What users start in containers: the files hang together, and docker-compose takes them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from freshet.job.machine.artifacts import BROKER, read_pins

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def test_docker_compose_takes_it() -> None:
    tool = shutil.which("docker-compose")
    if tool is None:
        pytest.skip("docker-compose is not installed")
    command = [tool, "--profile", "job", "--profile", "metrics", "config", "--services"]
    environ = os.environ | {"FRESHET_TOKEN": "secret"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    named = ["freshet", "grafana", "jobmanager", "kafka", "prometheus", "serve", "taskmanager"]
    assert sorted(done.stdout.split()) == named


def test_a_token_has_to_be_given(compose: dict[str, Any]) -> None:
    serve = compose["services"]["serve"]
    assert "0.0.0.0" in serve["command"]
    assert "--without-token" not in serve["command"]
    # neither an empty one nor a known one stands in for it: docker-compose says what is missing and starts nothing
    assert serve["environment"]["FRESHET_TOKEN"].startswith("${FRESHET_TOKEN:?")


def test_what_is_open_to_other_machines_is_open_to_containers_alone(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert len(ports) == 6
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_containers_write_for_their_user_alone(compose: dict[str, Any], tmp_path: Path) -> None:
    dockerfile = ROOT / compose["x-flink"]["build"]["dockerfile"]
    [line] = [line for line in dockerfile.read_text().splitlines() if line.startswith("ENTRYPOINT ")]
    [there] = json.loads(line.removeprefix("ENTRYPOINT "))
    [copied] = [line.split() for line in dockerfile.read_text().splitlines() if line.endswith(f" {there}")]
    command = [str(ROOT / copied[1]), "/bin/sh", "-c", 'echo "$0" > made', "two words"]
    subprocess.run(command, cwd=tmp_path, timeout=60, check=True)
    assert (tmp_path / "made").read_text() == "two words\n"
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o600


def test_every_service_has_a_health_a_grace_period_a_policy_and_limits(compose: dict[str, Any]) -> None:
    assert len(compose["services"]) == 7
    for name, service in compose["services"].items():
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL"), name
        assert {"interval", "timeout", "retries"} <= service["healthcheck"].keys(), name
        assert service["restart"] == "unless-stopped", name
        assert {"stop_grace_period", "mem_limit", "cpus"} <= service.keys(), name


def test_healthchecks_ask_what_the_services_answer(compose: dict[str, Any]) -> None:
    services = compose["services"]
    asked = {name: " ".join(service["healthcheck"]["test"]) for name, service in services.items()}
    assert "localhost:47480/healthz" in asked["serve"], "a stale server is well"
    assert "localhost:8081/" in asked["jobmanager"]
    assert "localhost:9249/" in asked["taskmanager"], "where the image's Flink reports to Prometheus"
    assert "metrics.reporter.prom.port=9249" in (ROOT / "job" / "Dockerfile").read_text()
    assert "freshet status /data/out --json" in asked["freshet"]
    assert "--out=/data/out" in services["freshet"]["command"]


def test_kafka_is_the_tested_version(compose: dict[str, Any]) -> None:
    version = read_pins(BROKER)[0][0].rpartition(":")[2]
    assert compose["services"]["kafka"]["image"] == f"apache/kafka:{version}"


def test_what_containers_mount_is_there(compose: dict[str, Any]) -> None:
    mounts = [one for service in compose["services"].values() for one in service.get("volumes", ())]
    files = [one.split(":")[0] for one in mounts if one.startswith("./deploy")]
    assert len(files) == 4
    assert all((ROOT / name).exists() for name in files)


def test_the_image_is_built_from_what_is_there(compose: dict[str, Any]) -> None:
    dockerfile = ROOT / compose["x-flink"]["build"]["dockerfile"]
    kept = [line[1:] for line in Path(f"{dockerfile}.dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        name for line in dockerfile.read_text().splitlines() if line.startswith("COPY ") for name in line.split()[1:-1]
    ]
    copied.remove("job/docker-entrypoint.sh")  # in the folder job
    assert copied
    assert sorted(copied) == sorted(kept)
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_holds_compiled_kernels_where_its_containers_look_for_them(compose: dict[str, Any]) -> None:
    lines = (ROOT / compose["x-flink"]["build"]["dockerfile"]).read_text().splitlines()
    warm, user = (
        next(k for k, line in enumerate(lines) if line.startswith(start)) for start in ("RUN freshet", "USER")
    )
    (cache,) = (k for k, line in enumerate(lines) if "NUMBA_CACHE_DIR=" in line)
    folder = lines[cache].split("=")[1].split()[0]
    assert cache < warm < user
    assert not folder.startswith("/tmp"), "a container's own"
    assert lines[warm] == "RUN freshet warm-up && chmod -R a+rwX /opt/cache"
    assert Path("/opt/cache") in Path(folder).parents
    assert "NUMBA_CPU_NAME" not in "".join(lines), "the common target of kernels/processor.py holds"
