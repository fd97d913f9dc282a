"""A job whose vertices have kinds, from events to `freshet check`: stopped, exported, and gone on with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import ModelError, save_model
from freshet.job.embed.runner import EmbedOptions, embed
from freshet.job.errors import UsageError
from freshet.job.folder import run_file
from freshet.job.local.runtime import LocalRuntime
from freshet.job.options.config_file import load_run_config
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.results.check import check
from freshet.job.results.export import export
from freshet.job.run import runner
from freshet.job.run.prepare.job import prepare
from freshet.job.size.estimate import estimate
from freshet.job.size.miniature import GraphSize
from freshet.kinds import Kinds, KindsError
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.operators.snapshot.writer import write_snapshot
from tests.support.graphs.kind_streams import embeddings_of, graph_of, random_records, text_id
from tests.support.graphs.kinds import KINDS, by_kind, hetero, kinds_model, relation, sage, sage_everywhere

BAD: list[dict[str, Any]] = [
    {"op": "add_vertex", "id": 1},
    {"op": "add_vertex", "id": 1, "kind": "users"},
    {"op": "set_features", "id": 1, "kind": "shop", "x": [1.0]},
    {"op": "add_edge", "src": 1, "dst": 2},
    {"op": "add_edge", "src": 1, "dst": 2, "type": "rev_buys"},
    {"op": "del_edge", "src": 1, "dst": 2, "type": "buys", "src_kind": "shop"},
]
LAYERS = (sage_everywhere(KINDS, 6), by_kind(user=[{"type": "relu"}]), sage_everywhere(dict.fromkeys(KINDS, 6), 4))


def of_sums() -> KindsModel:
    """Two layers of sums, whose mirrors are read, too."""
    return kinds_model(LAYERS, ["user"])


def with_attributes() -> KindsModel:
    """Attention with attributes, which the messages of the mirror alone read, and a relation whose type is no name."""
    relations = [
        relation("user", "rates", "item", edge_features=2),
        relation("item", "rev_rates", "user", mirrors=0, edge_features=2),
        relation("shop", "rates", "item"),
        relation("item", "rev_rates", "shop", mirrors=2),
    ]
    heads = {"type": "gat_conv", "heads": 2, "add_self_loops": False, "out_channels": 4}
    first = {
        0: sage(6, 4, 4),
        1: {**heads, "in_channels": 4, "target_channels": 6, "edge_channels": 2},
        2: sage(5, 4, 4, aggr="max"),
        3: sage(4, 5, 4),
    }
    second = {0: sage(4, 4, 4), 2: sage(4, 4, 4)}
    return kinds_model([hetero(first), hetero(second)], ["item"], KINDS, relations)


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
    for k, one in enumerate(BAD if kinds_of(model).are_named and model.out == ["user"] else ()):
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
        (of_sums, int, False),
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
    assert check(*given, whole, every=7) == 0
    state = ChangeLogReader(whole).state_at(20)
    got = dict(zip(state.ids.tolist(), state.vectors, strict=True))
    (kind,) = model.out
    want = embeddings_of(model, graph_of(kinds_of(model), records), kind)
    assert got.keys() == want.keys()
    for vertex, row in want.items():
        np.testing.assert_allclose(got[vertex], row, rtol=1e-4, atol=1e-4)

    half = run(tmp_path, "H", stop_after=4, parts=1)
    assert export(tmp_path / "S", half) == 0
    told = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["edges"] == len(edges(tmp_path / "S"))
    assert told["vertices"] == len(vertices(tmp_path / "S"))
    rest = run(tmp_path, "R", snapshot=tmp_path / "S", parts=3)
    assert check(*given, rest, snapshot=tmp_path / "S") == 0
    assert runner.run(load_run_config({"model": given[0], "events": given[1], "out": half, "resume": "latest"})) == 0
    assert check(*given, half) == 0
    for name in ("whole", "rest", "half"):
        assert export(tmp_path / name, {"whole": whole, "rest": rest, "half": half}[name]) == 0
    assert edges(tmp_path / "whole") == edges(tmp_path / "rest") == edges(tmp_path / "half")
    assert vertices(tmp_path / "whole") == vertices(tmp_path / "rest") == vertices(tmp_path / "half")


def edges(folder: Path) -> list[str]:
    return sorted(map(repr, pq.read_table(folder / "edges.parquet").to_pylist()))


def vertices(folder: Path) -> list[str]:
    return sorted(map(repr, pq.read_table(folder / "vertices.parquet").to_pylist()))


def test_what_cannot_be_done_with_kinds_yet_is_refused_by_name(tmp_path: Path) -> None:
    save_model(kinds_model(LAYERS, ["user", "item"]), tmp_path / "several")
    save_model(of_sums(), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(b"")
    with pytest.raises(UsageError, match=r"several: it returns 2 kinds \(user, item\), and .* output=.user., say"):
        run(tmp_path, "A", model=tmp_path / "several")
    with pytest.raises(KindsError, match=r"--undirected: edges of 'buys' lead from user to item"):
        run(tmp_path, "B", undirected=True, model=of_a_relation_alone(tmp_path))
    with pytest.raises(ModelError, match=r"`freshet size` takes no models with kinds of vertices yet"):
        estimate(tmp_path / "model", GraphSize(10, 10))
    asked = EmbedOptions(tmp_path / "model", tmp_path / "S", tmp_path / "E", placement=PartitioningOptions())
    with pytest.raises(ModelError, match=r"`freshet embed` takes no models with kinds of vertices yet"):
        embed(asked)
    assert not any((tmp_path / name).exists() for name in ("A/job", "B/job", "E"))


def of_a_relation_alone(folder: Path) -> Path:
    """A model with edges between two kinds that nothing follows."""
    relations = [relation("user", "buys", "item"), relation("user", "follows", "user")]
    save_model(kinds_model([sage_everywhere(KINDS, 4, relations)], ["user"], KINDS, relations), folder / "alone")
    return folder / "alone"


def test_a_snapshot_that_does_not_fit_into_memory_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(of_sums(), tmp_path / "model")
    (tmp_path / "events.jsonl").write_bytes(b"")
    x = [[0.5] * 6, [0.5] * 4, [0.5] * 6]
    write_snapshot(tmp_path / "S", [1, 1, 2], x, [1], [2], edge_type=["follows"], kinds=["user", "item", "user"])
    monkeypatch.setattr("freshet.job.run.prepare.plan.available_memory", lambda: 1000)
    with pytest.raises(UsageError, match=r"--snapshot .*S: with kinds of vertices .* about 3\.1 KiB of memory are"):
        run(tmp_path, "A", snapshot=tmp_path / "S")
    assert not (tmp_path / "A" / "job").exists()
    monkeypatch.undo()
    run(tmp_path, "B", snapshot=tmp_path / "S")
    assert ChangeLogReader(tmp_path / "B").state_at(0).ids.tolist() == [1, 2]
