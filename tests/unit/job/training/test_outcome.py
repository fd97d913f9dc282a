"""The folder of a training: model.json comes last, and other folders are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.gnn.model import load_model, save_model
from freshet.job.errors import UsageError
from freshet.job.training import outcome
from freshet.job.training.fit import Pass
from tests.support.graphs.models import conv, make_model

PASSES = [Pass(0, None, 0.4), Pass(1, 0.7, 0.5)]


def report(taken: bool) -> outcome.Report:
    return outcome.Report(
        **{"metric": "accuracy", "old": 0.4, "new": 0.5, "margin": 0.01, "taken": taken, "epoch": 3, "positions": {}},
        **{"model": "a", "old_model": "b", "vertices": 1, "edges": 0, "labels": {}, "passes": 1, "best_pass": 1},
        seconds=0.1,
    )


@pytest.mark.parametrize("taken", [True, False])
def test_the_model_is_there_if_it_was_taken(tmp_path: Path, taken: bool) -> None:
    model = make_model(1, [conv("sage_conv", 3, 4)])
    save_model(model, outcome.begin(tmp_path))
    outcome.finish(tmp_path, report(taken), PASSES)
    names = {one.name for one in tmp_path.iterdir()}
    assert names == {"report.json", "training.png"} | ({"model.json", "model.safetensors"} if taken else set())
    assert not taken or load_model(tmp_path).sha256() == model.sha256()


def test_what_a_killed_training_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    work = outcome.begin(tmp_path)
    save_model(make_model(1, [conv("sage_conv", 3, 4)]), work)
    (tmp_path / "report.json").write_text("{")
    (tmp_path / "model.safetensors").write_bytes(b"half")
    assert outcome.begin(tmp_path) == work
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"notes\.txt, which no training wrote"):
        outcome.begin(tmp_path)
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(UsageError, match="holds a model already"):
        outcome.begin(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
