"""The most memory that operations of torch hold at a time, counted by the tensors that they make."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakBytes(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Within it, tensors that operations make are counted as long as they are there; `peak` is the most of it.

    Units: bytes. Tensors that were there before do not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._held = 0
        self._tensors: Counter[int] = Counter()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[Any], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation and count what it has made."""
        given = {_address(one) for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        made = func(*args, **(kwargs or {}))
        for one in tree_leaves(made):
            if isinstance(one, Tensor) and (_address(one) in self._tensors or _address(one) not in given):
                self._count(one)
        self.peak = max(self.peak, self._held)
        return made

    def _count(self, made: Tensor) -> None:
        address, size = _address(made), made.untyped_storage().nbytes()
        if not size:
            return
        self._held += 0 if self._tensors[address] else size
        self._tensors[address] += 1
        weakref.finalize(made, self._forget, address, size)

    def _forget(self, address: int, size: int) -> None:
        self._tensors[address] -= 1
        if not self._tensors[address]:
            del self._tensors[address]
            self._held -= size


def _address(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())
