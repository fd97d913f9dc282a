"""`freshet train` on the graph of a job: a better model is written and served, a worse one is not."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.nn import SAGEConv

from examples.retrain import retrain
from freshet import export_model
from freshet.errors import InputError
from freshet.gnn.model import Model, ModelError, load_model
from freshet.gnn.oracles import own_scale
from freshet.job.commands.train import train as command
from freshet.job.errors import UsageError
from freshet.job.options.training import Training
from freshet.job.training.rounds import GraphSource, train
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Features
from tests.support.graphs.models import IN_WIDTH
from tests.support.graphs.plain_graph import apply
from tests.support.graphs.streams import random_records
from tests.support.runs.jobs import DEADLINE_S, FRESHET, ROOT
from tests.support.runs.torn import Ended, called

pytestmark = pytest.mark.slow

EVENTS, VERTICES, CLASSES = 4_000, 400, 3
FACTORY = "tests.integration.test_train:Net"


class Net(torch.nn.Module):
    """Two SAGE convs, and a head."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(IN_WIDTH, width), SAGEConv(width, width)
        self.dropout, self.head = torch.nn.Dropout(0.1), torch.nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.dropout(self.first(x, edge_index).relu())
        return self.head(self.second(x, edge_index).relu())


class Unknown(Net):
    """A module that no export takes: rows depend on those of all vertices before."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return super().forward(x.cumsum(dim=0), edge_index)


def freshet(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [str(FRESHET), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == code, f"{done.returncode}: {done.stderr}"
    return done


Here = Callable[..., Ended]


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    """Run a command in this process, which has torch loaded already."""

    def run(*arguments: object, code: int = 0) -> Ended:
        ended = called(capsys, *arguments)
        assert ended.code == code, f"{ended.code}: {ended.errors}"
        return ended

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job whose model was never trained, in O, and labels that its graph explains."""
    folder = tmp_path_factory.mktemp("train")
    torch.manual_seed(5)
    export_model(Net(), folder / "M", head="head")
    records = random_records(random.Random(3), EVENTS, IN_WIDTH, vertices=VERTICES, weighted=False)
    (folder / "e.jsonl").write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in records))
    given = ["--model", folder / "M", "--events", folder / "e.jsonl", "--out", folder / "O", "--runtime", "local"]
    freshet("run", *given, "--epoch-events", 100, "--parts", 2)
    ids, x, src, dst = final_graph(records)
    means = np.zeros_like(x)
    np.add.at(means, dst, x[src])
    means /= np.maximum(1, np.bincount(dst, minlength=len(x)))[:, None]
    truth = ((x + means) @ np.random.default_rng(7).normal(size=(IN_WIDTH, CLASSES))).argmax(axis=1)
    table = {"id": [*ids.tolist(), 10**9], "label": [*truth.tolist(), 0]}
    pq.write_table(pa.table(table), folder / "L.parquet")
    return folder


def final_graph(records: list[dict[str, Any]]) -> tuple[np.ndarray, ...]:
    """Return ids, x, src and dst of the graph after all events, which are good."""
    graph = ReferenceGraph(Features(IN_WIDTH))
    for record in records:
        apply(graph, record)
    arrays = graph.arrays()
    return np.array(arrays.ids, np.int64), arrays.graph.x, np.array(arrays.graph.src), np.array(arrays.graph.dst)


def report_of(model: Path) -> dict[str, Any]:
    return dict(json.loads((model / "report.json").read_bytes()))


def accuracy(model: Model, folder: Path, ids_for_validation: set[int]) -> float:
    """The accuracy by Freshet's own full pass in float64, over the graph that the test made of the events."""
    graph = ReferenceGraph(Features(IN_WIDTH))
    for record in map(orjson.loads, (folder / "e.jsonl").read_bytes().splitlines()):
        apply(graph, record)
    arrays = graph.arrays()
    rows = own_scale.forward(model, arrays.graph).rows
    logits = rows @ model.weights["head.0.weight"].T.astype(float) + model.weights["head.0.bias"]
    labels = dict(zip(*pq.read_table(folder / "L.parquet").to_pydict().values(), strict=True))
    right = [
        int(logit.argmax() == labels[i]) for i, logit in zip(arrays.ids, logits, strict=True) if i in ids_for_validation
    ]
    return float(np.mean(right))


def validation_ids(folder: Path) -> set[int]:
    """The ids that judge, by the hash that the guide documents."""
    from freshet.job.training.splits import by_hash

    ids = pa.array([one for one in pq.read_table(folder / "L.parquet")["id"].to_pylist() if one != 10**9])
    return set(np.array(ids)[by_hash("", ids, 0.2)].tolist())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def test_a_better_model_is_written_and_then_served(folder: Path, tmp_path: Path, here: Here) -> None:
    before = contents(folder / "O")
    done = freshet("train", folder / "O", "--labels", folder / "L.parquet", "--out", tmp_path / "M2", "--lr", 0.02)
    assert contents(folder / "O") == before, "the folder of the job is read alone"
    found = orjson.loads(done.stdout)
    assert {name: value for name, value in report_of(tmp_path / "M2").items() if name != "crc32"} == found
    assert (found["metric"], found["taken"], found["labels"]["skipped"]) == ("accuracy", True, 1)
    assert found["epoch"] == 40
    assert found["positions"] == {f"{folder / 'e.jsonl'}:0": EVENTS}
    judges = validation_ids(folder)
    assert found["labels"]["validation"] == len(judges) > 20
    assert found["old"] == pytest.approx(accuracy(load_model(folder / "M"), folder, judges), abs=1e-9)
    assert found["new"] == pytest.approx(accuracy(load_model(tmp_path / "M2"), folder, judges), abs=1e-9)
    assert found["new"] > found["old"] + 0.1
    assert (tmp_path / "M2" / "training.png").read_bytes().startswith(b"\x89PNG")

    shutil.copytree(folder / "O", tmp_path / "O")
    here("promote", tmp_path / "V", tmp_path / "O")
    gate = "grep '\"taken\": true' $FRESHET_MODEL/report.json"
    freshet("swap", tmp_path / "V", "--model", tmp_path / "M2", "--in-turn", "--keep", "off", "--gate", gate)
    given = ["--labels", folder / "L.parquet", "--out", tmp_path / "M3", "--epochs", 1, "--gate-margin", 1]
    again = here("train", tmp_path / "V", *given, code=1)
    assert orjson.loads(again.out)["old"] == found["new"], "the service's job has the new model"


def test_a_model_that_is_not_better_leaves_a_report_alone(folder: Path, tmp_path: Path, here: Here) -> None:
    given = ["train", folder / "O", "--labels", folder / "L.parquet", "--out", tmp_path / "M2", "--epochs", 3]
    done = here(*given, "--gate-margin", 0.9, code=1)
    assert not orjson.loads(done.out)["taken"]
    assert not report_of(tmp_path / "M2")["taken"]
    assert {one.name for one in (tmp_path / "M2").iterdir()} == {"report.json", "training.png"}
    with pytest.raises(ModelError, match=r"model\.json is missing"):
        load_model(tmp_path / "M2")
    here(*given, "--gate-margin", -1)  # the folder of a training that was not taken can be used again
    assert "holds a model already" in here(*given, code=2).errors


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"factory": "tests.integration.test_train:Nothing"}, "cannot be imported"),
        ({"factory": FACTORY, "head": "tail"}, "--head tail"),
        ({"factory": "tests.integration.test_train:Unknown"}, "cumsum"),
        ({"metric": "average-precision"}, "3 logits"),
        ({"labels": Path("nowhere.parquet")}, "nowhere.parquet"),
        ({"begin": "nowhere"}, "nowhere"),
        ({"epoch": 41}, "epoch 41"),
        ({"share": 0.0}, "0 to judge by"),
        ({"kind": "user"}, "kind"),
        ({"job": Path("nowhere")}, "nowhere: no job"),
        ({"model": "other"}, "not the model"),
    ],
)
def test_what_does_not_fit_is_said_by_name(folder: Path, tmp_path: Path, given: dict[str, Any], said: str) -> None:
    if given.get("model"):
        export_model(Net(), tmp_path / "other", head="head")
        given = {"model": tmp_path / "other"}
    asked = Training(folder / "O", folder / "L.parquet", tmp_path / "M2")._replace(**given)
    with closing(GraphSource(asked)) as source, pytest.raises(InputError, match=re.escape(said)):
        train(asked, source, asked.out, lambda text: None)
    assert not list(tmp_path.glob("M2/*"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fanout": [3]}, "--fanout: "),
        ({"batch_size": 3}, "--batch-size: "),
        ({"every": "soon"}, "--every: "),
        ({"then": "true"}, "--then: "),
        ({"head": "head"}, "--head: "),
        ({"every": "1d", "epoch": 3}, "--epoch: "),
    ],
)
def test_options_that_do_not_go_together(folder: Path, tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        command(**Training(folder / "O", folder / "L.parquet", tmp_path / "M2")._replace(**given)._asdict())


def test_a_new_module_is_trained_from_its_factory_in_batches(folder: Path, tmp_path: Path, here: Here) -> None:
    given = ["--factory", f"{FACTORY}(12)", "--head", "head", "--lr", 0.02, "--epochs", 40, "--seed", 3]
    batches = ["--batch-size", 64, "--fanout", 5, "--fanout", 5]
    out = ["--labels", folder / "L.parquet", "--out", tmp_path / "M2"]
    found = orjson.loads(here("train", folder / "O", *out, *given, *batches).out)
    assert found["taken"]
    assert load_model(tmp_path / "M2").out_width == 12
    assert found["new"] == pytest.approx(
        accuracy(load_model(tmp_path / "M2"), folder, validation_ids(folder)), abs=1e-9
    )


def test_ranks_train_the_same_model_together(folder: Path, tmp_path: Path, here: Here) -> None:
    given = ["train", folder / "O", "--labels", folder / "L.parquet", "--lr", 0.02, "--epochs", 15]
    alone, shared = (
        orjson.loads(here(*given, "--out", tmp_path / f"M{ranks}", "--ranks", ranks).out) for ranks in (1, 2)
    )
    assert shared["new"] == pytest.approx(alone["new"], abs=0.02)  # a vertex or two at a boundary
    models = [load_model(tmp_path / f"M{ranks}").weights for ranks in (1, 2)]
    for name, one in models[0].items():
        np.testing.assert_allclose(models[1][name], one, atol=0.02)


def test_the_example_is_the_same_in_ten_lines(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    before, after = retrain(*map(str, (folder / "O", folder / "M", folder / "L.parquet", tmp_path / "M2")))
    judges = validation_ids(folder)
    assert before == pytest.approx(accuracy(load_model(folder / "M"), folder, judges), abs=1e-9)
    assert after == pytest.approx(accuracy(load_model(tmp_path / "M2"), folder, judges), abs=1e-9)
    assert after > before + 0.1


def test_rounds_go_on_until_the_job_has_ended(folder: Path, tmp_path: Path, here: Here) -> None:
    given = ["--labels", folder / "L.parquet", "--out", tmp_path / "rounds", "--epochs", 20, "--lr", 0.02]
    then = f"echo $FRESHET_MODEL >> {tmp_path / 'taken'}"
    done = here("train", folder / "O", *given, "--every", "100ms", "--then", then)
    lines = [orjson.loads(line) for line in done.out.splitlines()]
    assert [one["round"] for one in lines] == ["000001", "000002"]
    assert (tmp_path / "taken").read_text().splitlines() == [str(tmp_path / "rounds" / one["round"]) for one in lines]
    assert lines[0]["new"] == lines[1]["new"], "both begin with the model that is served"


def test_a_killed_training_leaves_no_model_and_can_be_repeated(folder: Path, tmp_path: Path, here: Here) -> None:
    out = tmp_path / "M2"
    given = ["train", folder / "O", "--labels", folder / "L.parquet", "--out", out, "--epochs", 10, "--lr", 0.02]
    for moment in (".lock", ".training/model.json", "report.json"):
        running = subprocess.Popen(
            [str(FRESHET), *map(str, given)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + DEADLINE_S
        before = (out / moment).exists()  # of the one that was killed before
        while running.poll() is None and (before or not (out / moment).exists()) and time.monotonic() < deadline:
            before = before and (out / moment).exists()
            time.sleep(0.002)
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL, moment
        assert out.exists()
        if (out / "model.json").exists():  # the kill came late
            assert report_of(out)["model"] == load_model(out).sha256()
            shutil.rmtree(out)
    here(*given)
    assert report_of(out)["taken"]
    assert report_of(out)["model"] == load_model(out).sha256()
