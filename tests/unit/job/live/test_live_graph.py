"""The graph of a job at its epochs, held against a plain replay of its events in dictionaries."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from freshet import InputError, LiveGraph, NotYetError
from freshet.files.json_file import DamagedFileError
from freshet.gnn.model import save_model
from freshet.job.live import saved
from freshet.job.options.config_file import load_run_config
from freshet.job.results.export import export
from freshet.job.run import runner
from freshet.kinds import NO_MIRROR, Kinds
from freshet.operators.snapshot.writer import write_snapshot
from tests.support.graphs.attributed import EDGE_WIDTH, gine
from tests.support.graphs.live_truth import Bond, Truth, as_event, assert_same_data, content_of, records_of
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.simulation.pages import page_bytes
from tests.unit.job.results.test_attributes import run
from tests.unit.job.results.test_kinds_jobs import kinds_of, of_one_kind, with_attributes, without_features

EVENTS, PER_EPOCH = 600, 20
LAST = EVENTS // PER_EPOCH


@dataclass
class Case:
    """A job: its model, the graph before its events, the options of the run, and ids of vertices."""

    model: Any
    truth: Truth
    options: dict[str, Any]
    ids: list[Any]
    attr: list[bool]
    keys: tuple[Any, ...] = ()


def bonds_of(kinds: Kinds) -> list[Bond]:
    mirrors = {one.mirrors: number for number, one in enumerate(kinds.relations)}
    return [
        Bond(*kinds.triple(one), one.edge_width, mirrors.get(number), one.mirrors == NO_MIRROR)
        for number, one in enumerate(kinds.relations)
    ]


def of_kinds(model: Any, **more: Any) -> Truth:
    kinds = kinds_of(model)
    return Truth(dict(zip(kinds.names, kinds.widths, strict=True)), bonds_of(kinds), **more)


TTL: dict[str, Any] = {"edge_ttl": "60s", "ts_jump": "1h"}
TEXTS = [f"v{k}" if k % 3 else f"{'ü' * 9}{k}" for k in range(24)]


def undirected() -> Case:
    """Edges both ways, which expire, with attributes and strings as ids."""
    model = make_model(1, [conv("gcn_conv", IN_WIDTH, 4), gine(4, 3)])
    truth = Truth({"": IN_WIDTH}, [Bond("", None, "", EDGE_WIDTH, 0)], 60_000)
    return Case(model, truth, {**TTL, "undirected": True}, TEXTS, [True])


def plain() -> Case:
    """Edges one way that carry weights alone, with negative ids."""
    model = make_model(1, [conv("graph_conv", IN_WIDTH, 4), conv("sage_conv", 4, 3)])
    return Case(model, Truth({"": IN_WIDTH}, [Bond("", None, "")]), {}, [7 * k - 30 for k in range(30)], [False])


def keyed() -> Case:
    """Edges of one pair side by side, by keys, with types of the model and attributes that it does not read."""
    model = make_model(1, [conv("sage_conv", IN_WIDTH, 4)], edge_types=["a", "b", "c"])
    truth = Truth({"": IN_WIDTH}, [Bond("", name, "") for name in "abc"])
    return Case(model, truth, {"edge_key": "key"}, list(range(12)), [False] * 3, ("p", "q", "r"))


def kinds() -> Case:
    """Kinds with mirrors, one of which alone has messages that read attributes; edges with keys expire."""
    model = with_attributes()
    attr = [True, True, False, False]
    return Case(model, of_kinds(model, ttl=60_000), {**TTL, "edge_key": "key"}, TEXTS[:12], attr, (1, 2, 3))


def learned() -> Case:
    """Kinds of which one has learned rows alone."""
    model = without_features()
    truth = of_kinds(model)
    return Case(model, truth, {}, list(range(12)), [False] * len(truth.bonds))


def relations() -> Case:
    """Relations between vertices that have no kinds."""
    model = of_one_kind()
    truth = of_kinds(model)
    return Case(model, truth, {}, list(range(12)), [False] * len(truth.bonds))


@dataclass
class Job:
    """A job that was stopped on its way, and one that has come to its end; `truths` after each epoch."""

    folder: Path
    case: Case
    truths: list[tuple[Any, Any]]

    def check(self, data: Any) -> None:
        assert content_of(data, self.case.truth) == self.truths[data["epoch"]]


@pytest.fixture(scope="module", autouse=True)
def _small_pages() -> Iterator[None]:
    """Tables have many pages, as those of large graphs have."""
    with page_bytes(256):
        yield


CASES = [undirected, plain, keyed, kinds, learned, relations]


@pytest.fixture(scope="module", params=CASES, ids=lambda one: one.__name__)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    folder, case = tmp_path_factory.mktemp(request.param.__name__), request.param()
    save_model(case.model, folder / "model")
    records = records_of(random.Random(3), case.truth, EVENTS, case.ids, case.keys)
    lines = [orjson.dumps(as_event(case.truth, one)) for one in records]
    lines[100:100] = [b"no event"] * 3
    (folder / "events.jsonl").write_bytes(b"\n".join(lines))
    truths = []
    for epoch in range(LAST + 1):
        begin = PER_EPOCH * (epoch - 1)
        case.truth.epoch(records[begin : begin + PER_EPOCH] if epoch else [])
        x, edges = case.truth.content(case.attr)
        truths.append((dict(x), edges))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("freshet.operators.parser.files.CHUNK_LINES", 70)
        run(folder, "O", parts=2, **case.options)
        run(folder, "stopped", stop_after=3, parts=3, **case.options)
    yield Job(folder, case, truths)


def test_it_is_the_graph_of_each_epoch_from_every_begin(job: Job, tmp_path: Path) -> None:
    rng = random.Random(7)
    edges = [sum(map(len, edges)) for _, edges in job.truths]
    assert max(edges) > 40
    epochs = [rng.randrange(5, 20), 0, LAST, *rng.sample(range(1, LAST), 8)]
    with LiveGraph(job.folder / "O") as base:
        for epoch in epochs:
            data = base.at(epoch, timeout=0.0)
            assert data["epoch"] == base.epoch == epoch
            job.check(data)
        assert base.at()["epoch"] == LAST
        assert base.at(0)["positions"] == {}
        base.at(epochs[0])
        base.save(tmp_path / "S")
    with LiveGraph(job.folder / "O", begin=tmp_path / "S") as live:
        assert live.epoch == epochs[0]
        for epoch in sorted(one for one in epochs if one >= epochs[0])[::-1]:
            job.check(live.at(epoch))
        live.save(tmp_path / "S2")
        live.at(live.begin_epoch + 1)
        live.save(tmp_path / "S3")
    for folder, epoch in (("S2", live.begin_epoch), ("S3", live.begin_epoch + 1)):
        with LiveGraph(job.folder / "O", begin=tmp_path / folder) as again:  # saved by one that began with a saved one
            assert again.begin_epoch == epoch
            job.check(again.at(epoch))
            job.check(again.at(LAST))
    with LiveGraph(job.folder / "O", begin="latest") as live:
        job.check(live.at())
        assert live.epoch == LAST


def test_a_state_and_the_begin_of_the_job_give_the_same_arrays(job: Job, tmp_path: Path) -> None:
    out = job.folder / "stopped"
    with LiveGraph(out) as base, LiveGraph(out, begin="latest") as latest:
        assert 0 < latest.begin_epoch == base.newest() < LAST
        first, second = base.at(), latest.at()
        job.check(first)
        assert_same_data(first, second)
        with pytest.raises(InputError, match="is before epoch"):
            latest.at(latest.begin_epoch - 1)
        latest.save(tmp_path / "S")
    # The same input, of which that job has not read all: its epochs are the first ones of the other.
    with pytest.raises(InputError, match="has the graph of job"):
        LiveGraph(job.folder / "O", begin=tmp_path / "S")


def test_an_epoch_that_is_not_there_is_not_waited_for_when_nobody_works_on_the_job(job: Job) -> None:
    with LiveGraph(job.folder / "O") as live, pytest.raises(NotYetError, match="the newest is 30: nobody works on"):
        live.at(LAST + 1, timeout=600.0)


def test_an_epoch_of_a_job_that_runs_is_waited_for(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = (small / "O" / "epochs").glob("[!._]*.parquet")
    monkeypatch.setattr("freshet.job.live.live_graph.at_work", lambda *_: "process 7")
    with LiveGraph(small / "O") as live:
        path.rename(tmp_path / path.name)
        try:
            with pytest.raises(NotYetError, match="expected an epoch, the newest is -1: not within 0 s"):
                live.at(timeout=0.0)
            again = threading.Timer(0.3, (tmp_path / path.name).rename, [path])
            again.start()
            assert live.at(3, timeout=60.0)["epoch"] == 3
            again.join()
        finally:
            if not path.exists():
                (tmp_path / path.name).rename(path)
    monkeypatch.setattr("freshet.job.live.begins.at_work", lambda *_: "process 7")
    with pytest.raises(InputError, match="process 7 works on it, and the local runtime writes no savepoints"):
        LiveGraph(small / "O", begin="latest")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that began with a snapshot, in a folder of its own with its input."""
    folder = tmp_path_factory.mktemp("small")
    case = plain()
    save_model(case.model, folder / "model")
    write_snapshot(folder / "S", [1, 2], np.ones((2, IN_WIDTH), np.float32), [1], [2], np.array([2.0], np.float32))
    records = records_of(random.Random(1), case.truth, 200, case.ids)
    (folder / "events.jsonl").write_bytes(b"\n".join(orjson.dumps(as_event(case.truth, one)) for one in records))
    run(folder, "O", snapshot=folder / "S")
    return folder


MAPS = [
    {"when": "`true`", "op": "`set_features`", "id": "a", "x": "x"},
    {"when": "`true`", "op": "`add_edge`", "src": "a", "dst": "b"},
    {"when": "a > b", "op": "`add_edge`", "src": "b", "dst": "a"},
]


def test_epochs_may_end_within_a_record_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.operators.parser.files.CHUNK_LINES", 9)
    rng, case = random.Random(4), plain()
    save_model(case.model, tmp_path / "model")
    lines, events = list[bytes](), list[dict[str, Any]]()
    for _ in range(120):
        x = [rng.randint(-3, 3) for _ in range(IN_WIDTH)]
        a, b = rng.choice(case.ids), rng.choice(case.ids)
        lines.append(orjson.dumps({"a": a, "b": b, "x": x}))
        edges = [(a, b), (b, a)][: 1 + (a > b)]
        events.append({"op": "set_features", "id": a, "x": x})
        events += [{"op": "add_edge", "src": src, "dst": dst, "relation": 0} for src, dst in edges]
    (tmp_path / "events").mkdir()
    for name, some in (("1.jsonl", lines[:50]), ("2.jsonl", lines[50:])):
        (tmp_path / "events" / name).write_bytes(b"\n".join(some))
    (tmp_path / "events.jsonl").symlink_to(tmp_path / "events")
    given: dict[str, Any] = {"epoch_events": 7, "events_map": MAPS}
    run(tmp_path, "O", **given)
    run(tmp_path, "stopped", stop_after=2, **given)
    contents = []
    for epoch in range(1 + len(events) // 7):
        case.truth.epoch(events[7 * (epoch - 1) : 7 * epoch] if epoch else [])
        contents.append((dict(case.truth.x), case.truth.content([False])[1]))
    with LiveGraph(tmp_path / "O") as live:
        for epoch in rng.sample(range(1, len(contents)), 12):
            assert content_of(live.at(epoch), case.truth) == contents[epoch]
            live.save(tmp_path / "S")
            with LiveGraph(tmp_path / "O", begin=tmp_path / "S") as other:
                assert content_of(other.at(len(contents) - 1), case.truth) == contents[-1]
    with LiveGraph(tmp_path / "stopped", begin="latest") as live:
        assert 0 < live.begin_epoch < len(contents) - 1
        assert content_of(live.at(), case.truth) == contents[live.begin_epoch]
        live.save(tmp_path / "latest")
        reached = orjson.loads((tmp_path / "latest" / "live.json").read_bytes())["reached"]
        expected = 7 * live.begin_epoch
    counts = [2 + (one["a"] > one["b"]) for one in map(orjson.loads, lines)]
    positions = [k for k, count in enumerate(counts) for _ in range(count)]
    within = positions[expected] == positions[expected - 1]
    assert sum(one["next_offset"] for one in reached) == positions[expected - 1] + (not within)
    assert sum(one["rest"] for one in reached) == (positions[expected:].count(positions[expected - 1]) if within else 0)
    out = tmp_path / "stopped"
    options = {"model": tmp_path / "model", "events": [str(tmp_path / "events")], "out": out, "resume": "latest"}
    assert runner.run(load_run_config({**options, "runtime": "local"})) == 0
    with LiveGraph(out, begin=tmp_path / "latest") as live:
        for epoch in (live.begin_epoch + 1, len(contents) - 1):
            assert content_of(live.at(epoch), case.truth) == contents[epoch]


def test_it_begins_with_the_snapshot_of_the_job(small: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (small / "O").rglob("*")}
    with LiveGraph(small / "O") as live:
        data = live.at(0)
        assert (data["id"].tolist(), data["edge_index"].tolist()) == ([1, 2], [[0], [1]])
        assert data["edge_weight"].tolist() == [2.0]
        assert live.at(4)["positions"] == {f"{small}/events.jsonl:0": 80}
    assert {path: path.stat().st_mtime_ns for path in (small / "O").rglob("*")} == before, "it writes nothing there"


def test_input_that_is_not_as_it_was_is_named(small: Path) -> None:
    events = small / "events.jsonl"
    whole = events.read_bytes()
    lines = whole.split(b"\n")
    try:
        with LiveGraph(small / "O") as live:
            live.at(2)
            events.write_bytes(b"\n".join([*lines[:50], b"x" * len(lines[50]), *lines[51:]]))
            live.at(2)
        with LiveGraph(small / "O") as live:
            with pytest.raises(InputError, match="these are not the events that it read"):
                live.at()
            events.unlink()
            with pytest.raises(InputError, match=r"events\.jsonl"):
                live.at(1)
            events.write_bytes(whole)
            assert live.at(1)["epoch"] == 1, "it goes on once they are back"
    finally:
        events.write_bytes(whole)


def test_epochs_that_are_not_all_there_are_named(small: Path) -> None:
    (path,) = (small / "O" / "epochs").glob("[!._]*.parquet")
    whole = path.read_bytes()
    table = pq.read_table(path)
    try:
        pq.write_table(table.filter(pc.not_equal(table["epoch"], 3)), path)
        with LiveGraph(small / "O") as live:
            assert live.at(2)["epoch"] == 2
            with pytest.raises(InputError, match=r"epochs/ does not have epoch 3; put its files back"):
                live.at(5)
    finally:
        path.write_bytes(whole)


def test_behind_an_export_epoch_0_has_its_positions(small: Path, tmp_path: Path) -> None:
    export(tmp_path / "S", small / "O")
    events = [str(small / "events.jsonl")]
    given = {"model": small / "model", "events": events, "snapshot": tmp_path / "S", "out": tmp_path / "O"}
    assert runner.run(load_run_config(given | {"runtime": "local"})) == 0
    with LiveGraph(small / "O") as before, LiveGraph(tmp_path / "O") as live:
        first, second = before.at(), live.at(0)
        assert second["positions"] == first["positions"] == {f"{events[0]}:0": 200}
        second["epoch"] = first["epoch"]
        assert_same_data(first, second)


def test_a_save_that_is_cut_short_leaves_the_former_one(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "S"
    with LiveGraph(small / "O") as live:
        live.at(3)
        live.save(folder)
        with monkeypatch.context() as patch:
            patch.setattr(saved, "write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            live.at(5)
            with pytest.raises(KeyboardInterrupt):
                live.save(folder)
        (folder / "graph-9-left").mkdir()  # of one that was killed
        with LiveGraph(small / "O", begin=folder) as other:
            assert other.at(4)["epoch"] == 4
            assert other.begin_epoch == 3
        live.save(folder)
        assert len(list(folder.iterdir())) == 2
    with LiveGraph(small / "O", begin=folder) as other:
        assert other.begin_epoch == 5
    (file,) = folder.glob("graph-*/storage*/x.bin") or [None]
    assert file is not None
    file.write_bytes(bytes(len(file.read_bytes())))
    with LiveGraph(small / "O", begin=folder) as other, pytest.raises(DamagedFileError, match="checksums"):
        other.at()


def test_folders_that_are_not_for_it_are_refused(small: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with LiveGraph(small / "O") as live:
        with pytest.raises(InputError, match="new, empty, or has a saved graph; it has mine"):
            live.save(tmp_path)
        with pytest.raises(InputError, match="expected a folder outside of"):
            live.save(small / "O" / "S")
    with pytest.raises(InputError, match="no job in it"):
        LiveGraph(tmp_path)
    with pytest.raises(InputError):
        LiveGraph(small / "O", begin=tmp_path / "nothing")
