"""Base of the layers that users write: functions of rows, a message on blocks of edges, and an aggregate."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from freshet.gnn.own.aggregates import AggregateOfMessages, SumOf

Array = np.ndarray

MESSAGE_READS = ("source", "target", "weight", "attr")
UPDATE_READS = ("aggregate", "own")


class WrittenLayer:
    """Base of a layer of one's own, x_v' = update(aggregate of message(source(x_u), target(x_v)), own(x_v)).

    A class has the functions that it needs; each is called with blocks of 64 rows or edges, and a row of its result
    may depend on that row, or edge, alone. `message` names what it reads: `source` and `target`, what these functions
    make of the ends; `weight`, (n, 1); `attr`, the attributes of the edge. `update` reads `aggregate` and `own`. In
    numpy, with `freshet.linear` for products. A full pass calls them with float64.

    - Without `target` a changed target costs nothing; a message that reads its source alone is made once per vertex,
      and kept by differences.
    - `class Mine(Layer, of=TorchClass)`, or `of="PACKAGE.MODULE:CLASS"`: the module in whose place export puts it.

    Shapes: x (n, in_channels) float32, the result of `update` (n, out_channels).
    """

    of: ClassVar[type | str | None] = None

    def __init_subclass__(cls, *, of: type | str | None = None, **others: Any) -> None:
        """Take the torch class that export compares it with.

        Raises: TypeError for a message or an update that reads something that is not there.
        """
        super().__init_subclass__(**others)
        cls.of = of
        for name, known in (("message", MESSAGE_READS), ("update", UPDATE_READS)):
            if unknown := [one for one in cls.reads_of(name) if one not in known]:
                msg = f"{cls.__name__}.{name} reads {', '.join(unknown)}, expected some of {', '.join(known)}"
                raise TypeError(msg)
        for name, function in (("target", "message"), ("own", "update")):
            if cls.has(name) != (name in cls.reads_of(function)):
                msg = f"{cls.__name__}: `{function}` reads `{name}` where the class has that function, and only there"
                raise TypeError(msg)

    def __init__(self, weights: Mapping[str, Array], **options: Any) -> None:
        """Take the weights by their names in the model, and the layer's options in model.json."""
        self.weights, self.options = dict(weights), options

    @property
    def aggregate(self) -> AggregateOfMessages:
        """The aggregate, by default Sum(): a property that reads the options, or a plain class attribute."""
        return SumOf()

    def source(self, x: Array) -> Array:
        """Return what messages read of a source; by default its row."""
        return x

    def target(self, x: Array) -> Array:
        """Return what messages read of a target; not there by default."""
        raise NotImplementedError

    def own(self, x: Array) -> Array:
        """Return what `update` reads of the vertex's own row; not there by default."""
        raise NotImplementedError

    def message(self, *args: Any, **kwargs: Any) -> Any:
        """Return the messages of edges, of Softmax scores and values; by default what `source` made."""
        return args[0]

    def update(self, *args: Any, **kwargs: Any) -> Array:
        """Return the new rows; by default the aggregates."""
        made: Array = args[0]
        return made

    @classmethod
    def weights_of(cls, module: Any) -> dict[str, Array]:
        """Return the weights of a torch module; by default all of its state dict."""
        return {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}

    @classmethod
    def options_of(cls, module: Any) -> dict[str, Any]:
        """Return the options of a torch module, of kinds that JSON has; by default none."""
        return {}

    @classmethod
    def has(cls, name: str) -> bool:
        """Return whether the class has this function itself."""
        return getattr(cls, name) is not getattr(WrittenLayer, name)

    @classmethod
    def reads_of(cls, name: str) -> tuple[str, ...]:
        """Return the names of what `message` or `update` reads, in its order."""
        if not cls.has(name):
            return (MESSAGE_READS if name == "message" else UPDATE_READS)[:1]
        return tuple(inspect.signature(getattr(cls, name)).parameters)[1:]
