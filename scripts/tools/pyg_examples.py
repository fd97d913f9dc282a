"""The models of PyG's examples, exported and compared with PyG on a stream: the other half of pyg_coverage.py.

A model is made of the classes that stand in its script, and of nothing else there: imports and definitions are run,
what downloads data and trains is not. Which models there are, and with which small sizes, is in pyg_examples.toml.
"""

from __future__ import annotations

import ast
import random
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch_geometric import nn as pyg
from torch_geometric import utils
from torch_geometric.data import Data

from freshet.gnn.model import Model
from freshet.gnn.oracles import own_scale
from freshet.gnn.oracles.scaled import Scaled
from freshet.gnn.pyg.check import off as largest
from freshet.gnn.pyg.export import ExportError, export_model
from freshet.gnn.pyg.running import forget
from freshet.schema import Graph
from scripts.tools.pyg_example_kinds import Metadata
from scripts.tools.pyg_example_kinds import compared as compared_by_kind
from tests.support.graphs.streams import random_records, to_events
from tests.support.simulation.oracle import NO_FAULTS, cuts_of, job_settings, references, run
from tests.support.simulation.simulator import embeddings_after

TABLE = Path(__file__).with_name("pyg_examples.toml")
WIDTH, CLASSES, EDGE_WIDTH, EVENTS, PARTS = 4, 3, 3, 240, 2
CALL = "module(x, edge_index)"
ALLOWED = 1e-4  # of what was summed to get a value, as in an export's own check
METADATA: Metadata = (["author", "paper"], [("author", "to", "paper"), ("paper", "rev_to", "author")])


class Missing:
    """Stands for what a script imports from a library that is not here."""

    def __init__(self, name: str) -> None:
        """Take its name."""
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Return a part of it."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Return what a class derives from in its place."""
        return (nn.Module,)

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuse to be used.

        Raises: ImportError
        """
        raise ImportError(f"it needs {self._name}, which is not installed")


def _dataset(metadata: Metadata) -> SimpleNamespace:
    """Return the sizes that scripts read of their data when they make a model."""
    rows = torch.zeros(9, WIDTH)
    kinds = {"node_types": metadata[0], "metadata": lambda: metadata, "num_nodes": 9, "num_relations": 2}
    sizes = {"num_features": WIDTH, "num_node_features": WIDTH, "num_classes": CLASSES, "num_edge_features": EDGE_WIDTH}
    edges = {"edge_index": torch.tensor([[0, 1], [1, 2]]), "edge_attr": torch.zeros(2, EDGE_WIDTH)}
    return SimpleNamespace(x=rows, y=torch.zeros(9, CLASSES), **kinds, **sizes, **edges)


def _names(metadata: Metadata) -> dict[str, Any]:
    given = {
        "torch": torch,
        "nn": nn,
        "pyg": pyg,
        "pyg_utils": utils,
        "Data": Data,
        "Names": SimpleNamespace,
        "METADATA": metadata,
    }
    data = dict.fromkeys(("dataset", "train_dataset", "data", "d"), _dataset(metadata))
    return given | data | {"device": "cpu", "args": SimpleNamespace(use_multi_aggregators=False, use_gdc=False)}


class Outcome(NamedTuple):
    """Result of a model: why it is not made here, why it is refused, or how far it is off PyG on the stream.

    option: whether it needed an option of export_model. rows: how many were compared. why: of its entry, what stands
    against it. edited: the result after the edit that its entry has, where it was refused.
    """

    script: str
    model: str
    unmade: str = ""
    refused: str = ""
    off: float = 0.0
    rows: int = 0
    option: bool = False
    why: str = ""
    edited: Outcome | None = None

    @property
    def taken(self) -> bool:
        """Return whether it was exported."""
        return not self.unmade and not self.refused

    @property
    def equal(self) -> bool:
        """Return whether it gives what PyG gives."""
        return self.taken and self.off <= ALLOWED


def outcomes(examples: Path, only: str = "", table: Path = TABLE) -> Iterator[Outcome]:
    """Yield the result of each model of the table whose script or call has these letters."""
    with table.open("rb") as file:
        entries = tomllib.load(file)["model"]
    for entry in entries:
        if only in f"{entry['script']}:{entry['make']}":
            found = _outcome(examples, entry)._replace(why=entry.get("why", ""))
            if found.refused and "edit" in entry:
                of = [key for key in entry if key.startswith("edited_")]
                after = {key.removeprefix("edited_"): entry[key] for key in of}
                found = found._replace(edited=_outcome(examples, {**entry, "edits": entry["edit"], **after}))
            yield found


def _outcome(examples: Path, entry: dict[str, Any]) -> Outcome:
    found = Outcome(entry["script"], entry["make"].split("(")[0])
    torch.manual_seed(5)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        try:
            module = module_of(examples / entry["script"], entry)
        except Exception as error:
            return found._replace(unmade=f"{type(error).__name__}: {error}")
        options, metadata = entry.get("options", {}), _metadata(entry)
        features = dict.fromkeys(metadata[0], WIDTH) if "x_dict" in entry.get("run", CALL) else WIDTH
        try:
            model = export_model(module, folder, **{"features": features, **options})
        except ExportError as error:
            return found._replace(refused=str(error))
        if isinstance(model, Model):
            off, rows = compared(module, model, entry.get("run", CALL))
        else:
            off, rows = compared_by_kind(
                module, model, entry.get("run", CALL), metadata, dict.fromkeys(metadata[0], WIDTH)
            )
    return found._replace(off=off, rows=rows, option=bool(options))


def _metadata(entry: dict[str, Any]) -> Metadata:
    """Return the kinds and relations of a script's data."""
    kinds, relations = entry.get("options", {}).get("metadata") or entry.get("metadata") or METADATA
    return kinds, [(source, name, target) for source, name, target in relations]


def module_of(script: Path, entry: dict[str, Any]) -> nn.Module:
    """Make the model."""
    home = ModuleType(f"example_{entry['script'].removesuffix('.py').replace('/', '_')}")
    names, home.__file__ = home.__dict__, str(script)  # where PyG looks for the source of a conv
    sys.modules[home.__name__] = home  # where Python looks for the annotations of a class
    for one in (*(script.parent / name for name in entry.get("beside", ())), script):
        _define(one, names, entry)
    module: nn.Module = eval(entry["make"], names)
    names.setdefault("model", module)
    _size(module, entry)
    return trained(module)


def trained(module: nn.Module) -> nn.Module:
    """Return a module in eval mode, with weights and statistics that are not those of a new one."""
    with torch.no_grad():
        for parameter in module.parameters():
            if not is_lazy(parameter):
                parameter += 0.1 * torch.randn_like(parameter)
        for part in module.modules():
            if getattr(part, "running_mean", None) is not None:
                part.running_mean.normal_()
                part.running_var.uniform_(0.5, 2.0)
    return module.eval()


def _size(module: nn.Module, entry: dict[str, Any]) -> None:
    """Call a module once whose weights have no sizes yet; one that cannot be called so stays without."""
    if any(is_lazy(one) for one in module.parameters()):
        x, edges = torch.zeros(2, WIDTH), torch.tensor([[0, 1], [1, 0]])
        kinds, relations = _metadata(entry)
        dicts = {"x_dict": dict.fromkeys(kinds, x), "edge_index_dict": dict.fromkeys(relations, edges)}
        with suppress(Exception), torch.no_grad():
            eval(entry.get("run", CALL), {"module": module.eval(), "x": x, "edge_index": edges, **dicts})


def _define(script: Path, names: dict[str, Any], entry: dict[str, Any]) -> None:
    """Run a script's imports, its definitions, and the numbers that it gives names to."""
    text, late = script.read_text(), list[ast.stmt]()
    for old, new in entry.get("edits", ()):
        text = text.replace(old, new)
    tree = ast.parse(text)
    names |= {name: value for name, value in _names(_metadata(entry)).items() if name not in names}
    for one in tree.body:
        if isinstance(one, ast.Import | ast.ImportFrom):
            _import(one, names)
        elif isinstance(one, ast.ClassDef | ast.FunctionDef) or _is_number(one):
            late.append(one)
    names |= {name: eval(value, names) for name, value in entry.get("names", {}).items()}
    for one in late:
        exec(compile(ast.Module([one], []), str(script), "exec"), names)


def _import(one: ast.Import | ast.ImportFrom, names: dict[str, Any]) -> None:
    if all((alias.asname or alias.name) in names for alias in one.names):  # of a script beside it
        return
    try:
        exec(compile(ast.Module([one], []), "imports", "exec"), names)
    except Exception:  # other libraries, some of which are broken where they are
        for alias in one.names:
            names.setdefault(alias.asname or alias.name.split(".")[0], Missing(alias.name))


def _is_number(one: ast.stmt) -> bool:
    if not isinstance(one, ast.Assign) or not all(isinstance(target, ast.Name) for target in one.targets):
        return False
    try:
        return isinstance(ast.literal_eval(one.value), int | float | dict)
    except ValueError:
        return False


def compared(module: nn.Module, model: Model, call: str, parts: int = PARTS) -> tuple[float, int]:
    """Return the largest difference from PyG after the epochs of a stream, at each value's own scale; how many rows."""
    rng = random.Random(call)
    of, types = model.features, tuple(model.edge_types)
    records = random_records(rng, EVENTS, WIDTH, types=types or ("a", "b"))
    events = to_events(
        records, WIDTH, types, edge_width=of.given_edge_width, columns=of.types, categories=of.categories
    )
    settings = job_settings(model, parts)
    simulation = run(settings, model, events, cuts_of([7, 30, 60], len(events)), 1, NO_FAULTS)
    rows, off, compared = simulation.rows(), 0.0, 0
    in_float64 = module.double()
    for epoch, after in references(events, simulation.log, settings):
        if not after.ids:
            continue
        state = embeddings_after(rows, epoch)
        got = np.stack([state[key] for key in after.ids])
        scale = own_scale.forward(model, after.graph, tolerance=ALLOWED).scale
        want = _run(in_float64, call, after.graph, of.types)
        off = max(off, largest([want], [with_infinities(Scaled(got, scale), want)]))
        compared += len(got)
    return off, compared


def with_infinities(got: Scaled, want: np.ndarray) -> Scaled:
    """Return rows of a job with PyG's values where neither is a number and none is known."""
    none = np.isinf(got.scale) & ~np.isfinite(got.rows) & ~np.isfinite(want)
    return Scaled(np.where(none, want, got.rows), got.scale)


def _run(module: nn.Module, call: str, graph: Graph, types: int) -> np.ndarray:
    """Return what PyG gives for a graph; `types`: how many columns of types its edges have in front of attributes."""
    attr = torch.from_numpy(graph.values.full_attr(types).astype(np.float64))
    edge_type = attr[:, :types].argmax(dim=1) if types else torch.zeros(len(graph.src), dtype=torch.int64)
    edges = torch.from_numpy(np.stack([graph.src, graph.dst]).astype(np.int64))
    values = {
        "x": torch.from_numpy(graph.x.astype(np.float64)),
        "edge_index": edges,
        "edge_weight": torch.from_numpy(graph.values.weight.astype(np.float64)),
        "edge_attr": attr[:, types:],
        "batch": torch.zeros(len(graph.x), dtype=torch.int64),
        "edge_type": edge_type,
    }
    home = sys.modules[type(module).__module__]
    if isinstance(getattr(home, "data", None), Data):  # a forward reads it without being given it
        home.data = Data(**{name: value for name, value in values.items() if name not in ("batch", "edge_type")})  # type: ignore[attr-defined]
    forget(module)
    names = {
        "module": module,
        "nn": nn,
        "Names": SimpleNamespace,
        "graph": SimpleNamespace(**values),
        "Data": Data,
        **values,
    }
    torch.set_default_dtype(torch.float64)  # of tensors that a forward makes
    try:
        with torch.no_grad():
            result: np.ndarray = eval(call, names).numpy()
    finally:
        torch.set_default_dtype(torch.float32)
    return result
