"""Snapshots with kinds are embedded: embeddings of each kind, and for a stream the state that a job starts from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from freshet.gnn.any_plan import names_of_returned
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import save_model
from freshet.job.embed.batch_job import Spread
from freshet.job.embed.needs import needs_of
from freshet.job.embed.runner import SERVING, STREAMING, EmbedOptions, embed
from freshet.job.errors import UsageError
from freshet.job.options.config_file import load_run_config
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.results.check import check
from freshet.job.run import runner
from freshet.kinds import KindsError
from freshet.operators.factory import load_plan
from freshet.operators.initial.layers import LayerImages
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.operators.snapshot.reader import open_snapshot
from tests.support.graphs.kind_streams import embeddings_of, graph_of, random_records, save_records
from tests.support.graphs.kinds import text_id
from tests.support.graphs.messages import messages_by_kind
from tests.unit.job.results.test_kinds_jobs import (
    assert_same,
    kinds_of,
    of_a_relation_alone,
    of_one_kind,
    of_two,
    with_attributes,
    without_features,
)

FILES = "vertices.parquet", "edges.parquet", "snapshot.json"
PLACED = PartitioningOptions(parts=2, partitioner="hdrf")


def graph_for(folder: Path, model: KindsModel, id_of: Callable[[int], Any]) -> list[dict[str, Any]]:
    """Save a model and a snapshot; returns its rows, vertices first."""
    save_model(model, folder / "model")
    records = [one for one in random_records(kinds_of(model), 5, 400, id_of) if one["op"].startswith("add_")]
    (folder / "S").mkdir()
    save_records(folder / "S", records)
    return sorted(records, key=lambda one: one["op"] == "add_edge")


def asked(folder: Path, **others: Any) -> EmbedOptions:
    given = {"memory": 1 << 28, "made_for": STREAMING, "placement": PLACED} | others
    return EmbedOptions(folder / "model", folder / "S", **({"out": folder / "S2"} | given))


def bytes_of(rows: dict[Any, Any]) -> dict[Any, bytes]:
    return {one: bytes(row) for one, row in rows.items()}


def rows_of(folder: Path, model: KindsModel, kind: str) -> dict[Any, Any]:
    state = ChangeLogReader(folder, kind if len(model.out) > 1 else "").state_at(0)
    return dict(zip(state.ids.tolist(), state.vectors, strict=True))


@pytest.mark.parametrize(
    ("make", "id_of"),
    [
        (of_two, int),
        (without_features, int),
        (with_attributes, text_id),
        (of_one_kind, text_id),
        (partial(messages_by_kind, 3), int),
    ],
)
def test_embeddings_are_exact_and_a_job_goes_on_from_them(
    make: Callable[[], KindsModel], id_of: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make()
    graph = graph_of(kinds_of(model), graph_for(tmp_path, model, id_of))
    assert embed(asked(tmp_path)) == 0
    captured = capsys.readouterr()
    told = orjson.loads(captured.out.splitlines()[-1])
    known = {(list(model.kinds).index(kind), id_of(number)) for kind in model.learned for number in range(0, 9, 2)}
    strangers = {one for one in graph.x if list(model.kinds)[one[0]] in model.learned} - known
    assert told.get("unlearned_vertices") == (len(strangers) if model.learned else None)
    assert bool(strangers) == ("no learned rows of" in captured.err) == bool(model.learned)
    assert (told["vertices"], told["parts"]) == (len(graph.x), 2)
    assert embed(asked(tmp_path, made_for=SERVING, out=tmp_path / "alone")) == 0
    alone = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert {**alone, "for": "streaming", "seconds": 0} == {**told, "seconds": 0}
    assert {path.name for path in (tmp_path / "alone").iterdir()} - {".lock"} == {*FILES, "embeddings"}
    for kind in model.out:
        want = embeddings_of(model, graph, kind)
        assert want
        assert_same(rows_of(tmp_path / "S2", model, kind), want)
        rows = [rows_of(tmp_path / out, model, kind) for out in ("alone", "S2")]
        assert list(map(bytes_of, rows[:1])) == list(map(bytes_of, rows[1:]))
    (tmp_path / "events.jsonl").write_bytes(
        b"\n".join(orjson.dumps(one) for one in random_records(kinds_of(model), 6, 120, id_of))
    )
    given: dict[str, Any] = {"model": tmp_path / "model", "events": [str(tmp_path / "events.jsonl")]}
    options = {"parts": 2, "partitioner": "hdrf", "runtime": "local", "epoch_ms": 0, "epoch_events": 40}
    for snapshot, out in (("S2", "from"), ("alone", "anew")):
        asked_for = given | options | {"out": tmp_path / out, "snapshot": tmp_path / snapshot}
        assert runner.run(load_run_config(asked_for)) == 0
        assert ("state taken over" in capsys.readouterr().err) == (out == "from")
    assert check(given["model"], given["events"], tmp_path / "from", snapshot=tmp_path / "S2") == 0
    for kind in model.out:
        folder = kind if len(model.out) > 1 else ""
        logs = [ChangeLogReader(tmp_path / out, folder) for out in ("from", "anew")]
        states = [log.state_at(log.last_epoch() or 0) for log in logs]
        ended = [dict(zip(one.ids.tolist(), map(bytes, one.vectors), strict=True)) for one in states]
        assert ended[0] == ended[1] and ended[0]


@pytest.mark.parametrize("made_for", [STREAMING, SERVING])
def test_it_goes_on_where_an_attempt_was_killed(
    made_for: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Killed(BaseException):
        """Stands for a kill."""

    model, made = of_two(), list[str]()
    graph = graph_of(kinds_of(model), graph_for(tmp_path, model, int))
    make = LayerImages.make

    def until(images: LayerImages, operator: str, part: int) -> dict[str, int]:
        made.append(operator)
        if len(made) == 6:
            raise Killed
        return make(images, operator, part)

    monkeypatch.setattr(LayerImages, "make", until)
    with pytest.raises(Killed):
        embed(asked(tmp_path, made_for=made_for))
    with pytest.raises(UsageError, match=f"an embedding is under way there with --for '{made_for}'"):
        embed(asked(tmp_path, made_for=SERVING if made_for == STREAMING else STREAMING))
    assert embed(asked(tmp_path, made_for=made_for)) == 0
    steps = ["storage0"] * 2 + ["storage1"] * 2 + ["tail1"] * 3 + ["storage2"] * 2 + ["tail2"] * 2
    assert made == steps, "only the step that was killed comes twice"
    assert "going on where an earlier attempt ended" in capsys.readouterr().err
    for kind in model.out:
        assert_same(rows_of(tmp_path / "S2", model, kind), embeddings_of(model, graph, kind))


def test_needs_are_by_kind_and_relation(tmp_path: Path) -> None:
    model = with_attributes()
    rows = graph_for(tmp_path, model, text_id)
    plan = load_plan(str(tmp_path / "model"))
    snapshot = open_snapshot(tmp_path / "S", plan.features, edge_types=plan.edge_types)
    needs = needs_of(plan, snapshot, undirected=False)
    edges = [one for one in rows if one["op"] == "add_edge"]
    of_users = sum(one["src_kind"] == "user" for one in edges)
    assert needs.by_relation == (of_users, of_users, len(edges) - of_users, len(edges) - of_users)
    assert needs.by_kind == tuple(sum(one.get("kind") == kind for one in rows) for kind in model.kinds)
    assert needs.job_memory > needs.feature_bytes > 0 and needs.passed_bytes > 0
    assert names_of_returned(plan) == ("item",) and needs.out_bytes == 4 * 4 * needs.by_kind[1]


def test_what_is_not_done_with_kinds_is_refused_by_name(tmp_path: Path) -> None:
    graph_for(tmp_path, of_two(), int)
    flink = Spread(3, None)
    for made_for in (STREAMING, SERVING):
        with pytest.raises(UsageError, match=r"--parallelism 3: more than --parts 2; a part is made by one process"):
            embed(asked(tmp_path, made_for=made_for, spread=flink))
    for option in ({"passes": 1}, {"order": "completion"}, {"eviction": "lru"}):
        with pytest.raises(UsageError, match=r"--passes, --order, --eviction: .* a model with kinds of vertices: its"):
            embed(asked(tmp_path, made_for=SERVING, **option))
    with pytest.raises(UsageError, match=r"--memory 1MiB: too little to place .*; give \d+MiB or more$"):
        embed(asked(tmp_path, made_for=SERVING, memory=1 << 20))
    alone = EmbedOptions(
        of_a_relation_alone(tmp_path), tmp_path / "S", tmp_path / "S2", undirected=True, made_for=SERVING
    )
    save_model(with_attributes(), tmp_path / "learned")
    with pytest.raises(UsageError, match=r"--snapshot: int ids, but the model has learned rows of string ids"):
        embed(EmbedOptions(tmp_path / "learned", tmp_path / "S", tmp_path / "S2"))
    with pytest.raises(KindsError, match=r"--undirected: edges of 'buys' lead from user to item"):
        embed(alone)
    assert not (tmp_path / "S2" / "snapshot.json").exists()
