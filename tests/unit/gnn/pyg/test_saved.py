"""Weights as people keep them, under the names of wrappers and of PyG 1; factories with arguments."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch

from freshet.gnn.model import load_model
from freshet.gnn.pyg.export import ExportError, export_model
from freshet.gnn.pyg.importing import import_model

CODE = """
import torch
from torch_geometric.nn import GATConv, GCNConv, GraphConv, SAGEConv, TAGConv

class Net(torch.nn.Module):
    def __init__(self, width=6, *, hidden=4):
        super().__init__()
        self.conv = GCNConv(width, hidden)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)

class Needs(Net):
    def __init__(self, width, hidden, sizes=()):
        super().__init__(width, hidden=hidden)

class Many(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gcn, self.gat, self.sage = GCNConv(6, 6), GATConv(6, 3, heads=2), SAGEConv(6, 5)
        self.graph, self.tag, self.norm = GraphConv(5, 5), TAGConv(5, 4, K=2), torch.nn.BatchNorm1d(4)

    def forward(self, x, e):
        return self.norm(self.tag(self.graph(self.sage(self.gat(self.gcn(x, e), e), e), e), e))

def fails():
    raise KeyError("width")

ready = Net()
"""
State = dict[str, Any]


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "saved_for_tests.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return __import__("saved_for_tests")


def under(prefix: str, state: State) -> State:
    return {prefix + name: value for name, value in state.items()}


def imported(state: Any, name: str = "w.pt", factory: str = "Net") -> str:
    torch.save(state, name)
    return import_model(f"saved_for_tests:{factory}", name, "M").sha256()


@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "model.", "net.", "gcn.", "module._orig_mod.", "_orig_mod.module.", "a.b."]
)
def test_prefixes_of_wrappers_are_taken_off_and_said(prefix: str, code: Any, capsys: Any) -> None:
    net = code.Net()
    assert imported(under(prefix, net.state_dict())) == export_model(net, "N").sha256()
    said = capsys.readouterr().err
    assert all(f"took {part}." in said for part in ("module", "_orig_mod") if f"{part}." in prefix)
    assert said.startswith("w.pt: took ") and "off the names of weights" in said


def test_a_name_inside_that_compiling_a_part_put_there_is_taken_off(code: Any) -> None:
    net = code.Net()
    state = {name.replace("conv.", "conv._orig_mod."): value for name, value in net.state_dict().items()}
    assert imported(state) == export_model(net, "N").sha256()


@pytest.mark.parametrize("suffix", [".pth", ".ckpt", ".bin", ".PT"])
def test_every_suffix_and_nested_state_is_read(suffix: str, code: Any, capsys: Any) -> None:
    net = code.Net()
    state, expected = net.state_dict(), export_model(net, "N").sha256()
    lightning = {
        "pytorch-lightning_version": "2.4.0",
        "epoch": 3,
        "optimizer_states": [{}],
        "hyper_parameters": {"a": 1},
    }
    lightning["state_dict"] = under("gnn.", state) | {"loss.weight": torch.ones(3)}
    files = [
        state,
        {"model_state_dict": state, "epoch": 1},
        {"checkpoint": {"model": state}},
        {"mine": state},
        lightning,
    ]
    assert {imported(file, f"w{suffix}") for file in files} == {expected}
    said = capsys.readouterr().err
    assert "the weights are those under 'model_state_dict'" in said and "under 'checkpoint.model'" in said
    assert "took gnn. off" in said and "left out what is not under gnn.: loss.weight" in said


def test_names_of_pyg_1_become_those_of_today(code: Any, capsys: Any) -> None:
    many = code.Many()
    state, expected = many.state_dict(), export_model(many, "N").sha256()
    old = dict(state)
    old["gcn.weight"] = old.pop("gcn.lin.weight").t().contiguous()
    old["gat.lin_l.weight"] = old["gat.lin_r.weight"] = old.pop("gat.lin.weight")
    old["gat.att_l"], old["gat.att_r"] = old.pop("gat.att_src"), old.pop("gat.att_dst")
    old["graph.lin_l.weight"], old["graph.lin_l.bias"] = old.pop("graph.lin_rel.weight"), old.pop("graph.lin_rel.bias")
    old["graph.lin_r.weight"] = old.pop("graph.lin_root.weight")
    old["sage.lin_rel.weight"], old["sage.lin_rel.bias"] = old.pop("sage.lin_l.weight"), old.pop("sage.lin_l.bias")
    old["sage.lin_root.weight"] = old.pop("sage.lin_r.weight")
    old["tag.lin.weight"] = torch.cat([old.pop(f"tag.lins.{k}.weight") for k in range(3)], dim=1)
    old["tag.lin.bias"] = old.pop("tag.bias")
    assert not old.keys() & {name for name in state if "lin" in name}
    assert imported(old, factory="Many") == expected
    said = capsys.readouterr().err
    assert "names of an earlier PyG: gcn.weight is lin.weight now, transposed" in said
    assert imported(under("module.", old), factory="Many") == expected
    older = {name: value for name, value in old.items() if not name.startswith("gat.")} | {
        "gat.bias": state["gat.bias"]
    }
    older["gat.weight"] = state["gat.lin.weight"].t().contiguous()
    older["gat.att"] = torch.cat([state["gat.att_dst"], state["gat.att_src"]], dim=-1)
    assert imported(older, factory="Many") == expected
    old["gat.lin_r.weight"] = old["gat.lin_r.weight"] + 1  # of a bipartite conv
    with pytest.raises(
        ExportError, match=r"Missing keys: gat.lin.weight. Unexpected keys: gat.lin_l.weight, gat.lin_r"
    ):
        imported(old, factory="Many")


def test_what_does_not_fit_is_named_shortly(code: Any) -> None:
    state = code.Net().state_dict()
    cases = {
        r"Missing keys: conv.lin.weight\. Exp": {"conv.bias": state["conv.bias"]},
        r"Unexpected keys: head.0.w, head.1.w, head.2.w, head.3.w and 5 more\. Exp": state
        | {f"head.{i}.w": torch.ones(1) for i in range(9)},
        r"Other shapes: conv.lin.weight \(4, 9\), expected \(4, 6\)\. Exp": state
        | {"conv.lin.weight": torch.ones(4, 9)},
        "under 'model.' and 'net.'; save": under("model.", state) | under("net.", state),
        "under 'online.' would fit the module, but there is more beside it: target.conv.bias": under("online.", state)
        | under("target.", state),
        r"weights are NaN.*: conv.bias \(4 of 4 values": state | {"conv.bias": torch.full((4,), torch.nan)},
    }
    for message, given in cases.items():
        with pytest.raises(ExportError, match=message):
            imported(given)


def test_what_is_no_state_dict_is_refused_with_what_to_do(code: Any) -> None:
    class_name = "it is a whole pickled module .*Net"
    cases: dict[str, Any] = {
        class_name + r".*torch.save\(model.state_dict\(\), 'weights.pt'\)": code.Net(),
        "there is a argparse.Namespace.*weights_only=False": {"state_dict": {}, "args": argparse.Namespace(a=1)},
        "holds a dict of epoch, loss, expected a state dict": {"epoch": 3, "loss": 0.5},
        "holds an empty dict": {},
    }
    for message, given in cases.items():
        with pytest.raises(ExportError, match=message):
            imported(given)
    for data in (b"", b"PK\x03\x04 damaged" * 30, b"text", bytes(range(256))):
        Path("w.pt").write_bytes(data)
        with pytest.raises(ExportError, match=r"no torch file \(.*Save the state dict: torch.save"):
            import_model("saved_for_tests:Net", "w.pt", "M")


def test_a_factory_may_have_arguments_that_are_literals(code: Any) -> None:
    net = code.Needs(6, 4)
    torch.save(net.state_dict(), "w.pt")
    for text in ("Needs(6, 4)", "Needs(6, hidden=4, sizes=[1, (2, None)])", "Net( hidden = 4 )", "Net(6)"):
        assert import_model(f"saved_for_tests:{text}", "w.pt", "M").sha256() == export_model(net, "N").sha256()
    assert load_model("M").features.width == 6


REFUSED = {
    "Needs": r"missing a required argument: 'width'. It takes \(width, hidden, .* as in '.*:Needs\(width=..., hidden=",
    "Needs(6)": "missing a required argument: 'hidden'",
    "Net(depth=3)": r"unexpected keyword argument 'depth'. It takes \(width=6, \*, hidden=4\)",
    "Net(__import__('os').mkdir('was_run'))": "arguments are literals",
    "Net(*[6])": "arguments are literals",
    "Net(width)": "arguments are literals",
    "Net(6": r"expected package.module:factory, or with arguments: 'package.module:factory\(8, hidden=16\)'",
    "Net[0]": "expected package.module:factory, or",
    "Net(6).conv": "expected package.module:factory, or",
    "fails": "saved_for_tests:fails fails: KeyError: 'width'",
    "ready()": "there is a Net already, which takes no arguments",
}


@pytest.mark.parametrize("text", REFUSED)
def test_wrong_factories_are_refused_with_what_they_take(text: str, code: Any) -> None:
    torch.save(code.Net().state_dict(), "w.pt")
    with pytest.raises(ExportError, match=REFUSED[text]):
        import_model(f"saved_for_tests:{text}", "w.pt", "M")
    assert not Path("was_run").exists() and not Path("M").exists()


def test_a_statistic_that_torch_came_to_keep_later_may_be_missing(code: Any) -> None:
    many = code.Many()
    state = {name: value for name, value in many.state_dict().items() if "num_batches" not in name}
    assert imported(state, factory="Many") == export_model(many, "N").sha256()
