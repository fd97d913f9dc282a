"""Recording of the operations of torch on rows of vertices and edges, as a module runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.places import place_here
from freshet.gnn.pyg.own.values import Over, Value, constant, take


def _clamp(x: torch.Tensor, low: Any = None, high: Any = None) -> torch.Tensor:
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


def _variance(x: torch.Tensor, dim: Sequence[int], *, correction: float = 1, keepdim: bool = False) -> torch.Tensor:
    """Return the variance over dimensions of each row."""
    off = x - x.mean(dim, keepdim=True)
    count = math.prod(x.shape[d] for d in dim)
    return (off * off).sum(dim, keepdim=keepdim) * (1 / (count - correction))


def _product(x: torch.Tensor, dim: int, keepdim: bool = False) -> torch.Tensor:
    parts = x.unbind(dim)
    made = math.prod(parts[1:], start=parts[0])
    return made.unsqueeze(dim) if keepdim else made


def _log_odds(x: torch.Tensor) -> torch.Tensor:
    return (x / (1 - x)).log()


def _log_of_sum(x: torch.Tensor, dim: Sequence[int], keepdim: bool = False) -> torch.Tensor:
    most = x.amax(dim, keepdim=True)
    return (x - most).exp().sum(dim, keepdim).log() + (most if keepdim else most.squeeze(list(dim)))


def _log_of_sums(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.maximum(one, other) + (1 + (-(one - other).abs()).exp()).log()


_APART: dict[str, Callable[..., torch.Tensor]] = {
    "log1p": lambda x: (x + 1).log(),
    "log2": lambda x: x.log() * (1 / math.log(2)),
    "log10": lambda x: x.log() * (1 / math.log(10)),
    "exp2": lambda x: (x * math.log(2)).exp(),
    "expm1": lambda x: x.exp() - 1,
    "lerp": lambda one, other, weight: one + weight * (other - one),
    "hypot": lambda one, other: (one * one + other * other).sqrt(),
    "logaddexp": _log_of_sums,
    "logsumexp": _log_of_sum,
    "logit": lambda x, eps=None: _log_odds(x if eps is None else x.clamp(eps, 1 - eps)),
    "var.correction": _variance,
    "var.default": lambda x, dims, correction=1, *, output_dtype=None: _variance(x, dims, correction=correction),
    "std.correction": lambda *args, **options: _variance(*args, **options).sqrt(),
    "prod.dim_int": _product,
    "clamp.Tensor": lambda x, min=None, max=None: _clamp(x, min, max),
    "clamp_min.Tensor": lambda x, min: _clamp(x, min),
    "clamp_max.Tensor": lambda x, max: _clamp(x, None, max),
}


def taken_apart(operation: Any) -> Callable[..., Any] | None:
    """Return the function that makes what an operation of torch makes, of simpler operations; None where there is none.

    Those that are not listed are taken apart as torch's own compiler does it.
    """
    name, overload = operation.overloadpacket.__name__, operation._overloadname
    own = name.rstrip("_")  # which does not write over what it reads
    if (found := _APART.get(f"{own}.{overload}") or _APART.get(own)) is not None or name.endswith("_"):
        return found
    if (found := decomposition_table.get(operation)) is not None:
        return found
    return operation.decompose if operation._can_decompose() else None


class NotedValue(NamedTuple):
    """The value of a tensor, and the dimension of it that counts vertices or edges."""

    value: Value
    axis: int

    def then(self, op: str, place: str, **more: Any) -> NotedValue:
        """Return what an operation makes of each of its rows, as wide as these."""
        return NotedValue(Value(op, self.value.width, self.value.over, (self.value,), place, **more), self.axis)


class Operation(NamedTuple):
    """A call of an operation of torch, with its result and the place in the user's code."""

    name: str
    run: Callable[..., Any]
    args: Sequence[Any]
    options: Mapping[str, Any]
    result: Any
    place: str

    def refuse(self, reason: str) -> NoReturn:
        """Say why it cannot be read.

        Raises: ExportError, always, with its place.
        """
        refuse(f"{self.place or 'its forward'}: {reason}")


_KEEPING = {
    *("view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "select", "slice", "unsqueeze"),
    *("squeeze", "split", "unsafe_split", "split_with_sizes", "unbind", "cat", "stack", "detach", "alias", "clone"),
    *("contiguous", "repeat", "new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like"),
    *("empty_like", "fill_", "zero_", "copy_", "_to_copy", "lift_fresh"),
}
"""Operations that make a row of each row, whatever their number."""
_PRODUCTS = ("mm", "addmm", "mv", "addmv")
_LISTED = ("split", "unsafe_split", "split_with_sizes", "unbind")
_COMPUTES = "it computes with a size of the graph (made at {}), which changes as a job goes on. Nearest: leave it out"

Noted = NotedValue | Sequence[NotedValue | None] | None
Note = Callable[["Recorder", Operation], Noted]


class Recorder(TorchDispatchMode):
    """Notes what each tensor of a running module holds. Tensors of no note are constants: weights, buffers, zeros.

    A tensor is known by the memory that it shows, since torch makes new objects of the same one.
    """

    def __init__(self, sizes: Mapping[Over, int], notes: Mapping[str, Note]) -> None:
        """Take the numbers of vertices and edges, and how operations are noted, by their names."""
        super().__init__()
        self.sizes, self._notes = sizes, notes
        self._noted: dict[tuple[Any, ...], NotedValue] = {}
        self._written = dict[int, list[tuple[tuple[Any, ...], str]]]()  # memory that was written over, by its address
        self._held = list[Any]()  # whose memory must not be used again
        self._sized: dict[int, str] = {}  # memory of constants made of a size of the graph, and the places

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and note it where it reads what is noted."""
        options = kwargs or {}
        name = func.overloadpacket.__name__
        place = place_here()
        if torch.Tag.nondeterministic_seeded in func.tags:
            refuse(f"{place}: {name} draws at random at inference, too; put it behind `if self.training`")
        tensors = tensors_in((args, options))
        read = [one for one in tensors if self.find(one, place) is not None]
        sized = next((where for one in tensors if (where := self.sized(one))), "")
        if read and "out" in options:
            refuse(f"{place}: {name} writes its result over another tensor (out=). Nearest: give the result a name")
        given = args
        if read and name.endswith("_"):  # as it was before it is written over
            given = (args[0].clone(), *args[1:])
            self.note_all(given[0], self.find(args[0]))
        result = func(*args, **options)
        if read:
            call = Operation(name, func, given, options, result, place)
            if sized and name != "cat":  # of which self-loops may come
                self.refuse_sized(call, tensors)
            self._note(call)
        elif sized or self._loses_size(func, args, tensors):
            made = tensors_in((result,))
            if sized and not made:
                raise ExportError(f"{place}: " + _COMPUTES.format(sized))
            for one in made:
                self.depends(one, sized or place)
        return result

    def depends(self, tensor: torch.Tensor, place: str) -> None:
        """Note that a constant was made of a size of the graph, so that nothing may be computed with it."""
        self._held.append(tensor)
        self._sized[tensor.untyped_storage().data_ptr()] = place

    def sized(self, tensor: Any) -> str:
        """Return where a constant was made of a size of the graph; empty for another tensor."""
        if not self._sized or not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
            return ""
        return self._sized.get(tensor.untyped_storage().data_ptr(), "")

    def refuse_sized(self, call: Operation, tensors: Sequence[torch.Tensor]) -> None:
        """Refuse an operation on constants that were made of a size of the graph."""
        for one in tensors:
            if place := self.sized(one):
                call.refuse(_COMPUTES.format(place))

    def _loses_size(self, func: Any, args: Sequence[Any], tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether an operation of constants with a row for each vertex or edge may make numbers of how many.

        Raises: ExportError for one that makes as many tensors as there are.
        """
        name = func.overloadpacket.__name__
        if name in _LISTED:
            dim = next((one for one in args[2 - (name == "unbind") :]), 0)
            if self.counts(args[0].shape[dim]) and (name == "unbind" or args[1] != args[0].shape[dim]):
                refuse(
                    f"{place_here()}: {name} makes as many tensors as the graph has vertices or edges, of a constant"
                )
        if torch.Tag.pointwise in func.tags or name in _KEEPING:
            return False
        summed = [tensors_in(args)[-1].shape[0]] if name in _PRODUCTS else [n for one in tensors for n in one.shape]
        return any(map(self.counts, summed))

    def counts(self, size: int) -> bool:
        """Return whether the size of a dimension is one that the graph has, or several times that."""
        return any(size and size % one == 0 for one in self.sizes.values() if one)

    def _note(self, call: Operation) -> None:
        name = call.name.rstrip("_")
        made = self._notes.get(name, Recorder.taken_apart)(self, call)
        if call.name.endswith("_"):
            self._overwrite(call)
        self.note_all(call.result, made)

    def taken_apart(self, call: Operation) -> Noted:
        """Return what an operation holds, by noting the simpler ones that it is made of.

        Raises: ExportError where it is made of none, or where one of these cannot be read.
        """
        parts = taken_apart(call.run)
        if parts is None:
            call.refuse(f"{call.name.rstrip('_')} is no function of rows that Freshet knows")
        with self:
            made = parts(*call.args, **call.options)
        return [self.find(one) for one in made] if isinstance(made, list | tuple) else self.find(made)

    def note_product(self, call: Operation) -> None:
        """Note a product of rows of several dimensions and constants, as one matrix that each row is multiplied by.

        Raises: ExportError where it reads more than one vertex or edge.
        """
        self.note_all(call.result, self._notes["mm"](self, call))

    def _overwrite(self, call: Operation) -> None:
        """Forget all that other tensors showed of memory that is written over."""
        written = _memory(call.result)
        for memory in [one for one in self._noted if one[0] == written[0] and _overlap(one, written)]:
            del self._noted[memory]
        self._written.setdefault(written[0], []).append((written, call.place))

    def note_all(self, result: Any, made: Noted) -> None:
        """Note what a result holds, or each tensor of one."""
        pairs = [(result, made)] if made is None or isinstance(made, NotedValue) else zip(result, made, strict=True)
        for tensor, one in pairs:
            if one is not None:
                self.note(tensor, one)

    def note(self, tensor: torch.Tensor, noted: NotedValue) -> None:
        """Note what a tensor holds."""
        self._held.append(tensor)
        self._noted[_memory(tensor)] = noted

    def find(self, tensor: Any, place: str = "") -> NotedValue | None:
        """Return what a tensor holds; None for a constant.

        Raises: ExportError where its memory was written over through another tensor.
        """
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
            return None
        found = self._noted.get(memory := _memory(tensor))
        for written, where in self._written.get(memory[0], ()) if found is None and tensor.numel() else ():
            if _overlap(memory, written):
                msg = (
                    f"{where}: it writes into a part of a tensor, or into one that is read under another name ({place})"
                )
                raise ExportError(msg + ". Nearest: make a new tensor, as by torch.cat")
        return found

    def operand(self, call: Operation, tensor: Any, shape: Sequence[int], axis: int, over: Over) -> Value:
        """Return a tensor or number as it meets others in an operation whose result has that shape, flattened.

        Raises: ExportError for a constant that differs from row to row, and for rows that do not stay in their place.
        """
        if not isinstance(tensor, torch.Tensor):
            return constant(np.array([tensor], np.float64), call.place)
        noted = self.find(tensor)
        if noted is not None:
            made = self.moved(call, [tensor], lambda one: one.expand(shape), over)
            if made is None or made[0].axis != axis:
                call.refuse("rows of different vertices or edges meet in one operation")
            return made[0].value
        return self.shared(call, tensor.expand(shape), axis)

    def shared(self, call: Operation, tensor: torch.Tensor, axis: int) -> Value:
        """Return the row that a constant has everywhere along a dimension.

        Raises: ExportError where it does not.
        """
        rows = tensor.detach().movedim(axis, 0).reshape(tensor.shape[axis], -1)
        is_same = (rows == rows[:1]) | (rows.isnan() & rows[:1].isnan())
        if rows.dtype == torch.bool or not bool(is_same.all()):
            call.refuse("it reads a tensor that has a row of its own for each vertex or edge")
        return constant(rows[0].double().numpy(), call.place)

    def moved(
        self, call: Operation, tensors: Sequence[torch.Tensor], run: Callable[..., Any], over: Over
    ) -> list[NotedValue] | None:
        """Return what the results of a function hold that moves columns about; None where rows leave their place.

        `run` is run on the numbers of all columns of all rows, and must give those of each row in its place.
        """
        size, values, parts, total = self.sizes[over], list[Value](), list[tuple[torch.Tensor, int]](), 0
        for tensor in tensors:
            noted = self.find(tensor)
            if noted is None:
                found = [d for d, n in enumerate(tensor.shape) if n == size]
                if len(found) != 1:
                    return None
                noted = NotedValue(self.shared(call, tensor, found[0]), found[0])
            if noted.value.over not in (over, "every"):
                return None
            values.append(noted.value)
            parts.append((tensor, noted.axis))
            total += noted.value.width
        ids, first = list[torch.Tensor](), 0
        for (tensor, axis), value in zip(parts, values, strict=True):
            rows = torch.arange(size).view(-1, 1) * total + first + torch.arange(value.width)
            shape = [n for d, n in enumerate(tensor.shape) if d != axis]
            ids.append(rows.view(size, *shape).movedim(0, axis))
            first += value.width
        made = run(*ids)
        listed = made if isinstance(made, list | tuple) else [made]
        which = np.repeat(np.arange(len(values)), [value.width for value in values])
        column = np.concatenate([np.arange(value.width) for value in values])
        found_all = list[NotedValue]()
        for one in listed:
            place = _columns(one, size, total)
            if place is None:
                return None
            axis, columns = place
            found_all.append(NotedValue(take(values, which[columns], column[columns], over, call.place), axis))
        return found_all


def tracked(rec: Recorder, call: Operation) -> tuple[torch.Tensor, NotedValue]:
    """Return the first tensor of a call that has rows of vertices or edges."""
    for one in (*call.args, *call.options.values()):
        listed = one if isinstance(one, list | tuple) else [one]
        for tensor in listed:
            if (noted := rec.find(tensor)) is not None:
                return tensor, noted
    call.refuse(f"{call.name} reads rows in a way that is not known")


def axis_of(rec: Recorder, call: Operation, over: Over) -> int:
    """Return the dimension of the result that counts vertices or edges."""
    for tensor in (*call.args, *call.options.values()):
        if rec.find(tensor) is not None:
            found = rec.moved(call, [tensor], lambda one: one.expand(call.result.shape), over)
            if found is not None:
                return found[0].axis
    call.refuse(f"{call.name} brings rows of different vertices or edges together")


def _columns(ids: torch.Tensor, size: int, total: int) -> tuple[int, np.ndarray] | None:
    """Return the dimension along which rows are in their place, and the columns that each has then."""
    for axis, n in enumerate(ids.shape):
        if n == size:
            rows = ids.movedim(axis, 0).reshape(size, -1) - torch.arange(size).view(-1, 1) * total
            if bool((rows == rows[:1]).all()) and bool(((rows[0] >= 0) & (rows[0] < total)).all()):
                return axis, rows[0].numpy()
    return None


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    address = tensor.untyped_storage().data_ptr()
    return address, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _overlap(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether two tensors show some of the same memory, which begins at the same address."""
    places = list[np.ndarray]()
    for _, first, shape, strides, dtype in (one, other):
        grid = np.indices(shape).reshape(len(shape), -1)
        bytes_of = torch.empty(0, dtype=dtype).element_size()
        places.append((first + np.array(strides, np.int64) @ grid.astype(np.int64)) * bytes_of)
    return bool(np.isin(places[0], places[1]).any())


def tensors_in(given: Any) -> list[torch.Tensor]:
    """Return the tensors among arguments, and in lists and dicts there."""
    if isinstance(given, torch.Tensor):
        return [given]
    if isinstance(given, list | tuple):
        return [tensor for one in given for tensor in tensors_in(one)]
    if isinstance(given, dict):
        return tensors_in(list(given.values()))
    return []
