"""A written layer made ready to run: each function on blocks of 64 rows, its widths known."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from freshet.errors import InputError
from freshet.gnn.own.aggregates import MaxOf, MeanOf, Redone, SoftmaxOf, SumOf
from freshet.gnn.own.functions import padded, release
from freshet.gnn.own.layer import WrittenLayer

BLOCK = 64  # rows of a block, by which the bits of a product of rows are those of the row
WIDEST = 1 << 16  # columns of what a function makes
BUILT_IN = (SumOf, MeanOf, MaxOf, SoftmaxOf)
Array = np.ndarray


class WrittenLayerError(InputError, ValueError):
    """A function of a written layer that does not make what it should; the message says which, and what it made."""


class WrittenWidths(NamedTuple):
    """Widths of the rows that a written layer's functions make; `target` and `own` are 0 where it has none.

    That of a message of Softmax is of its scores and values together.
    """

    source: int
    target: int
    own: int
    message: int
    aggregate: int
    out: int


class RunningLayer:
    """A written layer with its weights, whose functions take any number of rows.

    Invariant: the bits of a row depend on what its block has in that row alone, where the functions keep to it.
    """

    def __init__(
        self, layer: type[WrittenLayer], weights: Mapping[str, Array], options: Mapping[str, Any], in_channels: int,
        edge_channels: int, target_channels: int | None = None,
    ) -> None:  # fmt: skip
        """Find the widths, on a block of zeros; rows of targets are as wide as those of sources unless it is given.

        Raises: WrittenLayerError for a function that fails there, or makes no rows.
        """
        self.name, self.in_channels, self.edge_channels = layer.__name__, in_channels, edge_channels
        self.target_channels = in_channels if target_channels is None else target_channels
        views = {name: weight.view() for name, weight in weights.items()}
        for view in views.values():
            view.flags.writeable = False  # functions.linear keeps what it makes of them
        self._names = [", ".join(of) or "none" for of in (weights, options)]
        self.layer = self._call("__init__", lambda: layer(views, **options))
        self.reads, self._update_reads = layer.reads_of("message"), layer.reads_of("update")
        self.aggregate = self._call("aggregate", lambda: self.layer.aggregate)
        if not (isinstance(self.aggregate, Redone) or type(self.aggregate) in BUILT_IN):
            msg = f"{self.name}.aggregate: got {self.aggregate!r}, expected Sum(), Mean(), Max(), Softmax() or a Redone"
            if isinstance(self.aggregate, BUILT_IN):
                msg += "; a class derived from one of the others would be kept as that one is, so derive a Redone"
            raise WrittenLayerError(msg)
        if ("attr" in self.reads) != (edge_channels > 0):
            has = f"edge_channels {edge_channels}" if edge_channels else "no edge_channels"
            msg = f"{self.name}: its message reads {', '.join(self.reads)}, and its entry has {has}"
            raise WrittenLayerError(msg)
        self._message = self._scored if isinstance(self.aggregate, SoftmaxOf) else self.layer.message
        self.widths = self._widths(layer)

    @property
    def is_of_source(self) -> bool:
        """True if messages read their sources alone."""
        return self.reads == ("source",)

    def functions(self) -> dict[str, Callable[..., Array]]:
        """Return the functions that the class and its Redone have themselves, by name, without their blocks.

        That of messages of Softmax makes [values | scores].
        """
        layer, aggregate = self.layer, self.aggregate
        found: dict[str, Callable[..., Any]] = {
            **{"source": layer.source, "target": layer.target, "own": layer.own},
            **{"message": self._message, "update": layer.update},
        }
        found = {name: function for name, function in found.items() if layer.has(name)}
        if isinstance(aggregate, Redone):
            found["fold"] = aggregate.fold
            found |= {"merge": aggregate.merge} if self.merges else {}
            found |= {} if type(aggregate).read is Redone.read else {"read": aggregate.read}
        return {name: partial(self._call, name, function) for name, function in found.items()}

    def function_widths(self) -> dict[str, tuple[int, ...]]:
        """Return the widths of the rows that each function of rows reads, in the order in which it names them."""
        widths = self.widths
        ends = {"source": widths.source, "target": widths.target, "weight": 1, "attr": self.edge_channels}
        updated = {"aggregate": widths.aggregate, "own": widths.own}
        return {
            "source": (self.in_channels,),
            "target": (self.target_channels,),
            "own": (self.target_channels,),
            "message": tuple(ends[name] for name in self.reads),
            "update": tuple(updated[name] for name in self._update_reads),
        }

    def source(self, x: Array) -> Array:
        """Return what messages read of sources. Shapes: (n, in_channels) to (n, widths.source)."""
        return self._in_blocks("source", self.layer.source, [x])

    def target(self, x: Array) -> Array:
        """Return what messages read of targets. Shapes: (n, target_channels) to (n, widths.target)."""
        return self._in_blocks("target", self.layer.target, [x])

    def own(self, x: Array) -> Array:
        """Return what `update` reads of own rows. Shapes: (n, target_channels) to (n, widths.own)."""
        return self._in_blocks("own", self.layer.own, [x])

    def message(self, source: Array, target: Array, weight: Array, attr: Array, out: Array | None = None) -> Array:
        """Return the messages of edges, (n, widths.message), of Softmax [values | scores]; in `out` if it is given."""
        given = {"source": source, "target": target, "weight": weight, "attr": attr}
        return self._in_blocks("message", self._message, [given[name] for name in self.reads], out)

    def update(self, aggregate: Array, own: Array) -> Array:
        """Return the new rows, (n, widths.out)."""
        given = {"aggregate": aggregate, "own": own}
        return self._in_blocks("update", self.layer.update, [given[name] for name in self._update_reads])

    def fold(self, messages: Array) -> Array:
        """Return the state of all messages of one vertex, of a Redone.

        Raises: WrittenLayerError for one that fails, or whose width depends on the messages.
        """
        assert isinstance(self.aggregate, Redone)
        return self._state("fold", self.aggregate.fold, messages)

    @property
    def merges(self) -> bool:
        """True unless it has a Redone without `merge`."""
        return not isinstance(self.aggregate, Redone) or self.aggregate.merge is not None

    def merge(self, one: Array, other: Array) -> Array:
        """Return the state of two states.

        Raises: WrittenLayerError without `merge`, for one that fails, or makes no state.
        """
        assert isinstance(self.aggregate, Redone)
        if self.aggregate.merge is None:
            raise WrittenLayerError(no_merge(f"{self.name}'s own aggregate {type(self.aggregate).__name__}"))
        return self._state("merge", self.aggregate.merge, one, other)

    def read(self, states: Array) -> Array:
        """Return the aggregates of states, (n, widths.aggregate), of a Redone."""
        assert isinstance(self.aggregate, Redone)
        return self._in_blocks("read", self.aggregate.read, [states])

    def _state(self, name: str, function: Callable[..., Any], *given: Array) -> Array:
        """Return the state that a function of a Redone makes."""
        made = np.asarray(self._call(name, function, *map(_unwritable, given)), given[0].dtype)
        width = getattr(self, "state_width", None)  # the first one says it
        if made.ndim != 1 or width not in (None, len(made)):
            shapes = " and ".join(str(one.shape) for one in given)
            msg = f"{type(self.aggregate).__name__}.{name} made shape {made.shape} of {shapes}, expected one row, "
            raise WrittenLayerError(msg + f"({width or 'state'},), whatever messages there are")
        return made if made.flags.writeable else made.copy()

    def _scored(self, *rows: Array) -> Array:
        """Return the messages of Softmax."""
        assert isinstance(self.aggregate, SoftmaxOf)
        made = self.layer.message(*rows)
        if not (isinstance(made, tuple) and len(made) == 2) or made[0].shape[1:] != (self.aggregate.heads,):
            msg = f"{self.name}.message: expected two arrays for Softmax, scores of {self.aggregate.heads} heads, and "
            raise WrittenLayerError(msg + "values")
        return np.concatenate([made[1], made[0]], axis=1)

    def _widths(self, layer: type[WrittenLayer]) -> WrittenWidths:
        """Run each function once."""
        x, y = (np.zeros((BLOCK, width), np.float32) for width in (self.in_channels, self.target_channels))
        none = x[:, :0]
        source = self.source(x)
        target = self.target(y) if layer.has("target") else none
        own = self.own(y) if layer.has("own") else none
        of_edge = np.zeros((BLOCK, 1), np.float32), np.zeros((BLOCK, self.edge_channels), np.float32)
        message = self.message(source, target, *of_edge)
        aggregate = message
        if isinstance(self.aggregate, SoftmaxOf):
            aggregate, heads = message[:, self.aggregate.heads :], self.aggregate.heads
            if not aggregate.shape[1] or aggregate.shape[1] % heads:
                msg = f"{self.name}.message: {aggregate.shape[1]} values for {heads} heads, expected a multiple of it"
                raise WrittenLayerError(msg)
        elif isinstance(self.aggregate, Redone):
            state = self.fold(message[:1])
            aggregate = self.read(np.repeat(state[None], BLOCK, axis=0))
            self.state_width = len(state)
        out = self.update(aggregate, own)
        return WrittenWidths(*(rows.shape[1] for rows in (source, target, own, message, aggregate, out)))

    def _in_blocks(
        self, name: str, function: Callable[..., Any], rows: Sequence[Array], found: Array | None = None
    ) -> Array:
        """Call a function with blocks of 64 rows, the last one padded with zeros."""
        count, width = len(rows[0]), 0 if found is None else found.shape[1]
        # Contiguous, for functions of numpy to take one way whatever; so are the blocks, and nobody writes to them.
        read = [_unwritable(np.ascontiguousarray(of)) for of in rows]
        with np.errstate(all="ignore"):  # infinities and NaN are results
            for first in range(0, max(count, 1), BLOCK):
                last = first + BLOCK
                if last <= count:
                    made = self._of_block(name, function, [of[first:last] for of in read], width)
                else:
                    given = padded([of[first:] for of in read], BLOCK)
                    try:
                        made = self._of_block(name, function, given, width)
                    finally:
                        release(given)
                if found is None:
                    width = made.shape[1]
                    found = np.empty((count, width), read[0].dtype)
                found[first:last] = made[: count - first]
        assert found is not None
        return found

    def _of_block(self, name: str, function: Callable[..., Any], given: Sequence[Array], width: int) -> Array:
        """Return what a function makes of a block, of this width; 0: of any."""
        try:
            made = np.asarray(function(*given))
        except Exception as error:
            raise self._failure(name, given, error) from error
        if made.ndim != 2 or len(made) != BLOCK or not (width or 1) <= made.shape[1] <= (width or WIDEST):
            msg = f"{self.name}.{name}: made shape {made.shape} of {BLOCK} rows, expected ({BLOCK}, {width or 'width'})"
            raise WrittenLayerError(msg)
        return made

    def _call(self, name: str, function: Callable[..., Any], *given: Array) -> Any:
        """Call a function of the user's.

        Raises: WrittenLayerError with its own error's text, and the line.
        """
        try:
            return function(*given)
        except Exception as error:
            raise self._failure(name, given, error) from error

    def _failure(self, name: str, given: Sequence[Array], error: Exception) -> WrittenLayerError:
        """Return what is said of an error in a function of the user's."""
        if isinstance(error, WrittenLayerError):
            return WrittenLayerError(str(error))
        if isinstance(error, KeyError):
            msg = f"{self.name}.{name} reads {error}, which it has not. Its weights: {self._names[0]}. Its options: "
            return WrittenLayerError(msg + self._names[1])
        last = traceback.extract_tb(error.__traceback__)[-1]
        of = f" of {' and '.join(str(one.shape) for one in given)}" if given else ""
        msg = f"{self.name}.{name}{of}: {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
        if "read-only" in str(error):
            msg += "; a function makes new rows and leaves those that it is given as they are: copy() first"
        return WrittenLayerError(msg)


def no_merge(aggregate: str) -> str:
    """Say what a Redone without `merge` needs."""
    return (
        f"{aggregate} has no `merge` for a vertex whose in-edges lie in several parts; write "
        "one, or run with --parts 1, or with --partitioner locality or hash, which split no vertex"
    )


def _unwritable(rows: Array) -> Array:
    """Return a view through which nobody writes: what a function is given may be what a job keeps."""
    view = rows.view()
    view.flags.writeable = False
    return view
