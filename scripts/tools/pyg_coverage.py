"""Counts PyG's convs by class: taken, taken with all the options below, or refused, and why.

    .venv/bin/python scripts/tools/pyg_coverage.py [--examples CHECKOUT [--only LETTERS]] [--tests CHECKOUT]

Each call below is exported as a model of one conv, called with edge weights or attributes where the conv takes them.
The first one of a class has its defaults. With `--examples`, a checkout of PyG of the installed version, it exports the
models of PyG's examples as well (pyg_examples.toml), each by one call, and compares those that are taken with PyG after
every epoch of a random stream. With `--tests` it counts the lines of PyG's tests that make convs, too.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric import nn as pyg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.pyg.export import ExportError, export_model
from freshet.gnn.pyg.steps import takes_attributes
from scripts.tools.pyg_examples import Outcome, outcomes
from scripts.tools.pyg_tests import convs_of_tests

_ATTENTION = " | heads=2 | concat=False, heads=2 | bias=False | add_self_loops=False | dropout=0.5 | negative_slope=0.3"
_KINDS = "(['a'], [('a', 'to', 'a')])"
# By class: the arguments that it needs, and options with | between them, each tried by itself.
CALLS: dict[str, tuple[str, str]] = {
    "AGNNConv": ("", " | requires_grad=False | add_self_loops=False"),
    "APPNP": ("2, 0.1", " | cached=True | add_self_loops=False | normalize=False | dropout=0.5 | aggr='max'"),
    "ARMAConv": ("4, 3", " | num_stacks=2, num_layers=2 | shared_weights=True, num_layers=2 | act=None | aggr='max'"),
    "AntiSymmetricConv": ("4", " | phi=GraphConv(4, 4) | num_iters=2 | act=None | bias=False"),
    "CGConv": ("4", " | dim=2 | dim=2, batch_norm=True | dim=2, aggr='max' | dim=2, bias=False"),
    "ChebConv": ("4, 3, 2", " | normalization='rw' | bias=False"),
    "ClusterGCNConv": ("4, 3", " | diag_lambda=0.5 | bias=False | add_self_loops=False"),
    "DNAConv": ("4", ""),
    "DirGNNConv": ("GraphConv(4, 4)", ""),
    "EGConv": (
        "4, 8",
        " | aggregators=['symnorm', 'max', 'var'] | add_self_loops=False | cached=True | aggregators=['std']",
    ),
    "EdgeConv": ("nn.Linear(8, 3)", " | aggr='mean' | aggr=['max', 'std'] | aggr=aggr.QuantileAggregation(0.3)"),
    "FAConv": ("4", ""),
    "FastRGCNConv": ("4, 4, 2", " | num_bases=2 | num_blocks=2 | aggr='sum'"),
    "FeaStConv": ("4, 3", ""),
    "FiLMConv": ("4, 3", " | num_relations=2"),
    "GATConv": (
        "4, 3",
        f"{_ATTENTION} | residual=True | edge_dim=2 | edge_dim=2, fill_value=0.5 | edge_dim=2, fill_value='max'",
    ),
    "GATv2Conv": ("4, 3", f"{_ATTENTION} | residual=True | share_weights=True | edge_dim=2"),
    "GCN2Conv": (
        "4, 0.1",
        " | theta=0.5, layer=1 | shared_weights=False | cached=True | add_self_loops=False | normalize=False",
    ),
    "GCNConv": (
        "4, 3",
        " | improved=True | cached=True | add_self_loops=False | normalize=False | bias=False | "
        "aggr='mean' | aggr='max' | aggr='std'",
    ),
    "GENConv": (
        "4, 3",
        " | aggr='add' | aggr='mean', edge_dim=2 | aggr='max', num_layers=1, bias=True | aggr='add', norm='layer' | "
        "aggr='add', msg_norm=True | aggr='powermean'",
    ),
    "GINConv": ("nn.Linear(4, 3)", " | eps=0.5, train_eps=True | aggr='mean' | aggr='max' | aggr='var'"),
    "GINEConv": ("nn.Linear(4, 3)", " | edge_dim=2 | eps=0.5, train_eps=True | aggr='mean' | aggr='max'"),
    "GMMConv": ("4, 3, 2, 3", " | aggr='add' | bias=False | separate_gaussians=True | root_weight=False"),
    "GPSConv": ("4, GraphConv(4, 4)", ""),
    "GatedGraphConv": ("4, 2", ""),
    "GeneralConv": ("4, 3", ""),
    "GraphConv": ("4, 3", " | aggr='mean' | aggr='max' | aggr='std' | aggr='median' | aggr='mul' | bias=False"),
    "HANConv": (f"4, 4, {_KINDS}", " | heads=2 | dropout=0.5 | negative_slope=0.3"),
    "HEATConv": ("4, 3, 1, 1, 2, 2, 2", ""),
    "HGTConv": (f"4, 4, {_KINDS}", " | heads=2"),
    "HeteroConv": ("{('a', 'to', 'a'): GraphConv(4, 4)}", ""),
    "HypergraphConv": ("4, 3", ""),
    "LEConv": ("4, 3", " | bias=False | aggr='mean'"),
    "LGConv": ("", " | normalize=False | aggr='mean'"),
    "MFConv": ("4, 3", ""),
    "MeshCNNConv": ("4, 3", ""),
    "MixHopConv": ("4, 3", " | powers=[1, 2] | add_self_loops=False | bias=False"),
    "NNConv": ("4, 3, nn.Linear(2, 12)", " | aggr='mean' | aggr='max' | root_weight=False | bias=False"),
    "PANConv": ("4, 3, 2", ""),
    "PDNConv": ("4, 3, 2, 4", ""),
    "PNAConv": (
        "4, 4, ['mean', 'max'], ['identity', 'linear'], torch.tensor([1, 2, 3])",
        " | towers=2 | towers=2, divide_input=True | pre_layers=2 | post_layers=2 | edge_dim=2",
    ),
    "PPFConv": ("", ""),
    "PointGNNConv": ("nn.Linear(4, 3), nn.Linear(7, 4), nn.Linear(4, 4)", ""),
    "PointNetConv": ("", ""),
    "PointTransformerConv": ("4, 3", ""),
    "RGATConv": (
        "4, 4, 2",
        " | heads=2 | heads=2, concat=False | num_bases=2 | num_blocks=2 | bias=False | mod='additive' | "
        "attention_mechanism='within-relation' | attention_mode='multiplicative-self-attention' | edge_dim=2",
    ),
    "RGCNConv": ("4, 4, 2", " | num_bases=2 | num_blocks=2 | aggr='max' | root_weight=False | bias=False"),
    "ResGatedGraphConv": ("4, 3", " | root_weight=False | bias=False | act=nn.Tanh() | edge_dim=2"),
    "SAGEConv": (
        "4, 3",
        " | aggr='max' | aggr=['mean', 'std'] | normalize=True | root_weight=False | project=True | bias=False",
    ),
    "SGConv": ("4, 3", " | K=2 | cached=True | add_self_loops=False | bias=False | aggr='max'"),
    "SSGConv": ("4, 3, 0.1", " | K=2 | cached=True | add_self_loops=False | bias=False"),
    "SignedConv": ("4, 3, True", ""),
    "SimpleConv": (
        "",
        " | aggr='mean' | aggr='max' | combine_root='sum' | combine_root='cat' | combine_root='self_loop'",
    ),
    "SuperGATConv": ("4, 3", f"{_ATTENTION} | attention_type='SD'"),
    "TAGConv": ("4, 3", " | K=2 | bias=False | normalize=False | aggr='max'"),
    "TransformerConv": ("4, 3", " | heads=2, beta=True | concat=False | root_weight=False | bias=False | edge_dim=2"),
    "WLConv": ("", ""),
    "WLConvContinuous": ("", ""),
}


class Called(nn.Module):
    """One conv; `reads_first`: it is called with the rows of the first layer, too."""

    def __init__(self, conv: Any, *, reads_first: bool) -> None:
        """Take the conv."""
        super().__init__()
        self.conv, self.reads_first = conv, reads_first

    def forward(self, x: Any, edge_index: Any) -> Any:
        """Return what the conv gives."""
        return self.conv(x, x, edge_index) if self.reads_first else self.conv(x, edge_index)


class Weighted(Called):
    """The same with edge weights."""

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:  # type: ignore[override]
        """Return what the conv gives."""
        return self.conv(x, x, edge_index, edge_weight) if self.reads_first else self.conv(x, edge_index, edge_weight)


class Attributed(Called):
    """The same with attributes of edges."""

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:  # type: ignore[override]
        """Return what the conv gives."""
        return self.conv(x, edge_index, edge_attr)


class Typed(Called):
    """The same with types of edges."""

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:  # type: ignore[override]
        """Return what the conv gives."""
        return self.conv(x, edge_index, edge_type)


_OF_TYPES = ("FastRGCNConv", "RGATConv", "RGCNConv")
_OF_DICTS = ("HANConv", "HGTConv", "HeteroConv")


def why_refused(name: str, options: str) -> str:
    """Return why a call is refused; empty if it is taken."""
    needed = CALLS[name][0]
    call = f"{name}({', '.join(one for one in (needed, options) if one)})"
    try:
        conv = eval(call, {**vars(pyg), "nn": nn, "torch": torch})
    except (ImportError, ValueError) as error:
        return f"PyG does not make it here: {error}"
    weighted = "edge_weight" in inspect.signature(conv.forward).parameters and name != "ChebConv"
    kind = Attributed if takes_attributes(conv) else Weighted if weighted else Called
    kind = Typed if name in _OF_TYPES else kind
    module = conv if name in _OF_DICTS else kind(conv, reads_first=name == "GCN2Conv")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            export_model(module, folder, features=4)
        except ExportError as error:
            return f"{options or 'by itself'}: {str(error).split(': ', 1)[-1].split('. Nearest')[0]}"
    return ""


def print_examples(checkout: Path, only: str) -> None:
    """Print the result of each model of a checkout's examples, and the totals."""
    print(f"{'model':28} {'taken':8} {'equal':20} script, and the reason of a refusal")
    found = list[Outcome]()
    for one in outcomes(checkout / "examples", only):
        kind = "no" if one.refused else "not made" if one.unmade else "option" if one.option else "yes"
        equal = f"{'yes' if one.equal else 'NO'}, {one.off:.0e} of {one.rows}" if one.taken else ""
        print(f"{one.model:28} {kind:8} {equal:20} {one.script} {one.unmade or one.refused}"[:400])
        found.append(one)
    taken, unmade = [one for one in found if one.taken], sum(bool(one.unmade) for one in found)
    print(f"\n{len(found)} models of {len({one.script for one in found})} scripts, {unmade} of them not made here")
    print(f"{len(taken)} are taken, {sum(one.option for one in taken)} of them with an option of export_model")
    print(f"{sum(one.equal for one in found)} equal PyG after every epoch of a stream")


def print_tests(checkout: Path) -> None:
    """Print the result of each line of PyG's tests that makes convs, and the totals."""
    found = list[str]()
    for place, made, why in convs_of_tests(checkout):
        print(f"{'no ' if why else 'yes'} {place:34} {made[:90]:90} {why}"[:330], flush=True)
        found.append(why)
    print(f"\n{len(found)} lines make convs; of {found.count('')} all are taken")


def main() -> None:
    """Print the counts and each refusal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=Path, help="a checkout of PyG, whose examples are tried as well")
    parser.add_argument("--only", default="", help="only examples whose script or model has these letters")
    parser.add_argument("--tests", type=Path, help="a checkout of PyG, whose tests are run for the convs they make")
    options = parser.parse_args()
    if options.tests is not None:
        print_tests(options.tests)
        return
    classes = [name for name in pyg.conv.__all__ if name != "MessagePassing"]
    whole, partly, refused = list[str](), list[str](), dict[str, str]()
    for name in classes:
        if name not in CALLS:
            refused[name] = "needs a library or an input of its own"
            continue
        found = [why_refused(name, options) for options in CALLS[name][1].split(" | ")]
        if found[0]:
            refused[name] = found[0].removeprefix("by itself: ")
        elif any(found):
            partly.append(f"{name} ({'; '.join(one for one in found if one)})")
        else:
            whole.append(name)
    print(f"{len(classes)} convs: {len(whole) + len(partly)} taken, {len(whole)} of them with all options\n")
    print("all options:", ", ".join(whole), "\n\nsome:", *partly, sep="\n  ")
    print("\nrefused:", *(f"{name}: {reason}" for name, reason in refused.items()), sep="\n  ")
    if options.examples is not None:
        print_examples(options.examples, options.only)


if __name__ == "__main__":
    main()
