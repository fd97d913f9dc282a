"""scripts/drills/equal_embed.py on a small graph: the real command, held against PyTorch Geometric."""

import subprocess
import sys

import orjson
import pytest

from scripts.drills import equal_embed
from tests.support.runs.scripts import ROOT

pytest.importorskip("torch_geometric")
SCRIPT = ROOT / "scripts" / "drills" / "equal_embed.py"


def test_a_layer_is_equal(tmp_path):
    command = [sys.executable, SCRIPT, "--graphs", "synthetic", "--vertices", 2000]
    command += ["--edges", 9000, "--layers", "GAT", "--memory", "256MiB", "--work", tmp_path]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    line = orjson.loads(done.stdout.splitlines()[-1])
    runs = [(one["layer"], one["mode"]) for one in line["found"]]
    assert {("GAT", "streaming"), ("GAT", "serving")} <= set(runs)
    assert len(set(runs)) == len(runs)
    assert not line["wrong"]
    for one in line["found"]:
        assert (one["rows"], one["each_once"]) == (2000, True)
        assert 0 < one["mean_error"] < 1e-5
    assert not any(tmp_path.iterdir())


def test_a_layer_that_is_none_is_answered_by_the_names(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--layers", "Nonsense"])
    assert equal_embed.main() == 2
    assert "GraphConv sum" in capsys.readouterr().err.splitlines()
