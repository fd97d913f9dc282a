"""Processes that do not see the output folder: where they write, and what their job needs then."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from freshet.gnn.any_plan import returned_of
from freshet.operators.epochs.config import CutLogConfig
from freshet.operators.factory import make_outputs
from freshet.operators.output_folders import JOB_FILE, home_of, is_here
from freshet.operators.parser.config import LetterConfig
from freshet.operators.settings import NoSharedFolderError, OutletConfig, Settings, TailConfig
from freshet.operators.sink.outlet import Outlet
from freshet.schema import Features

JOB = "0123456789abcdef"
SETTINGS = Settings(
    model="M",
    out="O",
    parts=1,
    job_id=JOB,
    outlet=OutletConfig(),
    letters=LetterConfig("kafka://h:1/dead"),
    cuts=CutLogConfig(topic="kafka://h:1/cuts"),
)


def job_in(out: Path, job: str = JOB) -> Path:
    (out / JOB_FILE).parent.mkdir(parents=True)
    (out / JOB_FILE).write_bytes(orjson.dumps({"settings": {"job_id": job}}))
    return out


def test_a_folder_is_known_by_its_job(tmp_path: Path) -> None:
    assert is_here(job_in(tmp_path / "own"), JOB)
    assert home_of(tmp_path / "own", JOB) == tmp_path / "own"
    for elsewhere in (tmp_path / "none", job_in(tmp_path / "other", "f" * 16)):
        assert not is_here(elsewhere, JOB)
        assert home_of(elsewhere, JOB) == Path(tempfile.gettempdir()) / f"freshet-{JOB}"
    assert home_of(tmp_path / "none", "") == tmp_path / "none", "a job without an id has its folder"
    (tmp_path / "own" / JOB_FILE).write_bytes(b"\0")
    assert is_here(tmp_path / "own", JOB), "damaged, but here"


def test_without_the_folder_a_job_runs_on_topics_alone(tmp_path: Path) -> None:
    here = replace(SETTINGS, out=str(job_in(tmp_path / "own")), outlet=None)
    assert here.at_home() is here
    away = replace(SETTINGS, out=str(tmp_path / "none")).at_home()
    assert not away.is_out_here
    assert away.out == str(home_of(tmp_path / "none", JOB))


def test_rows_leave_by_the_topic_alone(tmp_path: Path) -> None:
    plan: Any = SimpleNamespace(out={"": 4}, features=Features(4))
    away = replace(SETTINGS, out=str(tmp_path), is_out_here=False)
    assert [type(one) for one in make_outputs(away, *returned_of(plan), 0)] == [Outlet]
    assert not list(tmp_path.iterdir())
    assert len(make_outputs(replace(away, is_out_here=True), *returned_of(plan), 0)) == 3


@pytest.mark.parametrize(
    ("changed", "advice"),
    [
        ({"outlet": None}, "give --embeddings-to kafka://..."),
        ({"letters": LetterConfig("/O/dead_letters.jsonl")}, "give --dead-letters kafka://..."),
        ({"tail": TailConfig(tables_folder="/T")}, "leave --tables out"),
        ({"cuts": CutLogConfig("/O/checkpoints/cuts")}, "put the checkpoints on an object store"),
    ],
)
def test_what_needs_the_folder_is_named(tmp_path: Path, changed: dict[str, object], advice: str) -> None:
    settings = replace(SETTINGS, out=str(tmp_path / "none"), **changed)  # type: ignore[arg-type]
    with pytest.raises(NoSharedFolderError, match=f"does not see this folder of job {JOB}; .* or {advice}$"):
        settings.at_home()
