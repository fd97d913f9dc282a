"""`freshet embed --device`: rows as the engine makes them, what is refused, and how a killed run goes on."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.gnn.model import save_model  # noqa: E402
from freshet.gnn.oracles import kinds as oracle  # noqa: E402
from freshet.gnn.oracles import own_scale  # noqa: E402
from freshet.gnn.pyg.check import off  # noqa: E402
from freshet.gnn.torch_modules.chunked import device as devices  # noqa: E402
from freshet.gnn.torch_modules.chunked.device_pass import DevicePass  # noqa: E402
from freshet.job.embed import on_device  # noqa: E402
from freshet.job.embed.batch_job import Spread  # noqa: E402
from freshet.job.embed.folder import WORK  # noqa: E402
from freshet.job.embed.runner import STREAMING, EmbedOptions, embed  # noqa: E402
from freshet.job.errors import JobFailed, UsageError  # noqa: E402
from freshet.job.options.partitioning_options import PartitioningOptions  # noqa: E402
from freshet.job.results.plain_kinds import with_learned  # noqa: E402
from freshet.partitioner.reference.kinds import KindsArrays  # noqa: E402
from freshet.schema import Graph  # noqa: E402
from tests.support.graphs.kind_streams import arrays_of, graph_of  # noqa: E402
from tests.support.graphs.kinds import text_id  # noqa: E402
from tests.support.graphs.messages import messages_by_kind, written_models  # noqa: E402
from tests.support.graphs.models import IN_WIDTH, conv, make_model  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402
from tests.support.stages.embedded import file_bytes, read_rows, write_graph  # noqa: E402
from tests.unit.job.embed.test_kinds import graph_for, rows_of  # noqa: E402
from tests.unit.job.results.test_kinds_jobs import (  # noqa: E402
    kinds_of,
    of_one_kind,
    of_two,
    with_attributes,
    without_features,
)

MIB = 1 << 20
MODEL = partial(make_model, 3, [conv("gcn_conv", IN_WIDTH, 8), {"type": "relu"}, conv("gatv2_conv", 8, 4)])


def asked(folder: Path, out: str = "S2", **others: Any) -> EmbedOptions:
    return EmbedOptions(folder / "model", folder / "S", folder / out, 1 << 28, **others)


def given(folder: Path, vertices: int = 60) -> Graph:
    """Save a model of two layers and a graph, which is returned."""
    save_model(MODEL(), folder / "model")
    graph = random_graph(3, vertices=vertices, edges=8 * vertices)
    write_graph(folder / "S", graph)
    return graph


def least(folder: Path, **others: Any) -> int:
    """Return the budget that a refusal of less of it asks for."""
    with pytest.raises(UsageError, match=r"--device-memory 1KiB: too little for the vertex with the most") as refused:
        embed(asked(folder, "small", device_memory=1024, **others))
    found = re.search(r"give (\d+)KiB or more", str(refused.value))
    assert found is not None
    return 1024 * int(found[1])


@pytest.mark.parametrize("undirected", [False, True])
def test_rows_are_those_of_the_engine(undirected: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = given(tmp_path)
    assert embed(asked(tmp_path, "engine", undirected=undirected)) == 0
    engine, budget = read_rows(tmp_path / "engine"), least(tmp_path, undirected=undirected)
    scale = own_scale.forward(MODEL(), graph).scale  # of mirrored edges rather more
    chunks = []
    for k, memory in enumerate((budget, 2 * budget, 64 * MIB)):
        capsys.readouterr()
        options = asked(tmp_path, f"torch{k}", undirected=undirected, device_memory=memory)
        assert embed(options) == 0
        rows = read_rows(options.out)
        assert rows.keys() == engine.keys()
        for one, row in rows.items():
            assert (np.abs(row - engine[one]) <= 1e-6 * scale[one]).all()
        line = orjson.loads(capsys.readouterr().out)
        assert line["device"] == "cpu" and line["device_memory"] == memory and line["rows_s"] > 0
        assert 0 < line["transfer_share"] < 1 and 0 < line["compute_share"] < 1
        assert line["bytes_copied"] > 0 and line["bytes_back"] == 60 * 4 * 12
        chunks.append(line["chunks"])
    assert chunks[0] > chunks[1] > chunks[2] == 2


@pytest.mark.parametrize(
    ("make", "id_of"),
    [(of_two, int), (without_features, int), (with_attributes, text_id), (of_one_kind, text_id),
     (partial(messages_by_kind, 3), int)],
)  # fmt: skip
def test_rows_of_kinds(make: Any, id_of: Any, tmp_path: Path) -> None:
    model: KindsModel = make()
    graph = graph_of(kinds_of(model), graph_for(tmp_path, model, id_of))
    ids, arrays = arrays_of(graph)
    named = dict(zip(model.kinds, ids, strict=True))
    scaled = oracle.forward(model, with_learned(model, KindsArrays(named, arrays)).graph, tolerance=1e-9)
    for k, memory in enumerate((4 * least(tmp_path), 64 * MIB)):
        options = asked(tmp_path, f"S2-{k}", device_memory=memory)
        assert embed(options) == 0
        for kind in model.out:
            rows = rows_of(options.out, model, kind)
            assert sorted(rows) == sorted(named[kind]) and len(rows) > 5
            assert off([np.stack([rows[one] for one in named[kind]])], [scaled[kind]]) < 1e-6


def test_a_run_that_was_killed_goes_on_behind_the_last_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(tmp_path)
    budget = 2 * least(tmp_path)
    assert embed(asked(tmp_path, "whole", device_memory=budget)) == 0
    run, calls = DevicePass.run, list[int]()

    def killed(*args: Any) -> Any:
        calls.append(args[1].segment.number)
        if calls == [1, 2]:
            raise KeyboardInterrupt
        return run(*args)

    monkeypatch.setattr(DevicePass, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        embed(asked(tmp_path, device_memory=budget))
    assert not (tmp_path / "S2" / "snapshot.json").exists()
    with pytest.raises(UsageError, match="under way there with --device 'cpu', this one has None"):
        embed(asked(tmp_path))
    capsys.readouterr()
    assert embed(asked(tmp_path, device_memory=4 * budget)) == 0, "another budget may go on"
    assert calls == [1, 2, 2] and orjson.loads(capsys.readouterr().out)["resumed"]
    assert file_bytes(tmp_path / "S2") == file_bytes(tmp_path / "whole")


def test_rows_that_were_damaged_meanwhile_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(tmp_path)
    monkeypatch.setattr(on_device.DeviceEmbedding, "_give", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        embed(asked(tmp_path, device_memory=64 * MIB))
    rows = tmp_path / "S2" / WORK / "steps" / "device2-0-0"
    rows.write_bytes(b"\1" + rows.read_bytes()[1:])
    with pytest.raises(JobFailed, match=f"{rows.name}: does not match its checksum"):
        embed(asked(tmp_path, device_memory=64 * MIB))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_that_is_not_there_is_refused_and_auto_says_what_it_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given(tmp_path)
    with pytest.raises(UsageError, match=r"--device cuda: .*torch.*; install torch for .*, or give --device cpu"):
        embed(asked(tmp_path, device="cuda"))
    assert not (tmp_path / "S2").exists()
    for k, (memory, by) in enumerate(((None, "engine"), (64 * MIB, "torch"))):
        assert embed(asked(tmp_path, f"S{k}", device="auto", device_memory=memory)) == 0
        said = capsys.readouterr()
        assert f"cpu, by {'the ' * (by == 'engine')}{by}" in said.err
        assert ("rows_s" in orjson.loads(said.out)) == (by == "torch")


def test_auto_leaves_a_gpu_with_too_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(tmp_path)
    monkeypatch.setattr(devices, "why_no_cuda", lambda: None)
    small = devices.FoundDevice(torch.device("cpu"), "cuda, small", 1024)
    monkeypatch.setattr(devices, "find_device", lambda *_: small)
    assert embed(asked(tmp_path, device="auto")) == 0
    said = capsys.readouterr()
    assert "1.0 KiB of the device: too little" in said.err and "cpu, by the engine" in said.err
    assert orjson.loads(said.out)["device"] == "cpu"
    assert embed(asked(tmp_path, "engine")) == 0
    assert read_rows(tmp_path / "S2").keys() == read_rows(tmp_path / "engine").keys()


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"made_for": STREAMING}, "not the state of a stream; give --for serving"),
        ({"placement": PartitioningOptions(parts=2)}, "leave out --parts 2"),
        ({"spread": Spread(2, None, {})}, "leave out --runtime flink"),
        ({"passes": 2}, "computed by torch: its edges are held in memory; leave these options out"),
    ],
)
def test_options_that_do_not_go_with_a_device_are_refused(others: Any, words: str, tmp_path: Path) -> None:
    given(tmp_path, 9)
    with pytest.raises(UsageError, match=words):
        embed(asked(tmp_path, device_memory=MIB, **others))
    assert not (tmp_path / "S2").exists()


def test_a_layer_of_numpy_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from freshet.gnn.own.loading import load_layers

    save_model(written_models(IN_WIDTH)["gated_sum"](), tmp_path / "model")
    write_graph(tmp_path / "S", random_graph(3, vertices=20, edges=60))
    load_layers(["examples.gated_sum"])
    with pytest.raises(UsageError, match=r"examples.gated_sum:\w+ is a freshet.Layer.*leave --device-memory out, and"):
        embed(asked(tmp_path, device_memory=MIB))
    assert embed(asked(tmp_path, device="auto", device_memory=MIB)) == 0
    assert "cpu, by the engine" in capsys.readouterr().err
