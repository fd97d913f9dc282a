"""Clients in other languages against a running server: generated of /openapi.json, and Arrow Flight from Go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from freshet.job.serving.doors.answering import Answering
from freshet.job.serving.doors.http_server import description
from tests.support.serving.served import Served
from tests.unit.job.serving.test_workers import doors
from tests.unit.test_imports import ROOT

# Packages of npm and modules of Go, kept there; the folder for temporary files is one of this run alone.
CACHE = Path(f"/tmp/freshet-clients-{os.getuid()}")
WAIT_S = 600
PYTHON = """
import sys
from freshet_client import Client
from freshet_client.api.embeddings import get_embedding, get_embeddings, get_rows, nearest
from freshet_client.models import Error, GetEmbeddingsBody, NearestBody

client = Client(base_url=sys.argv[1], httpx_args={"trust_env": False})
one = get_embedding.sync("2", client=client)
assert (one.id, one.embedding, one.as_of, len(one.logits)) == (2, [1.0] * 4, 1, 3), one
many = get_embeddings.sync(client=client, body=GetEmbeddingsBody(ids=[2, 99]))
assert ([row.id for row in many.found], many.unknown) == ([2], [99]), many
missing = nearest.sync(client=client, body=NearestBody.from_dict({"id": 99}))
assert isinstance(missing, Error) and missing.kind == "unknown", missing
assert [row.score for row in nearest.sync(client=client, body=NearestBody.from_dict({"id": 2, "k": 1})).found]
page = get_rows.sync(client=client, limit=2)
assert (len(page.rows), bool(page.next_)) == (2, True), page
"""
TYPESCRIPT = """
import createClient from "openapi-fetch";
import type { paths } from "./freshet";

async function main(): Promise<void> {
  const client = createClient<paths>({ baseUrl: process.argv[2] });
  const one = await client.GET("/v1/embeddings/{id}", { params: { path: { id: "2" }, query: { ids_as: "string" } } });
  const row: number | null | undefined = one.data?.embedding[0];
  if (one.data?.id !== "2" || row !== 1) throw new Error(JSON.stringify(one));
  const many = await client.POST("/v1/embeddings", { body: { ids: ["2", "99"], ids_as: "string" } });
  if (many.data?.unknown[0] !== "99" || many.data.found.length !== 1) throw new Error(JSON.stringify(many));
  const missing = await client.POST("/v1/nearest", { body: { id: 99 } as never });
  if (missing.error?.kind !== "unknown") throw new Error(JSON.stringify(missing));
  console.log("typed");
}
void main();
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    one, there = Served(tmp_path_factory.mktemp("served") / "O", "int"), doors()
    answering = Answering(there, 0, one.lookup, one.health)
    answering.start()
    yield one, f"http://127.0.0.1:{there.http_port}"
    answering.stop()
    one.close()


def run(command: list[str], cwd: Path, **environ: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environ}, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def described(folder: Path) -> Path:
    (folder / "openapi.json").write_bytes(orjson.dumps(description()))
    return folder / "openapi.json"


def installed(command: list[str], cwd: Path, **environ: str) -> None:
    """Run what needs a registry, or skip the test."""
    try:
        run(command, cwd, **environ)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{' '.join(command[:2])} can't reach its registry: {str(error)[-200:]}")


def test_python(served: tuple[Served, str], tmp_path: Path) -> None:
    generator = Path(sys.executable).parent / "openapi-python-client"
    if not generator.exists():
        pytest.skip("openapi-python-client is not installed")
    config = tmp_path / "config.yml"
    config.write_text("project_name_override: freshet-client\npackage_name_override: freshet_client\npost_hooks: []\n")
    command = [str(generator), "generate", "--path", str(described(tmp_path)), "--config", str(config)]
    said = run([*command, "--output-path", str(tmp_path / "made"), "--fail-on-warning"], tmp_path)
    assert "warning" not in said.lower(), said
    run([sys.executable, "-c", PYTHON, served[1]], tmp_path, PYTHONPATH=str(tmp_path / "made"))


def test_typescript(served: tuple[Served, str], tmp_path: Path) -> None:
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    cache = CACHE / "npm"
    if not (cache / "node_modules" / "typescript").is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "package.json").write_text('{"private": true}')
        packages = ["openapi-typescript@7", "openapi-fetch@0.13", "typescript@5", "@types/node@20"]
        installed(["npm", "install", "--no-audit", "--no-fund", *packages], cache)
    (tmp_path / "node_modules").symlink_to(cache / "node_modules")
    run(["node_modules/.bin/openapi-typescript", str(described(tmp_path)), "-o", "freshet.d.ts"], tmp_path)
    (tmp_path / "read.ts").write_text(TYPESCRIPT)
    options = ["--strict", "--target", "es2022", "--module", "commonjs", "--moduleResolution", "node", "--skipLibCheck"]
    run(["node_modules/.bin/tsc", *options, "--esModuleInterop", "read.ts"], tmp_path)
    assert run(["node", "read.js", served[1]], tmp_path) == "typed\n"


@pytest.mark.long
def test_arrow_flight_from_go(served: tuple[Served, str], tmp_path: Path) -> None:
    if not shutil.which("go"):
        pytest.skip("Go is not installed")
    kept = {
        "GOMODCACHE": str(CACHE / "go"),
        "GOCACHE": str(CACHE / "go-build"),
        "GOFLAGS": "-modcacherw",
        "CGO_ENABLED": "0",
    }
    source = shutil.copytree(ROOT / "examples" / "go", tmp_path / "go")
    installed(["go", "mod", "download"], source, **kept)
    run(["go", "build", "-o", "read", "."], source, **kept)
    assert run([str(source / "read"), f"127.0.0.1:{served[0].port}", "2", "3"], tmp_path).splitlines() == [
        "2 1 [1 1 1 1]",
        "3 1 [-2 -2 -2 -2]",
    ]
