"""Ask the processor for a cache line ahead of its use: what random rows cost is mostly waiting for memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.imputils import impl_ret_untracked
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from freshet.kernels.kernel import inner

# Arguments of LLVM's prefetch. Into the second-level cache: a core waits for many more lines there than in the first
# level, and rows of hundreds of bytes are several (an epoch of `make bench` takes an eighth less time in one thread).
_READ, _SECOND_LEVEL, _DATA = 0, 2, 1


def pointer_to(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Return a pointer to flat element `index` of a C-contiguous array; for numba intrinsics, with their arguments."""
    data = make_array(kind)(context, builder, array).data
    item = context.get_abi_sizeof(context.get_value_type(kind.dtype))
    word = ir.IntType(64)
    offset = builder.mul(index, ir.Constant(word, item))
    return builder.inttoptr(builder.add(builder.ptrtoint(data, word), offset), ir.IntType(8).as_pointer())


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], args[0], args[1])
        i8p, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [i8p, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, i32(_READ), i32(_SECOND_LEVEL), i32(_DATA)])
        return impl_ret_untracked(context, builder, types.void, context.get_dummy_value())

    return types.void(array, types.int64), generate


def _nothing(array: Any, index: Any) -> None:
    """Kernels that run as plain Python, for debugging, have nothing to ask for."""


# prefetch(array, index): ask for the line that holds flat element `index` of a C-contiguous array.
prefetch: Any = _nothing if config.DISABLE_JIT else intrinsic(_prefetch)


@inner
def prefetch_row(rows: np.ndarray, row: int) -> None:
    """Prefetch a whole row of a 2-D array of 4-byte values."""
    width = rows.shape[1]
    for column in range(0, width, 16):
        prefetch(rows, np.int64(row) * width + column)
    if width % 16:  # rows begin anywhere in a line then, and may end in one more
        prefetch(rows, np.int64(row) * width + width - 1)


@inner
def prefetch_wide_row(rows: np.ndarray, row: int) -> None:
    """Prefetch a whole row of a 2-D array of 8-byte values."""
    width = rows.shape[1]
    for column in range(0, width, 8):
        prefetch(rows, np.int64(row) * width + column)
    if width % 8:
        prefetch(rows, np.int64(row) * width + width - 1)
