"""Functions that kernels call and that are written in LLVM's instructions, and a builder of those for vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from llvmlite import ir
from numba import config
from numba.core.imputils import impl_ret_untracked
from numba.extending import intrinsic

from freshet.kernels.prefetch import pointer_to


def for_kernels(typed: Callable[..., Any], plain: Callable[..., Any]) -> Any:
    """Return the function that kernels call: the plain function itself if they run as Python."""
    if config.DISABLE_JIT:
        return plain

    @wraps(typed)  # numba looks at its arguments
    def built(*kinds: Any) -> Any:
        signature, generate = typed(*kinds)

        def returned(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = generate(context, builder, signature, args)
            none = context.get_dummy_value()
            return impl_ret_untracked(context, builder, signature.return_type, none if value is None else value)

        return signature, returned

    return intrinsic(built)


class Vectors:
    """Builds the instructions of one function on vectors of `LANES` channels, from the numbers of its arguments."""

    LANES: ClassVar[int]
    ALIGN: ClassVar[int]  # bytes

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self.build, self.args, self._context, self._kinds = builder, args, context, signature.args

    def of(self, kind: ir.Type) -> ir.VectorType:
        """A vector of such numbers."""
        return ir.VectorType(kind, self.LANES)

    def element(self, array: int, at: Any, kind: ir.Type) -> Any:
        """Address of an element of an array, as one of another kind."""
        byte = pointer_to(self._context, self.build, self._kinds[array], self.args[array], at)
        return self.build.bitcast(byte, kind.as_pointer())

    def place(self, array: int, at: int, kind: ir.Type) -> Any:
        """Address of the lanes of an array."""
        return self.element(array, self.args[at], self.of(kind))

    def load(self, place: Any) -> Any:
        """The lanes there."""
        return self.build.load(place, align=self.ALIGN)

    def store(self, value: Any, place: Any) -> None:
        """Write lanes there."""
        self.build.store(value, place, align=self.ALIGN)

    def all(self, number: Any) -> Any:
        """A number of the function in every lane."""
        undefined = ir.Constant(self.of(number.type), ir.Undefined)
        one = self.build.insert_element(undefined, number, ir.IntType(32)(0))
        return self.build.shuffle_vector(one, undefined, ir.Constant(self.of(ir.IntType(32)), [0] * self.LANES))
