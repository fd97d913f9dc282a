"""What users start in containers: the files hang together, and docker-compose takes them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from job.machine.artifacts import BROKER, read_pins

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def test_docker_compose_takes_it() -> None:
    tool = shutil.which("docker-compose")
    if tool is None:
        pytest.skip("docker-compose is not installed")
    command = [tool, "--profile", "job", "config", "--services"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["freshet", "jobmanager", "kafka", "serve", "taskmanager"]


def test_kafka_is_the_tested_version(compose: dict[str, Any]) -> None:
    version = read_pins(BROKER)[0][0].rpartition(":")[2]
    assert compose["services"]["kafka"]["image"] == f"apache/kafka:{version}"


def test_the_image_is_built_from_what_is_there(compose: dict[str, Any]) -> None:
    dockerfile = ROOT / compose["x-flink"]["build"]["dockerfile"]
    kept = [line[1:] for line in Path(f"{dockerfile}.dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        name for line in dockerfile.read_text().splitlines() if line.startswith("COPY ") for name in line.split()[1:-1]
    ]
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
    assert "NUMBA_CPU_NAME" not in "".join(lines), "the common target of gnn/processor.py holds"
