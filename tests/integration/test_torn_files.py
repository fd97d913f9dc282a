"""Every small file of a job damaged in every way: each command does right, or says in a sentence which file it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from freshet.state.served.layout import SHM
from freshet.state.served.mapped import MappedTable, NoTableError
from tests.support.runs.torn import (
    Ended,
    Given,
    copy_of,
    damage,
    damages_of,
    graph_of,
    rows_of_log,
    served,
    small_files,
)
from tests.support.stages.in_memory import folder_in_memory

COMMANDS = ("resume", "run_again", "check", "stop", "serve", "export", "compact")
SLOW = ("resume", "export")
JOBS = ("finished", "stopped")


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder in which copies of jobs come and go fast."""
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture
def tmp_path(memory: Path) -> Iterator[Path]:
    """A folder beside the jobs, whose images copies have links to."""
    folder = memory / "test"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def given(memory: Path) -> Iterator[Given]:
    (memory / "torn").mkdir()
    yield Given.make(memory / "torn")
    for path in SHM.glob("freshet-*.table"):  # other processes' tests use theirs
        with suppress(NoTableError, OSError):
            if Path(MappedTable(path).folder).is_relative_to(memory):
                path.unlink()


@pytest.fixture
def jobs(given: Given, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A job that has finished and one that was stopped, each with what a killed server leaves."""
    made = {name: given.folder / name for name in JOBS}
    if not given.truth:
        ended = given.begin(made["finished"], capsys)
        assert ended.code == 0, ended.errors
        given.truth = rows_of_log(made["finished"])
        assert len(given.truth) > 20
        ended = given.stop_early(made["stopped"], capsys, monkeypatch)
        assert ended.code == 0, ended.errors
        assert 0 < json.loads((made["stopped"] / "run.json").read_bytes())["epoch"] < 25
        for out in made.values():
            with monkeypatch.context() as patched:
                patched.setattr("freshet.job.serving.tables.place.forget", lambda *_: None)
                with served(out):
                    pass
    return made


class Outcome:
    """What a command has made of a folder, in a form that can be held against that of an undamaged one."""

    def __init__(self, given: Given, command: str, out: Path, ended: Ended) -> None:
        self.code = ended.code
        self.found: Any = None
        if ended.code:
            return
        if command in ("resume", "compact"):
            self.found = rows_of_log(out)
        elif command == "check":
            told = json.loads(ended.out.splitlines()[-1])
            self.found = told["epoch"], told["vertices"], told["missing"], told["extra"], told["faults"]
        elif command == "serve":
            told = json.loads(ended.out.splitlines()[0])
            self.found = told["epoch"], told["rows"]
        elif command == "export":
            line = json.loads(ended.out.splitlines()[-1])
            self.found = line["positions"], line["epoch"], graph_of(out.parent / "exported")


def fault_of(ended: Ended, outcome: Outcome, sound: Outcome, name: str) -> str | None:
    if "Traceback" in ended.errors:
        return "a traceback"
    if ended.code == sound.code and ended.code:
        return None
    if ended.code == 0:
        return None if sound.code == 0 and outcome.found == sound.found else "another result"
    if ended.code not in (1, 2, 3):
        return f"exit code {ended.code}"
    # RocksDB's files and the cut log are named by their folders.
    names = [name, *(place for place in ("state/", "base/", "checkpoints/cuts") if name.startswith(place))]
    return None if any(one.rstrip("/") in ended.last_line for one in names) else "the file is not named"


def test_damages_are_shared_out_among_files_and_commands() -> None:
    """Each damage is tried in every command, and each kind of file has two of them in turn."""
    names = [f"{number}.json" for number in range(5)]
    for command in COMMANDS:
        some = [set(some_of(command, number, name)) for number, name in enumerate(names)]
        assert set().union(*some) == set(damages_of("0.json"))
    for number, name in enumerate(names):
        tried = [some_of(command, number, name) for command in COMMANDS if command not in SLOW]
        assert set().union(*tried) == set(damages_of(name))


def some_of(command: str, number: int, name: str) -> list[str]:
    """Return the damages to a file that `make test` tries: one or two in turn, others in the next command and file."""
    kinds = list(damages_of(name))
    first = number + COMMANDS.index(command)
    return [kinds[(first + k) % len(kinds)] for k in range(1 if command in SLOW else 2)]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("job", JOBS)
def test_damaged_files(
    given: Given, jobs: dict[str, Path], job: str, command: str, tmp_path: Path, capsys: Any
) -> None:
    tried = assert_right(given, jobs[job], command, some_of, tmp_path, capsys)
    assert tried > (10 if command in SLOW else 20)


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("job", JOBS)
def test_files_damaged_in_every_way(
    given: Given, jobs: dict[str, Path], job: str, command: str, tmp_path: Path, capsys: Any
) -> None:
    tried = assert_right(given, jobs[job], command, lambda _, __, name: list(damages_of(name)), tmp_path, capsys)
    assert tried > 30


def assert_right(
    given: Given,
    job: Path,
    command: str,
    chosen: Callable[[str, int, str], list[str]],
    tmp_path: Path,
    capsys: Any,
) -> int:
    """Hold a command on damaged copies of a job against that on a sound one; return how many were tried."""
    run: Callable[[Path, Any], Ended] = getattr(given, command)
    sound_out = copy_of(job, tmp_path / "sound")
    sound_ended = run(sound_out, capsys)
    sound = Outcome(given, command, sound_out, sound_ended)
    if command == "resume":
        assert sound.found == given.truth
    faults, tried = [], 0
    for number, name in enumerate(small_files(job)):
        if command == "resume" and name.startswith("embeddings/"):  # which it does not read
            continue
        for kind in chosen(command, number, name):
            out = copy_of(job, tmp_path / f"{name} {kind}".replace("/", "-"))  # a failed run may have it open
            if not damage(out / name, damages_of(name)[kind]):
                continue
            tried += 1
            ended = run(out, capsys)
            fault = fault_of(ended, Outcome(given, command, out, ended), sound, name)
            shutil.rmtree(out.parent)
            if fault is not None:
                faults.append(f"{name}: {kind}: {fault}: exit {ended.code}: {ended.last_line}")
    assert not faults, "\n".join(faults)
    return tried


@pytest.mark.parametrize("lost", [("status",), ("status", "tables"), ("tables", "status/sink-0.json")], ids=str)
def test_a_finished_job_is_served_as_it_is_without_its_status(
    given: Given, jobs: dict[str, Path], lost: tuple[str, ...], tmp_path: Path, capsys: Any
) -> None:
    out = copy_of(jobs["finished"], tmp_path / "job")
    for name in lost:
        (shutil.rmtree if (out / name).is_dir() else Path.unlink)(out / name)
    ended = given.serve(out, capsys)
    told = json.loads(ended.out.splitlines()[0])
    assert told["epoch"] == json.loads((out / "run.json").read_bytes())["epoch"] == 25
    assert {int(id_): bytes.fromhex(row) for id_, row in told["rows"].items()} == given.truth
    assert given.compact(out, capsys).code == 0
    assert (out / "embeddings" / "base-000000000025.parquet").is_file()


@pytest.mark.parametrize("command", ["check", "serve", "compact"])
def test_a_bit_of_a_vector_that_flips_is_said(
    given: Given, jobs: dict[str, Path], command: str, tmp_path: Path, capsys: Any
) -> None:
    """A file of the change log is as whole as before, and one row of it is another one."""
    out = copy_of(jobs["finished"], tmp_path)
    vector = next(row for row in given.truth.values() if any(row))
    (path,) = [path for path in (out / "embeddings").iterdir() if vector in path.read_bytes()][-1:]
    data = bytearray(path.read_bytes())
    data[data.rindex(vector)] ^= 1
    path.write_bytes(data)
    run: Callable[[Path, Any], Ended] = getattr(given, command)
    ended = run(out, capsys)
    assert ended.code == 2, ended
    assert f"{path} is damaged (" in ended.last_line
    assert "put it back from a copy" in ended.last_line
