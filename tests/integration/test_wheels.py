"""The wheels, each installed where nothing of the checkout can be imported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.serving.server import Server
from tests.unit.test_imports import FOLDERS, ROOT, package_files

pytestmark = pytest.mark.slow
PYTHON_OF_CLIENTS = ("numpy", "orjson", "pyarrow")
DATA = {"freshet/py.typed", "freshet/job/machine/artifacts.toml", "freshet/job/flink/TokenGateway.java"}
DATA |= {f"freshet/{one.relative_to(ROOT)}" for one in (ROOT / "job/serving/page/site").rglob("*") if one.is_file()}
JAVA = ("MessageBatcher", "MessagePieces", "RecordSerializer", "RecordSplitter", "TokenUrl", "WatchedSource")
DATA |= {f"freshet/job/kafka/{name}.java" for name in JAVA} | {"freshet/job/options/flink_options.json"}
DATA |= {f"freshet/job/machine/{name}.java" for name in ("UnixSystem", "WriteClasses")}

# What a user has beside a program, by names that packages of ours once had in site-packages.
OTHERS = ("kernels", "operators", "partitioner")
MODEL = """
import torch
from torch_geometric.nn import SAGEConv

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(3, 2)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)
"""
PROGRAM = """
import json
from pathlib import Path
import gnn, kernels, operators, partitioner, state.notes
from freshet import EmbeddingClient, ExportError, FreshetError, export_model
import freshet, freshet.gnn.model, freshet.job, freshet.kernels, freshet.operators, freshet.partitioner, freshet.state

here = Path(__file__).parent
for one in (gnn, kernels, operators, partitioner, state.notes):
    assert Path(one.__file__).is_relative_to(here), one
for one in (freshet, freshet.gnn, freshet.job, freshet.kernels, freshet.operators, freshet.partitioner, freshet.state):
    assert not Path(one.__file__).is_relative_to(here) and "site-packages" in one.__file__, one
export_model(gnn.Net(), "M")
events = [{"op": "add_vertex", "id": i, "x": [i, 1, -i]} for i in range(5)]
events += [{"op": "add_edge", "src": i, "dst": (i + 1) % 5} for i in range(5)]
Path("e.jsonl").write_text("".join(json.dumps(one) + "\\n" for one in events))
"""
READER = """
import importlib, json, sys
import freshet
from freshet import AsyncEmbeddingClient, EmbeddingClient, InputError

for name in ("numba", "polars", "pyflink", "pydantic", "httpx", "psutil", "typer", "freshet.gnn", "freshet.files"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(name + " is there")
with EmbeddingClient(sys.argv[1], timeout=60) as client:
    table, (ids, epochs, rows) = client.get([1, 3, 99]), client.rows([1, 3])
    assert table["id"].to_pylist() == ids.tolist() == [1, 3]
    assert table["embedding"].to_pylist() == rows.tolist()
    near, every = client.nearest(1, k=2), client.all()
    assert near["id"][0].as_py() == 1 and every.num_rows == 5 and client.health()["ready"]
import asyncio

async def ask():
    async with AsyncEmbeddingClient(sys.argv[1], timeout=60) as client:
        return (await client.get([1, 3]))["embedding"].to_pylist()

assert asyncio.run(ask()) == rows.tolist()
said = []
for wrong in (
    lambda: EmbeddingClient("127.0.0.1:9", timeout=0).get([1]),
    lambda: EmbeddingClient("O/tables"),
    lambda: EmbeddingClient("grpc+tls://127.0.0.1:9", tls_roots="none.pem"),
    lambda: freshet.export_model,
    lambda: freshet.errors.SnapshotError,
):
    try:
        wrong()
    except (InputError, freshet.errors.NotReadyError, ImportError, AttributeError) as error:
        said.append(str(error))
print(json.dumps({"rows": rows.tolist(), "said": said}))
"""

# What Flink's client does with the file of the job; its package's own modules have names that others have, too.
BY_PATH = """
import importlib.util, runpy, sys
from pathlib import Path

main = Path(importlib.util.find_spec("freshet").origin).parent / "job" / "main.py"
sys.argv[1:] = ["--spec", "none.json"]
sys.path[0] = str(main.parent)
try:
    runpy.run_path(str(main), run_name="__main__")
except SystemExit as end:
    assert end.code == 2, end.code
assert not any(importlib.util.find_spec(name) for name in ("errors", "schema", "extras"))
"""


def bin_of(environment: Path) -> Path:
    return environment / "bin"


def packages_of(environment: Path) -> Path:
    [folder] = environment.glob("lib/python*/site-packages")
    return folder


def make_environment(folder: Path, wheel: Path) -> Path:
    """A virtual environment that has a wheel, and nothing else yet."""
    venv.create(folder, symlinks=True)
    uv = shutil.which("uv", path=f"{bin_of(Path(sys.prefix))}{os.pathsep}{os.environ['PATH']}")
    there = ["--python", str(bin_of(folder) / "python")]
    command = [uv, "pip", "install", *there] if uv else [sys.executable, "-m", "pip", *there, "install"]
    done = subprocess.run(
        [*command, "--no-deps", "--no-index", str(wheel)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return folder


def run_in(folder: Path, *command: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """A command of a user, who has set nothing of ours."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a wheel is built from; the links in freshet/ are files with their targets, as a ZIP has them."""
    to = tmp_path_factory.mktemp("zip")
    for name in (*FOLDERS, "scripts"):
        shutil.copytree(ROOT / name, to / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, to)
    for name in FOLDERS[1:]:
        link = to / "freshet" / name
        link.unlink()
        link.write_text(f"../{name}")
    return to


@pytest.fixture(scope="module")
def wheels(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    dist = tmp_path_factory.mktemp("dist")
    built = run_in(dist, sys.executable, tree / "scripts" / "wheel.py", "--dist", dist).stdout.split()
    assert sorted(map(str, dist.iterdir())) == sorted(built)
    return {Path(one).name.partition("-")[0]: Path(one) for one in built}


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel without those that describe it."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def test_they_have_the_package_and_nothing_else(wheels: dict[str, Path]) -> None:
    assert sorted(wheels) == ["freshet_client", "freshet_gnn"]
    assert all(one.name.endswith("-py3-none-any.whl") for one in wheels.values())
    all_of_it, clients = contents(wheels["freshet_gnn"]), contents(wheels["freshet_client"])
    modules = {f"freshet/{file.relative_to(ROOT)}".replace("freshet/freshet/", "freshet/") for file in package_files()}
    assert set(all_of_it) == modules | DATA
    assert {name: all_of_it[name] for name in clients} == clients, "one source: beside each other they agree"
    for name, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            described = {one.rpartition("/")[2]: one for one in archive.namelist() if ".dist-info/" in one}
            told = Parser().parsestr(archive.read(described["METADATA"]).decode())
        assert "LICENSE" in described
        wanted = [one.partition(";")[0].rstrip("0123456789.><=, ") for one in told.get_all("Requires-Dist", [])]
        if name == "freshet_client":
            assert sorted(wanted) == list(PYTHON_OF_CLIENTS)
            assert len(clients) < 25


def test_a_build_in_the_tree_is_complete_or_fails(wheels: dict[str, Path], tree: Path, tmp_path: Path) -> None:
    """As `pip wheel` builds it. No other test may use the tree after this one."""
    build = ("-c", "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])")
    run_in(tree, sys.executable, *build, tmp_path / "good")
    [built] = (tmp_path / "good").iterdir()
    assert contents(built) == contents(wheels["freshet_gnn"])
    shutil.rmtree(tree / "kernels")
    assert "'kernels' does not exist" in run_in(tree, sys.executable, *build, tmp_path / "bad", code=1).stderr
    assert not list((tmp_path / "bad").glob("*.whl"))


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `gnn.py`, a `job.py` and a folder `state/`, as they may stand beside anybody's program."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "state").mkdir()
    (folder / "state" / "notes.py").touch()
    for name in OTHERS:
        (folder / f"{name}.py").touch()
    (folder / "gnn.py").write_text(MODEL)
    (folder / "job.py").write_text(PROGRAM)
    return folder


@pytest.fixture(scope="module")
def freshet(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment with the wheel of freshet-gnn; what it needs lies behind it."""
    folder = make_environment(tmp_path_factory.mktemp("gnn") / "env", wheels["freshet_gnn"])
    # A path in a .pth file is searched for packages, but not for .pth files, by which the checkout would come in.
    (packages_of(folder) / "needs.pth").write_text(sysconfig.get_paths()["purelib"])
    for top in FOLDERS[1:]:
        for compiled in (ROOT / top).glob("**/__pycache__/*"):  # kernels, by a hash of their sources
            here = packages_of(folder) / "freshet" / compiled.relative_to(ROOT)
            if here.parents[1].is_dir() and (compiled.is_dir() or compiled.suffix == ".ready"):
                here.parent.mkdir(exist_ok=True)
                here.symlink_to(compiled)
    return bin_of(folder) / "freshet"


@pytest.fixture(scope="module")
def server(freshet: Path, user: Path) -> Iterator[Server]:
    """Serves what a job of the user's has written."""
    if find_spec("torch_geometric") is None:
        pytest.skip("torch and torch-geometric are not installed")
    run_in(user, freshet.with_name("python"), "job.py")
    given = ("--model", "M", "--events", "e.jsonl", "--out", "O")
    summary = json.loads(run_in(user, freshet, "run", *given, "--runtime", "local").stdout.splitlines()[-1])
    assert (summary["events"], summary["rejected"], summary["vertices"]) == (10, 0, 5)
    checked = json.loads(run_in(user, freshet, "check", *given).stdout.splitlines()[-1])
    assert (checked["vertices"], checked["missing"], checked["extra"]) == (5, 0, 0)
    found = Server(user / "O", freshet=(str(freshet),), cwd=user)
    try:
        found.start()
        yield found
    finally:
        found.end()


def test_beside_files_of_the_names_of_our_folders(server: Server, freshet: Path, user: Path) -> None:
    flight = server.until_ready()["flight"]
    for at in (flight, "O/tables"):
        rows = run_in(user, freshet, "query", "--at", at, "--format", "json", "--timeout", 60, 1, 3).stdout.splitlines()
        assert [json.loads(row)["id"] for row in rows] == [1, 3]
    assert run_in(user, freshet, "--version").stdout.startswith("freshet ")


def test_the_job_started_by_its_path(freshet: Path, tmp_path: Path) -> None:
    assert "none.json: there is no such file" in run_in(tmp_path, freshet.with_name("python"), "-c", BY_PATH).stderr


def test_client_alone_reads_from_a_server(server: Server, wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "env", wheels["freshet_client"])
    packages = packages_of(environment)
    for name in PYTHON_OF_CLIENTS:
        for top in {Path(file).parts[0] for file in distribution(name).files or []} - {".."}:
            (packages / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    python, flight = bin_of(environment) / "python", server.until_ready()["flight"]
    read = json.loads(run_in(tmp_path, python, "-c", READER, flight).stdout)
    assert len(read["rows"]) == 2
    away, folder, roots, export, error = read["said"]
    assert away.startswith("grpc://127.0.0.1:9: no server answers there")
    assert folder.startswith(
        "address O/tables: expected HOST:PORT of a `freshet serve`; folders are read where freshet-"
    )
    assert roots == "tls_roots none.pem: can't be read: No such file or directory"
    assert export == "freshet.export_model: is part of freshet-gnn, and here is freshet-client"
    assert error == "freshet.errors.SnapshotError is part of freshet-gnn, and here is freshet-client"
