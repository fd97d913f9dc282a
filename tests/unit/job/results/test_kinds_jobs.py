"""A job whose vertices have kinds, from events to `freshet check`: stopped, exported, and gone on with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from freshet.gnn.kinds.learned import learned_weights
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import save_model
from freshet.gnn.pyg import oracle as torch_oracle
from freshet.job.errors import UsageError
from freshet.job.folder import returned_kinds, run_file
from freshet.job.folder.returned_kinds import folder_name, logs_of, refuse_alike
from freshet.job.history.past_rows import history
from freshet.job.lifecycle.summary import closing_summary
from freshet.job.local.runtime import LocalRuntime
from freshet.job.options.config_file import load_run_config
from freshet.job.results.check import check
from freshet.job.results.export import export
from freshet.job.results.full_pass import OWN, PYG
from freshet.job.run import runner
from freshet.job.run.new_job import prepare
from freshet.job.serving.clients.client import EmbeddingClient
from freshet.job.serving.doors.http_server import make_app
from freshet.job.serving.feeds.fed_job import FedJob
from freshet.job.serving.feeds.feed import ServeOptions, feeds_of
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.tables.compaction import compact_log
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import CurrentTable, JobHere
from freshet.job.serving.tables.served_job import ServedJob
from freshet.kind_names import read_kind, written_kind
from freshet.kinds import Kinds, KindsError
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.operators.sink.tail.layout import TailNote
from freshet.operators.snapshot.writer import write_snapshot
from tests.support.graphs.kind_streams import embeddings_of, graph_of, random_records
from tests.support.graphs.kinds import (
    KINDS,
    RELATIONS,
    by_kind,
    hetero,
    kinds_model,
    relation,
    sage,
    sage_everywhere,
    text_id,
)

BAD: list[dict[str, Any]] = [
    {"op": "add_vertex", "id": 1},
    {"op": "add_vertex", "id": 1, "kind": "users"},
    {"op": "set_features", "id": 1, "kind": "shop", "x": [1.0]},
    {"op": "add_edge", "src": 1, "dst": 2},
    {"op": "add_edge", "src": 1, "dst": 2, "type": "rev_buys"},
    {"op": "del_edge", "src": 1, "dst": 2, "type": "buys", "src_kind": "shop"},
]
LAYERS = (sage_everywhere(KINDS, 6), by_kind(user=[{"type": "relu"}]), sage_everywhere(dict.fromkeys(KINDS, 6), 4))


def of_sums(*out: str) -> KindsModel:
    """Two layers of sums, whose mirrors are read, too."""
    return kinds_model(LAYERS, list(out or ("user",)))


def of_two() -> KindsModel:
    """The same, which returns two kinds: not in the order of their numbers."""
    return of_sums("item", "user")


def learning(
    layers: list[Any],
    out: str,
    kinds: dict[str, int],
    relations: list[Any],
    kind: str,
    rows: dict[str, int],
    id_of: Any,
    numbers: Sequence[int] = range(0, 9, 2),
) -> KindsModel:
    """A model with learned rows of some vertices of a kind."""
    ids = [id_of(number) for number in numbers]
    tables = learned_weights(kind, ids, np.random.default_rng(1).standard_normal((len(ids), sum(rows.values()))))
    declared = {kind: {"rows": rows, "count": len(ids), "ids": "string" if id_of is text_id else "int"}}
    return kinds_model(layers, [out], kinds, relations, learned=declared, tables=tables)


def without_features() -> KindsModel:
    """The same, but shops have learned rows alone."""
    recalled = by_kind(shop=[{"type": "join", "of": ["row"]}])
    return learning([recalled, *LAYERS], "user", KINDS | {"shop": 0}, RELATIONS, "shop", {"row": 5}, int)


def with_attributes(numbers: Sequence[int] = range(0, 9, 2)) -> KindsModel:
    """Attention with attributes, which the messages of the mirror alone read, and a relation whose type is no name."""
    relations = [
        relation("user", "rates", "item", edge_features=2),
        relation("item", "rev_rates", "user", mirrors=0, edge_features=2),
        relation("shop", "rates", "item"),
        relation("item", "rev_rates", "shop", mirrors=2),
    ]
    heads = {"type": "gat_conv", "heads": 2, "add_self_loops": False, "out_channels": 4}
    first = {
        0: sage(9, 4, 4),
        1: {**heads, "in_channels": 4, "target_channels": 9, "edge_channels": 2},
        2: sage(5, 4, 4, aggr="max"),
        3: sage(4, 5, 4),
    }
    second = {0: sage(4, 4, 4), 2: sage(4, 4, 4)}
    both = by_kind(user=[{"type": "join", "of": [".", "row"]}])
    return learning(
        [both, hetero(first), hetero(second)], "item", KINDS, relations, "user", {"row": 3}, text_id, numbers
    )


def of_one_kind() -> KindsModel:
    """Several relations between vertices that have no kinds."""
    relations = [relation("", "likes", ""), relation("", "knows", "")]
    layers = [sage_everywhere({"": 5}, 4, relations), sage_everywhere({"": 4}, 3, relations, aggr="max")]
    return kinds_model(layers, [""], {"": 5}, relations)


def write(folder: Path, model: KindsModel, id_of: Callable[[int], Any], parquet: bool) -> list[dict[str, Any]]:
    """A model and its events, some of which are bad; returns the good ones."""
    save_model(model, folder / "model")
    records = random_records(kinds_of(model), 5, 400, id_of)
    every = list(records)
    for k, one in enumerate(BAD if kinds_of(model).are_named and "user" in model.out else ()):
        every.insert(30 * (k + 1), {name: id_of(v) if name in ("id", "src", "dst") else v for name, v in one.items()})
    if parquet:
        lists = {name: pa.list_(pa.float32()) for name in ("x", "attr")}
        names = dict.fromkeys(name for one in every for name in one)
        columns = {name: pa.array([one.get(name) for one in every], lists.get(name)) for name in names}
        pq.write_table(pa.table(columns), folder / "events.parquet")
    else:
        (folder / "events.jsonl").write_bytes(b"\n".join(map(orjson.dumps, every)))
    return records


def kinds_of(model: KindsModel) -> Kinds:
    assert model.features.kinds is not None
    return model.features.kinds


def run(folder: Path, name: str, stop_after: int | None = None, **options: Any) -> Path:
    """Run a job to its end, or stop it when about so many epochs have been committed."""
    (events,) = folder.glob("events.*")
    given: dict[str, Any] = {"model": folder / "model", "events": [str(events)], "out": folder / name}
    config = load_run_config(given | {"runtime": "local", "epoch_ms": 0, "epoch_events": 20, **options})
    if stop_after is None:
        assert runner.run(config) == 0
        return folder / name
    job, calls = prepare(config, folder / name), [0]
    runtime = LocalRuntime(job.settings, len(job.sources.chunks), folder / name / "state")

    def on_progress() -> None:
        calls[0] += 1
        if calls[0] >= stop_after:
            runtime.stop()

    assert not runtime.run(on_progress)
    run_file.update_run(folder / name, state=run_file.STOPPED, pids={}, runtime="local")
    return folder / name


@pytest.mark.parametrize(
    ("make", "id_of", "parquet"),
    [
        (of_two, text_id, False),
        (without_features, int, False),
        (with_attributes, text_id, True),
        (of_one_kind, text_id, False),
    ],
)
def test_a_job_with_kinds_is_exact_wherever_it_is_stopped(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[], KindsModel],
    id_of: Any,
    parquet: bool,
) -> None:
    monkeypatch.setattr("freshet.operators.parser.files.CHUNK_LINES", 50)
    model = make()
    records = write(tmp_path, model, id_of, parquet)
    given = tmp_path / "model", [str(*tmp_path.glob("events.*"))]
    whole = run(tmp_path, "O", parts=2)
    oracle = PYG if torch_oracle.available() else OWN
    assert check(*given, whole, every=7, oracle=oracle) == 0
    assert check(*given, whole, kind=model.out[0] or None, oracle=OWN) == 0
    captured = capsys.readouterr()
    lines = [line for line in captured.out.splitlines() if '"oracle"' in line]
    assert [orjson.loads(line)["oracle"] for line in lines] == [oracle, OWN]
    told, found = orjson.loads(captured.out.splitlines()[-1]), graph_of(kinds_of(model), records)
    strangers = {one for one in found.x if list(model.kinds)[one[0]] in model.learned} - {
        (list(model.kinds).index(kind), id_of(number)) for kind in model.learned for number in range(0, 9, 2)
    }
    assert closing_summary(whole).get("unlearned_vertices") == (len(strangers) if model.learned else None)
    assert bool(strangers) == ("no learned rows of" in captured.err) == bool(model.learned)
    for kind in model.out:
        folder = kind if len(model.out) > 1 else ""
        log = ChangeLogReader(whole, folder)
        state = log.state_at(log.last_epoch() or 0)
        got = dict(zip(state.ids.tolist(), state.vectors, strict=True))
        want = embeddings_of(model, found, kind)
        assert_same(got, want)
        assert kind != model.out[0] or told["vertices"] == len(want)
        if folder:
            assert_served(whole, folder, want)

    half = run(tmp_path, "H", stop_after=4, parts=1)
    assert export(tmp_path / "S", half) == 0
    line = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["edges"] == len(edges(tmp_path / "S"))
    assert line["vertices"] == len(vertices(tmp_path / "S"))
    rest = run(tmp_path, "R", snapshot=tmp_path / "S", parts=3)
    assert check(*given, rest, snapshot=tmp_path / "S") == 0
    for folders in logs_of(rest):  # each kind's log has what the export covers
        at_0 = [row for row in pq.read_table(folders.epochs).to_pylist() if row["epoch"] == 0]
        assert [row["next_offset"] for row in at_0] == [row["next_offset"] for row in line["positions"]]
        assert all(row["arrived_ms"] for row in at_0)
    assert runner.run(load_run_config({"model": given[0], "events": given[1], "out": half, "resume": "latest"})) == 0
    assert check(*given, half) == 0
    for name in ("whole", "rest", "half"):
        assert export(tmp_path / name, {"whole": whole, "rest": rest, "half": half}[name]) == 0
    assert edges(tmp_path / "whole") == edges(tmp_path / "rest") == edges(tmp_path / "half")
    assert vertices(tmp_path / "whole") == vertices(tmp_path / "rest") == vertices(tmp_path / "half")


def assert_same(got: dict[Any, np.ndarray], want: dict[Any, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for vertex, row in want.items():
        np.testing.assert_allclose(got[vertex], row, rtol=1e-4, atol=1e-4)


def assert_served(out: Path, kind: str, want: dict[Any, np.ndarray]) -> None:
    """A kind is compacted, served and looked back on as the vertices of a job without kinds are."""
    assert sorted(path.name for path in (out / "embeddings").iterdir()) == ["item", "user"]
    assert compact_log(out, kind=kind).rows == len(want)
    job = ServedJob.of_tables(out / "tables" / kind)
    assert job is not None
    assert (job.kind, job.complete_epoch()) == (kind, 20)
    follower = Follower(job, job.log.tables)
    try:
        follower.start()
        with EmbeddingClient(job.log.tables) as client:
            found = client.all()
            assert client.health()["kind"] == kind
        lookup = Lookup(CurrentTable(job.log.tables, JobHere.of(job)))
        door, some = TestClient(make_app(lookup, Health(lookup))), next(iter(want))
        assert door.get(f"/embeddings/{some}", params={"kind": kind}).json()["id"] == some
        other = door.get(f"/embeddings/{some}", params={"kind": "shop"})
        assert other.status_code == 400 and f"has the embeddings of {kind}, got 'shop'" in other.json()["error"]
    finally:
        follower.close(forget=True)
    ids, rows = found["id"].to_pylist(), np.array(found["embedding"].to_pylist(), np.float32)
    assert_same(dict(zip(ids, rows, strict=True)), want)
    past = history(out, ids, kind=kind)
    last = {row["id"]: np.array(row["embedding"]) for row in past.to_pylist() if not row["deleted"]}
    assert_same(last, want)


def edges(folder: Path) -> list[str]:
    return sorted(map(repr, pq.read_table(folder / "edges.parquet").to_pylist()))


def vertices(folder: Path) -> list[str]:
    return sorted(map(repr, pq.read_table(folder / "vertices.parquet").to_pylist()))


def test_what_cannot_be_done_with_kinds_yet_is_refused_by_name(tmp_path: Path) -> None:
    save_model(of_two(), tmp_path / "several")
    save_model(of_sums(), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(b"")
    with pytest.raises(UsageError, match=r"--flight-port: the model returns 2 kinds of vertices \(item, user\)"):
        run(tmp_path, "A", model=tmp_path / "several", flight_port=0)
    with pytest.raises(KindsError, match=r"--undirected: edges of 'buys' lead from user to item"):
        run(tmp_path, "B", undirected=True, model=of_a_relation_alone(tmp_path))
    assert not any((tmp_path / name).exists() for name in ("A/job", "B/job"))


def of_a_relation_alone(folder: Path) -> Path:
    """A model with edges between two kinds that nothing follows."""
    relations = [relation("user", "buys", "item"), relation("user", "follows", "user")]
    save_model(kinds_model([sage_everywhere(KINDS, 4, relations)], ["user"], KINDS, relations), folder / "alone")
    return folder / "alone"


def test_a_snapshot_starts_a_job(tmp_path: Path) -> None:
    save_model(of_sums(), tmp_path / "model")
    (tmp_path / "events.jsonl").write_text('{"op": "add_vertex", "id": 3, "kind": "user"}')
    x = [[0.5] * 6, [0.5] * 4, [0.5] * 6]
    write_snapshot(tmp_path / "S", [1, 1, 2], x, [1], [2], edge_type=["follows"], kinds=["user", "item", "user"])
    run(tmp_path, "B", snapshot=tmp_path / "S")
    assert ChangeLogReader(tmp_path / "B").state_at(0).ids.tolist() == [1, 2]
    job = ServedJob.of_tables(tmp_path / "B" / "tables")
    assert job is not None and (job.kind, job.kind_name) == ("", "user"), "a server says the one kind, too"
    sent = job.tails_here.shared_fields() | {"job_id": job.job_id, "width": 4, "sources": []}
    for told in (sent, TailNote.read(job.tails)):
        assert FedJob.of(told, tmp_path / "elsewhere").kind_name == "user", "and those that are fed from it"


def test_one_of_several_kinds_is_named(tmp_path: Path) -> None:
    write(tmp_path, of_two(), int, False)
    out = run(tmp_path, "O", stop_after=1)
    several = r"returns 2 kinds of vertices \(item, user\); name one of them by --kind"
    other = "--kind shop: the model of .* returns item, user; name one of these"
    with EmbeddingClient(out / "tables") as client, pytest.raises(UsageError, match=r"one of .*/item, .*/user"):
        client.all()
    acts: list[Callable[[str | None], object]] = [
        lambda kind: compact_log(out, kind=kind),
        lambda kind: history(out, [1], kind=kind),
        lambda kind: ServedJob.of_tables(out / "tables", kind),
        lambda kind: feeds_of(ServeOptions(out / "tables", kind=kind, wait_s=0.1), bool),
    ]
    for act in acts:
        for kind, said in ((None, several), ("shop", other)):
            with pytest.raises(UsageError, match=said):
                act(kind)
    assert feeds_of(ServeOptions(out / "tables", kind="user"), bool)[0].job.kind == "user"
    with pytest.raises(UsageError, match=other):
        check(tmp_path / "model", [str(tmp_path / "events.jsonl")], out, kind="shop")
    with pytest.raises(UsageError, match="--kind user: the embeddings of O are of one kind, which has no name"):
        folder_name([], "user", "O")
    assert folder_name(["user"], "user", "O") == folder_name(["user"], None, "O") == ""
    long = "k" * 300
    assert folder_name([long, "user"], read_kind(written_kind(long)), "O") == long, "by the folder's name, which is cut"


def test_kinds_that_differ_in_capitals_need_a_file_system_with_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_alike(tmp_path, ["user", "User"])
    monkeypatch.setattr(returned_kinds, "ignores_case", lambda _: True)
    refuse_alike(tmp_path, ["user", "item"])
    with pytest.raises(UsageError, match="kinds 'user' and 'User' would have one folder"):
        refuse_alike(tmp_path, ["user", "User"])
    assert not list(tmp_path.iterdir())
