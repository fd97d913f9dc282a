"""The convs of PyG's own tests, each with the options that a test gives it: a part of pyg_coverage.py.

The tests are run, and what they make and call is noted. A conv that a test calls with a pair of rows alone is tried on
a relation between two kinds.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from freshet.gnn.pyg.export import ExportError, export_model
from freshet.gnn.pyg.running import clone_of, copy_of
from scripts.tools.pyg_calls import BETWEEN, IN, PLAIN, RELATED, FlatRows, OfDicts, OfDictsWeighted, OfHyperedges

_EDGES = ("edge_weight", "edge_attr", "edge_type", "pos_edge_index", "neg_edge_index", "pos", "normal")
_MOST = 12


class Noted(NamedTuple):
    """A conv of a test: the line and the call that makes it, and the arguments that it is called with.

    `inside`: calls within other modules. `self` of a call is the conv as it was at the first one.
    """

    place: str
    made: str
    calls: list[dict[str, Any]]
    inside: list[dict[str, Any]]


@contextmanager
def _noting(tests: Path, noted: list[Noted]) -> Iterator[Any]:
    """Note what files below a folder make of PyG's convs and of their own, and how they call them.

    Yields what pytest takes as a plugin.
    """
    inits, own, by_id, alive = dict[Any, Any](), set[Any](), dict[int, Noted](), list[Any]()
    depth, call_of = [0], nn.Module.__call__

    def init_of(kind: type) -> Any:
        def init(self: Any, *args: Any, **options: Any) -> None:
            inits[kind](self, *args, **options)
            caller = sys._getframe(1)
            file = Path(caller.f_code.co_filename)
            if file.parent == tests and type(self) is kind:
                given = [*map(_shown, args), *(f"{name}={_shown(one)}" for name, one in options.items())]
                made = f"{kind.__name__}({', '.join(given)})"
                by_id[id(self)] = Noted(f"{file.name}:{caller.f_lineno}", made, [], [])
                noted.append(by_id[id(self)])
                alive.append(self)  # so that no other has its id

        return init

    def call(self: Any, *args: Any, **options: Any) -> Any:
        depth[0] += 1
        try:
            made = call_of(self, *args, **options)
        finally:
            depth[0] -= 1
        if id(self) in by_id:
            calls = by_id[id(self)].calls if depth[0] == 0 else by_id[id(self)].inside
            given = inspect.signature(type(self).forward).bind(self, *args, **options).arguments
            calls.append(given | {"self": calls[0]["self"] if calls else copy_of(self)})
        return made

    def note(kind: Any) -> None:
        inits[kind] = kind.__init__
        if "__init__" in vars(kind):
            own.add(kind)
        kind.__init__ = init_of(kind)

    class Own:
        def pytest_collection_modifyitems(self, items: list[Any]) -> None:
            for module in {item.module for item in items}:
                for kind in vars(module).values():
                    if (
                        isinstance(kind, type)
                        and issubclass(kind, pyg.MessagePassing)
                        and kind.__module__ == module.__name__
                    ):
                        note(kind)

    try:
        for name in pyg.conv.__all__:
            if name != "MessagePassing":
                note(getattr(pyg.conv, name))
        nn.Module.__call__ = call
        yield Own()
    finally:
        for one, init in inits.items():
            if one in own:
                one.__init__ = init
            else:
                del one.__init__
        nn.Module.__call__ = call_of


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"tensor{tuple(value.shape)}"
    return " ".join(repr(value).split())


def convs_of_tests(checkout: Path) -> Iterator[tuple[str, str, str]]:
    """Yield each line of the tests of a checkout that makes convs and calls them: place, conv, why it is refused.

    Empty if all that it makes are taken, of at most 12 with different options.
    """
    tests, noted = (checkout / "test" / "nn" / "conv").resolve(), list[Noted]()
    options = ["-q", "-n0", "-p", "no:cacheprovider", "--import-mode=importlib", f"--rootdir={tests}"]
    with _noting(tests, noted) as plugin, redirect_stdout(sys.stderr):
        pytest.main([*options, str(tests)], plugins=[plugin])
    by_place = dict[str, dict[str, Noted]]()
    for one in noted:
        if _different(one.calls):
            by_place.setdefault(one.place, {})[one.made] = one
    alone = {*by_place}
    for one in noted:
        if one.place not in alone and _different(one.inside):
            by_place.setdefault(one.place, {})[one.made] = one._replace(calls=one.inside)
    for place, made in by_place.items():
        step = max(1, len(made) // _MOST)
        whys = ((name, _why(one)) for name, one in islice(made.items(), 0, None, step))
        name, why = next(((name, why) for name, why in whys if why), (next(iter(made)), ""))
        yield place, name, why


def _why(noted: Noted) -> str:
    """Return why a conv is refused however it is called; empty if it is taken."""
    found = "it is not called"
    for call in _different(noted.calls):
        try:
            found = _refused(call)
        except Exception as error:  # PyG does not run it so
            found = f"it is not tried here ({type(error).__name__}: {error})"
        if not found:
            return ""
    return found


def _different(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return calls with dense tensors that differ in what they hand over."""
    dense = [call for call in calls if all(one.layout is torch.strided for one in _tensors(call))]
    return list({tuple((name, type(one)) for name, one in call.items()): call for call in reversed(dense)}.values())


def _tensors(given: Any) -> list[torch.Tensor]:
    if isinstance(given, dict | tuple | list):
        return [one for part in (given.values() if isinstance(given, dict) else given) for one in _tensors(part)]
    return [given] if isinstance(given, torch.Tensor) else []


def _refused(call: dict[str, Any]) -> str:
    """Return why a conv is refused that is called so."""
    given = {name: one for name, one in call.items() if name != "self" and one is not None}
    conv, rows = clone_of(call["self"]), next(iter(given.values()), None)
    for name in {"_explain", "_edge_mask", "_loop_mask"} & vars(conv).keys():
        conv.__dict__[name] = None
    dicts = [one for one in _flat(given.values()) if isinstance(one, dict)]
    edges = tuple(name for name in _EDGES if name in given)
    options: dict[str, Any] = {}
    if dicts:
        module, widths = conv, {kind: one.shape[-1] for kind, one in dicts[0].items() if torch.is_tensor(one)}
        relations = next(list(one) for one in dicts if all(isinstance(key, tuple) for key in one))
        if isinstance(conv, pyg.HeteroConv):
            module, added = _of_dicts(conv, given)
            module = module if conv.aggr is not None else FlatRows(module)
            widths = {kind: width + added for kind, width in widths.items()}
        if isinstance(conv, pyg.HGTConv) and {*conv.node_types} <= {*widths}:
            relations = conv.edge_types
        options = {"metadata": (list(dicts[0]), relations), "features": widths}
        options |= {"stats_from": _some_graph(widths, relations)} if isinstance(conv, pyg.HANConv) else {}
    elif isinstance(rows, tuple):
        if any(one is None for one in rows):
            return "it is called without rows of targets"
        module = RELATED[edges](conv)
        types = range(conv.num_relations if "edge_type" in edges else 0)
        options = {
            "metadata": (["a", "b"], [("a", str(j), "b") for j in types] or [BETWEEN]),
            "features": {k: one.shape[-1] + 3 * ("pos" in given) for k, one in zip("ab", rows, strict=True)},
        }
    elif "hyperedge_index" in given and isinstance(rows, torch.Tensor):
        module = OfHyperedges(conv, given.keys() - {"x", "hyperedge_index"})
        widths = {"vertex": rows.shape[-1], "hyperedge": 1 + rows.shape[-1] * ("hyperedge_attr" in given)}
        options = {"metadata": (list(widths), list(IN)), "features": widths}
    else:
        more = {name: one for name, one in given.items() if name not in (*edges, "x", "x_0", "edge_index", "size")}
        if set(given) - {"x"} and any(name.startswith(("hyper", "node")) for name in given):
            return f"it reads {', '.join(given)}"
        module = PLAIN[edges](
            conv,
            more,
            two="x_0" in given,
            shape=rows.shape[1:] if isinstance(conv, pyg.DNAConv) and isinstance(rows, torch.Tensor) else None,
        )
        if isinstance(rows, torch.Tensor) and rows.is_floating_point():
            width = rows.shape[1:].numel() if isinstance(conv, pyg.DNAConv) else rows.shape[-1]
            options = {"features": width + 3 * len({"pos", "normal"} & {*edges})}
    if (attributes := given.get("edge_attr")) is not None and torch.is_tensor(attributes) and not dicts:
        options["edge_features"] = attributes.shape[-1] if attributes.dim() > 1 else 1
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            export_model(module.eval(), folder, **options)
        except ExportError as error:
            return str(error).split(": ", 1)[-1].split(". Nearest")[0]
    return ""


def _some_graph(widths: dict[str, int], relations: list[Any]) -> tuple[dict[str, Any], dict[Any, Any]]:
    x = {kind: torch.randn(20, width) for kind, width in widths.items()}
    return x, {one: torch.randint(20, (2, 50)) for one in relations}


def _of_dicts(conv: Any, given: dict[str, Any]) -> tuple[nn.Module, int]:
    """Return a HeteroConv as it is called, and how many columns of the rows hold its further rows."""
    args, named = given["args_dict"], given.get("kwargs_dict", {})
    first, *further = [one for one in (*args, *named.values()) if not any(isinstance(key, tuple) for key in one)]
    if not further:
        return conv, 0
    places, begin = dict[tuple[int, ...], slice](), 0
    for one in further:
        if _ids(one) not in places and _ids(one) != _ids(first):
            width = max(rows.shape[-1] for rows in one.values())
            places[_ids(one)], begin = slice(begin, begin + width), begin + width
    places[_ids(first)] = slice(begin, None)
    kind = OfDictsWeighted if "edge_weight_dict" in named else OfDicts
    of_names = {name: places[_ids(one)] for name, one in named.items() if _ids(one) in places}
    return kind(conv, [places.get(_ids(one)) for one in args], of_names), begin


def _ids(rows: dict[Any, Any]) -> tuple[int, ...]:
    return tuple(map(id, rows.values()))


def _flat(given: Any) -> Iterator[Any]:
    for one in given:
        yield from _flat(one) if isinstance(one, tuple) else (one,)
