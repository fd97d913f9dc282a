"""The base of freshet-gnn runs without its extras, and a command that needs one says which, and how to get it."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

import freshet
from freshet import extras
from freshet.job import cli
from freshet.job.options.run_config import RunConfig
from freshet.job.run.preflight import check_run
from tests.unit.test_imports import ROOT, TORCH_NAMES, imported_name, imports_of, package_files

HTTP = {"job.serving.doors.http_server", "job.serving.doors.json_answers", "job.serving.doors.feast"}
HTTP |= {"job.serving.doors.timed_http", "job.serving.doors.job_metrics", "job.serving.doors.gzipped"}
HTTP |= {f"job.serving.doors.routes.{file.stem}" for file in (ROOT / "job/serving/doors/routes").glob("[!_]*.py")}


def test_extras_are_those_of_the_distribution() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {
        extra: tuple(re.split(r"[<>=!~\[]", one)[0].replace("-", "_") for one in wanted)
        for extra, wanted in declared.items()
        if extra != "dev"
    }
    assert names | {"proofs": ("z3",)} == extras.EXTRAS
    assert names["proofs"] == ("z3_solver",), "which is imported as z3"


def test_base_loads_no_extra() -> None:
    """Modules that import one at their start are imported by functions only, but for each other."""
    packages = {name for names in extras.EXTRAS.values() for name in names} | {"starlette"}
    wrong, seen = [], set()
    for path in package_files():
        file = path.relative_to(ROOT).as_posix()
        name = imported_name(file).removeprefix("freshet.")
        for found in imports_of(path.read_text(), file):
            top = found.module.split(".")[0]
            if found.at_start and top in packages - TORCH_NAMES and name not in HTTP:
                wrong.append(str(found))
            homes = {found.module, found.module.rpartition(".")[0]} & HTTP
            seen |= homes
            if found.at_start and homes and name not in HTTP:
                wrong.append(str(found))
    assert seen == HTTP
    assert not wrong


@pytest.fixture
def nothing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "EXTRAS", {extra: (f"no_{extra}",) for extra in extras.EXTRAS})


@pytest.mark.usefixtures("nothing_extra")
@pytest.mark.parametrize(
    ("command", "extra", "who"),
    [
        (["serve", "--tables", "O/tables"], "serve", "serve"),
        (["model", "import", "a.b:c", "--weights", "W.pt", "--out", "M"], "torch", "model import"),
    ],
)
def test_commands_name_the_extra(
    command: list[str], extra: str, who: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "W.pt").touch()
    with pytest.raises(SystemExit) as ended:
        cli.main(command)
    [said] = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert said.startswith(f"freshet: {who}: needs no_{extra}, which is not installed; run `make install` in")
    assert said.endswith(f"pip install 'dist/freshet_gnn-{freshet.__version__}-py3-none-any.whl[{extra}]'")


@pytest.mark.usefixtures("nothing_extra")
def test_export_names_the_extra(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="export_model: needs no_torch, which is not installed; run `make install`"):
        freshet.export_model(None, tmp_path / "M")  # type: ignore[arg-type]


def test_a_package_that_is_found_by_pythonpath_alone_says_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert f"freshet_gnn-{freshet.__version__}-py3" in extras.how_to_install("serve")
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0


@pytest.mark.usefixtures("nothing_extra")
def test_a_run_that_serves_asks_before_it_begins(tmp_path: Path) -> None:
    for name in ("model.json", "model.safetensors", "e.jsonl"):
        (tmp_path / name).touch()
    config = RunConfig(model=tmp_path, events=[str(tmp_path / "e.jsonl")], out=tmp_path / "O", flight_port=0)
    with pytest.raises(extras.MissingExtraError, match="--flight-port: needs no_serve"):
        check_run(config)
    check_run(config.model_copy(update={"flight_port": None}))


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("torch", r"freshet\.export_model: needs torch, which .*\[torch\]'$"),
        ("freshet.gnn", r"freshet\.export_model: is part of freshet-gnn, and here is freshet-client$"),
        ("elsewhere", "no elsewhere"),
    ],
)
def test_names_whose_package_is_missing(missing: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: str) -> None:
        msg = f"no {missing}"
        raise ModuleNotFoundError(msg, name=missing)

    monkeypatch.setattr(freshet, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match=said) as raised:
        _ = freshet.export_model
    assert raised.value.name == missing
