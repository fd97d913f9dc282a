"""`freshet watch`, `history` and `compact` of a service folder: its current job, and epochs as they are served."""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import freshet
from freshet.files.json_file import write_json
from freshet.job import cli
from freshet.job.commands import watch as watching
from freshet.job.errors import UsageError
from freshet.job.folder import run_file
from freshet.job.service.generations import GENERATION, Service
from freshet.job.serving.feeds.service_watch import ServiceWatch, first_unseen
from freshet.job.serving.promotion import promote, rollback
from freshet.job.serving.tables.compaction import compact_log
from freshet.job.serving.tables.served_job import ServedJob, readouts_of
from tests.support.serving.hand_job import JOB_ID, WIDTH, HandJob


class Jobs:
    """Jobs of the same input, which ten records an epoch are read from."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.epochs = folder, dict[str, int]()
        self.jobs = dict[str, HandJob]()
        self.service = Service(folder / "V")

    def step(self, *names: str) -> None:
        """An epoch of each of these jobs, whose rows say which job and epoch they are of."""
        for name in names:
            if name not in self.jobs:
                seed = 1 + len(self.jobs)
                self.jobs[name] = HandJob(self.folder / name, job_id=f"{JOB_ID[:-2]}{name:0>2.2}", seed=seed)
            epoch = self.epochs[name] = self.epochs.get(name, 0) + 1
            value = float(epoch * (1 if name == "A" else -1))
            self.jobs[name].apply(epoch, ({2: value}, []), ({4: value}, []), marker=epoch)

    def change(self, how: Any, *given: Any) -> int:
        return int(how(self.service, *given, wait_s=0.0, force=True).generation.generation)

    def promote(self, name: str) -> int:
        for job in self.jobs.values():
            job.settle()
        return self.change(promote, self.folder / name)

    def close(self) -> None:
        for job in self.jobs.values():
            job.close()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    found = Jobs(tmp_path)
    yield found
    found.close()


class Lines(list[dict[str, Any]]):
    """Lines that `freshet watch` prints, and whether it has said from which epoch on it watches."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Event()

    def say(self, *words: object, **options: Any) -> None:
        print(*words, **options)
        if "watching from epoch" in str(words):
            self.began.set()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    found = Lines()
    monkeypatch.setattr(watching, "print_line", found.append)
    monkeypatch.setattr(watching, "print", found.say, raising=False)
    return found


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main([str(one) for one in arguments])
    return int(end.value.code or 0), *capsys.readouterr()


def meanwhile(lines: Lines, *steps: tuple[int, Callable[[], object]]) -> None:
    """Do each after that number of lines, on another thread: the first not before the watch has begun."""

    def act() -> None:
        deadline = time.monotonic() + 60
        lines.began.wait(60)
        for number, step in steps:
            while len(lines) < number and time.monotonic() < deadline:
                time.sleep(0.01)
            step()

    threading.Thread(target=act, daemon=True).start()


def brief(lines: list[dict[str, Any]]) -> list[Any]:
    """Return generations, and served epochs, whose rows must be of the job that serves then."""
    found = list[Any]()
    for one in lines:
        if "generation" in one:
            found.append(f"generation {one['generation']}")
        else:
            number, own = divmod(one["epoch"], GENERATION)
            assert one["embedding"][0] == own * (-1 if number % 2 else 1)
            found.append(one["epoch"])
    return found


@pytest.mark.parametrize("ahead", [0, 3])
def test_watch_goes_on_with_the_next_job(jobs: Jobs, lines: Lines, ahead: int) -> None:
    """And back; the changes of every event are printed, also where the next job has read further."""
    jobs.step("A", "B")
    jobs.promote("A")
    further = ["B"] * (1 + ahead)
    meanwhile(
        lines,
        (0, lambda: jobs.step("A", "B")),
        (1, lambda: jobs.step("A", *further)),
        (2, lambda: jobs.promote("B")),
        (3 + ahead, lambda: jobs.step("B")),
        (4 + ahead, lambda: jobs.step(*["A"] * (1 + ahead))),
        (4 + ahead, lambda: jobs.change(rollback, None)),
        (5 + ahead, lambda: jobs.step("A")),
    )
    watching.watch(["2"], at=str(jobs.folder / "V"), epochs=2 + (1 + ahead) + 1)
    assert brief(lines) == [
        2,
        3,
        "generation 1",
        *(GENERATION + epoch for epoch in range(4, 5 + ahead)),
        "generation 2",
        2 * GENERATION + 5 + ahead,
    ]
    served = jobs.service.generations()[1]
    assert {"model": served.model, "job": str(jobs.folder / "B"), "from": 0}.items() <= lines[2].items()
    assert list(lines[2])[:2] == ["generation", "model"]


def test_watch_has_the_classes_of_the_model_that_serves(jobs: Jobs, lines: Lines) -> None:
    """The class before is of the same model: what a change of the model makes of it is no change of the vertex."""
    jobs.step("A", "B")
    jobs.promote("A")
    values = [-1.0, 1e3, -1e3]  # of the vertex 2, from epoch 1 on
    turns = [(1, partial(jobs.jobs["B"].apply, 2 + k, ({2: value}, []))) for k, value in enumerate(values[1:])]
    meanwhile(lines, (0, lambda: jobs.promote("B")), *turns)
    watching.watch(at=str(jobs.folder / "V"), class_changes=True, epochs=2)
    head = readouts_of(str(jobs.folder / "B" / "model")).of("")
    assert head is not None
    classes = head.columns(np.repeat(np.float32(values), WIDTH).reshape(-1, WIDTH))["class"].tolist()
    changed = [[before, now] for before, now in itertools.pairwise(classes) if before != now]
    assert changed, "of a head, the largest entry and the smallest one"
    assert [[one["before"], one["class"]] for one in lines[1:]] == changed


def test_watch_waits_for_another_job_where_one_has_ended(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    """And goes on with the current one where the next can't be read; then it takes that once it is there."""
    jobs.step("A", "B")
    jobs.promote("A")
    write_json(jobs.folder / "A" / run_file.RUN, {"state": run_file.FINISHED})
    began = list[int]()
    following = ServiceWatch(jobs.service, None, lambda *_: None, lambda one: began.append(one.generation))
    deadline, step = time.monotonic() + 60, -1
    said = ""

    def until() -> bool:  # on the thread that watches, which never sees B before it is away
        nonlocal said, step
        said += capsys.readouterr().err
        if step == -1 and "generation 0: its job has ended" in said:
            step = 0
            jobs.promote("B")
            Path.rename(jobs.folder / "B", jobs.folder / "away")
        if step == 0 and "generation 1: " in said:
            step = 1
            Path.rename(jobs.folder / "away", jobs.folder / "B")
        if step == 1 and began:
            step = 2
            jobs.step("B")
        return time.monotonic() > deadline

    assert [epoch for epoch, _ in itertools.islice(following.epochs(until), 1)] == [2]
    assert (following.job.out, began) == (jobs.folder / "B", [1])
    assert "generation 0: its job has ended" in said
    following.close()


def test_watch_takes_the_folder_as_an_argument(jobs: Jobs, lines: Lines) -> None:
    jobs.step("A")
    jobs.promote("A")
    meanwhile(lines, (0, lambda: jobs.step("A")))
    watching.watch([str(jobs.service.folder), "4"], epochs=1)
    assert [one["id"] for one in lines] == [4]
    for place in (jobs.service.tables, jobs.service.folder):
        found = Service.at(place)
        assert found is not None
        assert (found[0].folder, found[1]) == (jobs.service.folder, None)
    found = Service.at(jobs.service.tables / "Big%20Kind")
    assert found is not None and found[1] == "Big Kind"
    for other in (jobs.folder / "A", jobs.service.folder / "A", jobs.folder / "A" / "tables", jobs.folder / "none"):
        assert Service.at(other) is None


def test_the_first_unseen_epoch(jobs: Jobs) -> None:
    for _ in range(5):
        jobs.step("A")
    jobs.jobs["A"].settle()
    job = ServedJob.read(jobs.folder / "A")
    assert job is not None
    source = job.sources[0]
    for seen, first in ((0, 1), (9, 1), (10, 2), (39, 4), (40, 5), (50, 6), (1000, 6)):
        assert first_unseen(job, {(source, 0): seen}) == first, seen
    assert first_unseen(job, {("other", 0): 1000}) == 1


def test_history_of_a_service(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        jobs.step("A", "B")
    for name in ("A", "B"):
        jobs.promote(name)
    service = jobs.service.folder
    own = freshet.history(jobs.folder / "A", [2])
    assert "generation" not in str(own.schema.metadata)
    assert own["epoch"].to_pylist() == [1, 2, 3]
    found = freshet.history(service, [2])
    assert found["epoch"].to_pylist() == [GENERATION + epoch for epoch in (1, 2, 3)]
    assert found["embedding"].to_pylist() == freshet.history(jobs.folder / "B", [2])["embedding"].to_pylist()
    assert found.schema.metadata[b"generation"] == b"1"
    assert freshet.history(service, [2], generation=0).to_pylist() == own.to_pylist()
    for given in ((service, 2), ("--out", service, 2), ("--out", service / "tables", 2)):
        code, out, err = run(capsys, "history", *given, "--format", "json")
        assert (code, len(out.splitlines())) == (0, 3)
        assert err.startswith(f"generation 1, epoch {GENERATION + 3}: 3 rows of 1 vertices")
        assert "compaction" not in err
    code, out, _ = run(capsys, "history", service, 2, "--generation", 0, "--format", "json")
    assert [orjson.loads(line)["epoch"] for line in out.splitlines()] == [1, 2, 3]
    questions, answers = jobs.folder / "q.parquet", jobs.folder / "r.parquet"
    pq.write_table(pa.table({"id": [2], "ts": [2**41]}), questions)
    code, out, _ = run(capsys, "history", "--as-of", questions, "--to", answers, "--out", service)
    assert orjson.loads(out)["generation"] == 1
    assert orjson.loads(out)["epoch"] == GENERATION + 3
    assert pq.read_table(answers)["epoch"].to_pylist() == [GENERATION + 3]


def test_what_history_refuses(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    jobs.step("A", "B")
    for name in ("A", "B"):
        jobs.promote(name)
    service = jobs.service.folder
    with pytest.raises(UsageError, match="there is no generation 7; its generations are 0 to 1"):
        freshet.history(service, [2], generation=7)
    with pytest.raises(UsageError, match="generation 0 is of a service folder, and this is none"):
        freshet.history(jobs.folder / "A", [2], generation=0)
    shutil.rmtree(jobs.folder / "A")
    with pytest.raises(UsageError, match=r"generation 0 of .*V: .*A: it holds no job; put the folder back"):
        freshet.as_of(service, pa.table({"id": [2], "ts": [2**41]}), generation=0)
    assert run(capsys, "history", service, 2, "--generation", 0)[0] == 2
    assert run(capsys, "history", service, 2)[0] == 0, "the current one is there"


def test_compact_of_a_service(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        jobs.step("A", "B")
    for name in ("A", "B"):
        jobs.promote(name)
    code, out, _ = run(capsys, "compact", jobs.service.folder)
    found = orjson.loads(out)
    assert (code, found["generation"], found["job"]) == (0, 1, str(jobs.folder / "B"))
    assert found["epoch"] == GENERATION + 3
    assert [one.name for one in (jobs.folder / "B" / "embeddings").glob("base-*")] == ["base-000000000003.parquet"]
    assert not list((jobs.folder / "A" / "embeddings").glob("base-*"))
    code, out, _ = run(capsys, "compact", jobs.folder / "A")
    assert set(orjson.loads(out)) == {"epoch", "rows", "removed", "removed_bytes"}
    assert compact_log(jobs.folder / "A").epoch == 3
    assert run(capsys, "compact", "--kind", "user", jobs.service.folder)[0] == 2
    assert run(capsys, "compact", jobs.service.folder / "tables")[0] == 0
