"""A step of an embedding: done once, told again as often as it is asked for, and by one process at a time."""

from __future__ import annotations

import fcntl
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from freshet.gnn.model import load_model, save_model
from freshet.gnn.plan import compile_plan
from freshet.job.embed.step import Serving, StepSettings, do_step, settings_of, steps_of
from freshet.job.embed.streaming import partitioning_of
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.operators.embed.files import EmbedError
from freshet.operators.snapshot.reader import open_snapshot
from freshet.schema import Features
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.random_graphs import random_graph
from tests.support.stages.embedded import embed, file_bytes, write_graph

LAYERS = (conv("sage_conv", IN_WIDTH, 8), {"type": "relu"}, conv("gcn_conv", 8, 4))
PARTS = 2


@pytest.fixture
def told(tmp_path: Path) -> StepSettings:
    save_model(make_model(1, LAYERS), tmp_path / "model")
    folder = write_graph(tmp_path / "S", random_graph(2, vertices=60, edges=300))
    plan = compile_plan(make_model(1, LAYERS))
    placed = PartitioningOptions(parts=PARTS, partitioner="hdrf")
    partitioning = partitioning_of(placed, plan, open_snapshot(folder, Features(IN_WIDTH)), 5, undirected=False)
    settings = settings_of(tmp_path / "model", tmp_path / "work", PARTS, partitioning)
    made = StepSettings(settings.to_dict(), str(folder), 1 << 24, str(tmp_path / "work"))
    made.folder.mkdir(parents=True)
    return made


def waves_of(told: StepSettings) -> list[list[str]]:
    return steps_of(told, open_snapshot(Path(told.snapshot), Features(IN_WIDTH))).waves


def do_all(told: StepSettings) -> list[dict[str, Any]]:
    """As Flink does it: what a wave says goes to all steps of the next one."""
    said: list[dict[str, Any]] = []
    before: list[dict[str, Any]] = []
    for wave in waves_of(told):
        before = [do_step(told, name, before) for name in wave]
        said += before
    return said


def test_all_steps_may_be_asked_for_again_when_what_the_first_ones_left_is_gone(told: StepSettings) -> None:
    first = do_all(told)
    gone = [name for one in first for name in one["files"] if not (told.folder / name).exists()]
    assert gone
    again = do_all(told)
    assert [one["step"] for one in again] == [one["step"] for one in first]
    assert [name for one in again for name in one["files"]] == [
        name for one in first for name in one["files"] if name not in gone
    ]


def test_a_later_wave_removes_files_as_a_step_is_asked_for_again(
    told: StepSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, look = do_all(told), Path.stat
    first, gone = next((one, path) for one in done for name in one["files"] if (path := told.folder / name).exists())

    def look_before_it_goes(path: Path, **options: Any) -> Any:
        found = look(path, **options)
        if path == gone:
            path.unlink()
        return found

    monkeypatch.setattr(Path, "stat", look_before_it_goes)
    again = do_step(told, first["step"], [])
    assert not gone.exists() and again["files"].items() <= first["files"].items()


def test_a_step_waits_for_another_process_that_is_at_it(told: StepSettings) -> None:
    name = waves_of(told)[0][0]
    with (told.folder / f"{name}.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        other = threading.Thread(target=do_step, args=(told, name, []))
        other.start()
        other.join(1.0)
        assert other.is_alive() and not (told.folder / "journal.json").exists()
    other.join(120.0)
    assert not other.is_alive() and (told.folder / "journal.json").exists()


def for_serving(told: StepSettings, work: Path, memory: int = 1 << 20, eviction: str = "next-use") -> StepSettings:
    """The same snapshot and model, for serving: attention between sums, in so many passes."""
    layers = (conv("sage_conv", IN_WIDTH, 8), conv("gat_conv", 8, 6, heads=2), conv("gcn_conv", 6, 4))
    save_model(make_model(1, layers), work / "model")
    given = Serving(str(work / "model"), False, "completion", eviction, [2, 3, 5], 2 * memory)
    (work / "work").mkdir()
    return StepSettings(None, told.snapshot, memory, str(work / "work"), asdict(given))


def test_steps_for_serving_leave_what_one_process_leaves(told: StepSettings, tmp_path: Path) -> None:
    (tmp_path / "serving").mkdir()
    serving = for_serving(told, tmp_path / "serving")
    assert list(map(len, waves_of(serving))) == [1, 2, 3, 5, 1]
    snapshot = open_snapshot(Path(told.snapshot), Features(IN_WIDTH))
    assert not steps_of(serving, snapshot).begin()
    said = do_all(serving)
    assert [list(one["files"]) for one in said[1:3]] == [["layer1.rows"]] * 2
    assert not (serving.folder / "layer1.rows").exists() and (serving.folder / "layer3.rows").exists()
    report = steps_of(serving, snapshot).report(resumed=False)
    assert [layer.passes for layer in report.layers] == [2, 3, 5]
    do_all(serving)  # nothing is done twice
    embed(load_model(tmp_path / "serving" / "model"), Path(told.snapshot), tmp_path / "local", order="completion")
    assert file_bytes(serving.folder) == file_bytes(tmp_path / "local")


def test_a_file_of_another_size_than_the_wave_before_has_left_is_refused(told: StepSettings, tmp_path: Path) -> None:
    (tmp_path / "serving").mkdir()
    serving = for_serving(told, tmp_path / "serving")
    prepared = do_step(serving, "prepared", [])
    with (serving.folder / "dst").open("ab") as file:
        file.write(b"more")
    with pytest.raises(EmbedError, match=r"dst: .* prepared left .*; is the folder shared\?"):
        do_step(serving, "layer1-0", [prepared])
