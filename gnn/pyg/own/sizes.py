"""Sizes of the graph that a conv runs on as it is read: what torch says of them is recorded."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.places import place_here
from freshet.gnn.pyg.forward.sizes import WHAT_TO_DO, Guard, RecordedSize, Sizes, Supposed, without
from freshet.gnn.pyg.own.by_vertex import by_vertex
from freshet.gnn.pyg.own.recorder import Recorder, tensors_in
from freshet.gnn.pyg.own.types import one_hot
from freshet.gnn.pyg.own.values import Value, all_of, difference

_MOST_RUNS = 48
_LEAST = 64  # smaller sizes are rather widths
_COUNTS: dict[str, Callable[[Sizes], int]] = {
    "edges and self-loops": lambda sizes: sizes["edges"] + sizes["vertices"],
    "edges": lambda sizes: sizes["edges"],
    "sources": lambda sizes: sizes["sources"],
    "vertices": lambda sizes: sizes["vertices"],
    "pairs": lambda sizes: sizes["pairs"],
}
_SAY_SIZES = {"size", "shape", "numel", "nelement", "__len__", "stride", "nbytes"}
_TAKE_SIZES = {
    *("new_zeros", "new_ones", "new_empty", "new_full", "zeros", "ones", "empty", "full", "view", "reshape", "expand"),
    *("broadcast_to", "unflatten", "repeat", "tile", "narrow", "split", "split_with_sizes"),
    "bincount",
}
_CUTS = ("__getitem__", "narrow", "split", "split_with_sizes", "unflatten", "view", "reshape")
_FILLED = {"full": 1, "new_full": 2}  # the place of what they are filled with
_LEAVE_TORCH = {
    *("tolist", "numpy", "item", "is_nonzero", "__bool__", "__int__", "__float__", "__index__", "__complex__"),
    *("__array__", "__contains__", "__dlpack__", "untyped_storage", "storage", "data_ptr"),
}


class RecordedSizes(TorchFunctionMode):
    """Has torch say recorded sizes of the tensors of a running module, and numbers to none but torch."""

    def __init__(self, recorder: Recorder, supposed: Supposed) -> None:
        """Take what notes the tensors, and what sizes are held to be."""
        super().__init__()
        self.recorder, self.supposed = recorder, supposed
        names = [name for name in _COUNTS if name.split(" ")[0] in supposed.real]
        self._known = {name: _COUNTS[name](supposed.real) for name in names}
        self._handed = dict[int, RecordedSize]()  # sizes that torch was given, as sums of others

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch with plain numbers, and record the sizes that it says."""
        options, name = kwargs or {}, _name_of(func)
        if name in _SAY_SIZES:
            return self._recorded(func(*plain(args), **plain(options)))
        if name in _LEAVE_TORCH:
            self._refuse_leaving(args[0], name)
        if name in ("__getitem__", "__setitem__"):
            self._refuse_cut(args[0], args[1])
        by_itself = one_hot if name == "one_hot" else by_vertex
        if (made := by_itself(self.recorder, func, name, args, options)) is not None:
            return made
        given = list(_sizes_in((args, options)))
        self._handed |= {one.real: one for one in given if one.real > _LEAST}
        result = func(*plain(args), **plain(options)) if given else func(*args, **options)
        if given and name in _CUTS and self.recorder.find(args[0]) is None and _differs(args[0]):
            for one in tensors_in((result,)):  # of a table, as much as there is of the graph
                self.recorder.depends(one, place_here())
        if given and (computed := _computed_with(name, args, options)):
            if any(self.recorder.find(one) is not None for one in tensors_in((args, options))):
                computed[0].refuse()
            for one in tensors_in((args[0] if name.endswith("_") else (), result)):
                self.recorder.depends(one, place_here())
        return result

    def counted(self, name: str) -> RecordedSize:
        """Return a number that the module counts by itself."""
        return RecordedSize(lambda sizes: sizes[name], name, self.supposed)

    def _recorded(self, said: Any) -> Any:
        if isinstance(said, tuple):
            return type(said)(tuple(map(self._recorded, said)))
        for name, known in self._known.items():
            if (said % known == 0 and said) if known else said == 0:
                one = RecordedSize(_COUNTS[name], f"the number of {name}", self.supposed)
                return one if said == known else one * (said // known)
        return self._handed.get(said, said)

    def _refuse_leaving(self, tensor: torch.Tensor, name: str) -> None:
        """Refuse what takes numbers of the graph out of torch, where nothing sees what becomes of them.

        Raises: ExportError
        """
        if self.recorder.find(tensor) is not None or self.recorder.sized(tensor):
            self.supposed.refuse(f"takes numbers of the graph out of torch by {name.strip('_')}")

    def _refuse_cut(self, tensor: torch.Tensor, key: Any) -> None:
        """Refuse a slice by a number along vertices or edges, of which another graph may have more.

        Raises: ExportError
        """
        keys, dim = key if isinstance(key, tuple) else (key,), 0
        for place, one in enumerate(keys):
            if one is Ellipsis:
                dim = tensor.dim() - sum(1 for rest in keys[place + 1 :] if rest is not None)
            elif isinstance(one, slice) and dim < tensor.dim():
                size = self._recorded(tensor.shape[dim])
                if type(size) is RecordedSize and not _is_whole(one, size):
                    self.supposed.refuse(f"takes a slice of {size} ({_shown(one)})")
            if one is not None and one is not Ellipsis:
                dim += one.dim() if isinstance(one, torch.Tensor) and one.dtype == torch.bool else 1


def _differs(constant: torch.Tensor) -> bool:
    """Return whether the numbers of a tensor are not all the same."""
    with _disable_current_modes():
        return constant.numel() > 0 and not bool((constant == constant.flatten()[0]).all())


def _name_of(func: Any) -> str:
    name = str(getattr(func, "__name__", ""))
    return str(func.__self__.__name__) if name == "__get__" else name


def _is_whole(one: slice, size: RecordedSize) -> bool:
    """Return whether a slice takes all there is."""
    if one.start not in (None, 0) or one.step not in (None, 1):
        return False
    if type(one.stop) is not RecordedSize:
        return one.stop is None
    real = size.supposed.real
    same = Guard(operator.eq, one.stop, size, "")
    return same.holds(real) and not any(True for _ in same.others(real))


def _shown(one: slice) -> str:
    return ":".join("" if end is None else str(end) for end in (one.start, one.stop))


def _computed_with(name: str, args: Sequence[Any], options: Mapping[str, Any]) -> list[RecordedSize]:
    """Return the sizes that a function computes with; none where it takes them as sizes."""
    if name in ("__getitem__", "__setitem__"):
        keys = args[1] if isinstance(args[1], tuple) else (args[1],)
        return list(_sizes_in(([one for one in keys if not isinstance(one, slice)], args[2:])))
    if name in _FILLED:
        return list(_sizes_in((args[_FILLED[name] : _FILLED[name] + 1], options.get("fill_value"))))
    return [] if name in _TAKE_SIZES else list(_sizes_in((args, options)))


def _sizes_in(given: Any) -> Iterator[RecordedSize]:
    if type(given) is RecordedSize:
        yield given
    elif isinstance(given, list | tuple):
        for one in given:
            yield from _sizes_in(one)
    elif isinstance(given, dict):
        yield from _sizes_in(list(given.values()))
    elif isinstance(given, slice):
        yield from _sizes_in([given.start, given.stop, given.step])


def plain(given: Any) -> Any:
    """Return arguments with the numbers of this run in the place of recorded sizes."""
    if type(given) is RecordedSize:
        return given.real
    if isinstance(given, torch.Size | list):
        return type(given)([plain(one) for one in given])
    if isinstance(given, tuple):
        made = map(plain, given)
        return type(given)(*made) if hasattr(given, "_fields") else tuple(made)
    if isinstance(given, dict):
        return {name: plain(one) for name, one in given.items()}
    if isinstance(given, slice):
        return slice(plain(given.start), plain(given.stop), plain(given.step))
    return given


@contextmanager
def lengths_recorded() -> Iterator[None]:
    """Have Python's len of a tensor be its recorded size, since Python makes a plain number of what it returns."""
    true_len = builtins.len
    builtins.len = lambda one: one.__len__() if isinstance(one, torch.Tensor) else true_len(one)
    try:
        yield
    finally:
        builtins.len = true_len


@contextmanager
def scripts_refused(supposed: Supposed) -> Iterator[None]:
    """Refuse functions of torch.jit as they are called: in these, sizes are plain numbers."""
    kinds = torch.jit.ScriptFunction, torch._C.ScriptMethod
    before = [(kind, kind.__call__) for kind in kinds]

    def refuse(one: Any, *_: Any, **__: Any) -> NoReturn:
        msg = (
            f"{place_here()}: {one.name} was made by torch.jit, whose code is not looked into: call the function that "
        )
        supposed.refused = supposed.refused or ExportError(msg + "it was made of")
        raise supposed.refused

    for kind in kinds:
        kind.__call__ = refuse
    try:
        yield
    finally:
        for kind, call in before:
            kind.__call__ = call


class Reading(NamedTuple):
    """Result of a conv where its branches see some sizes: a value, or an error; and the branches that it met."""

    supposed: Sizes
    guards: list[Guard]
    value: Value | None
    error: Exception | None = None


def explored(run: Callable[[Sizes], Reading], real: Sizes, alike: Callable[[Sizes], bool]) -> Value:
    """Return what a conv makes of a graph, which is the same at any size.

    `run` runs it with branches that see sizes. Where only a graph without edges turns a branch, `alike` says whether
    both sides give the same there; without vertices there are no rows to give.

    Raises: ExportError naming the line of a branch whose sides differ.
    """
    done, waiting = list[Reading](), [real]
    while waiting:
        sizes = waiting.pop(0)
        like = (one for one in done if without(one.supposed) in ((), without(sizes)))
        if any(all(guard.holds(sizes) == guard.holds(one.supposed) for guard in one.guards) for one in like):
            continue
        if len(done) == _MOST_RUNS:
            raise ExportError(_why_differing(done[0].guards[0], f"and so do {len(waiting)} more"))
        made = run(sizes)
        first = next((one for one in done if without(one.supposed) == without(sizes)), made)
        if made is first and not done and made.error is not None:
            raise made.error
        why = _apart(first, made)
        if not why and made is first and without(sizes) == ("edges",) and not alike(sizes):
            why = "and gives something else where there are no edges"
        if why:
            guard = next(g for one in (first, *done) for g in one.guards if g.holds(one.supposed) != g.holds(sizes))
            raise ExportError(_why_differing(guard, why)) from made.error
        done.append(made)
        waiting += [other for guard in made.guards for other in guard.others(sizes)]
    value, guards = done[0].value, done[0].guards
    assert value is not None  # or its error was raised
    if guards and not any(one.op == "aggregate" for one in all_of(value)):
        raise ExportError(_why_differing(guards[0], "and reads no edges where there are many"))
    return value


def _apart(first: Reading, other: Reading) -> str:
    """Return how two readings differ; empty where they do not."""
    if first.value is None or other.value is None:
        same = type(first.error) is type(other.error) and (first is other or without(other.supposed))
        raised = other.error or first.error
        return "" if same else f"where it raises {type(getattr(raised, '__cause__', None) or raised).__name__}"
    return "" if difference(first.value, other.value) is None else "and gives something else there"


def _why_differing(guard: Guard, why: str) -> str:
    symbol = _SYMBOLS.get(guard.compare.__name__, guard.compare.__name__)
    return (
        f"{guard.place}: it branches on a size of the graph ({guard.left} {symbol} {guard.right}) {why}; {WHAT_TO_DO}"
    )


_SYMBOLS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
