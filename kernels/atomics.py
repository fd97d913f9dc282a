"""Atomic loads, stores and fences for words that one process writes and others read in shared memory.

Plain stores may be seen in any order by another core (arm64), and a compiler may move them anywhere. What is written
before `store_release` is seen by whoever has read its value by `load_acquire`. A fence orders plain accesses on either
side of it: `fence_release` what came before it before later stores, `fence_acquire` earlier loads before what follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core.imputils import impl_ret_untracked
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from freshet.kernels.kernel import quick

_WORD_BYTES = 8


def _address(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Return a pointer to element args[1] of the int64 array args[0]."""
    data = make_array(signature.args[0])(context, builder, args[0]).data
    return builder.gep(data, [args[1]], inbounds=True, source_etype=ir.IntType(64))


def _load(typing_context: Any, words: Any, index: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _address(context, builder, signature, args)
        value = builder.load_atomic(pointer, "acquire", _WORD_BYTES, typ=ir.IntType(64))
        return impl_ret_untracked(context, builder, types.int64, value)

    return types.int64(words, types.int64), generate


def _store(typing_context: Any, words: Any, index: Any, value: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _address(context, builder, signature, args), "release", _WORD_BYTES)
        return impl_ret_untracked(context, builder, types.void, context.get_dummy_value())

    return types.void(words, types.int64, types.int64), generate


def _fence(ordering: str) -> Any:

    def typer(typing_context: Any) -> Any:

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.fence(ordering)
            return impl_ret_untracked(context, builder, types.void, context.get_dummy_value())

        return types.void(), generate

    return typer


def _plain_load(words: Any, index: Any) -> Any:
    """Kernels that run as plain Python, for debugging, are alone with their memory."""
    return words[index]


def _plain_store(words: Any, index: Any, value: Any) -> None:
    words[index] = value


def _no_fence() -> None:
    pass


# For kernels. Shapes: words (n,) int64, C-contiguous, 8-byte aligned.
load_acquire: Any = _plain_load if config.DISABLE_JIT else intrinsic(_load)
store_release: Any = _plain_store if config.DISABLE_JIT else intrinsic(_store)
fence_acquire: Any = _no_fence if config.DISABLE_JIT else intrinsic(_fence("acquire"))
fence_release: Any = _no_fence if config.DISABLE_JIT else intrinsic(_fence("release"))


@quick
def read_word(words: np.ndarray, index: int) -> int:
    """`load_acquire` for Python."""
    return load_acquire(words, np.int64(index))


@quick
def publish_word(words: np.ndarray, index: int, value: int) -> None:
    """`store_release` for Python."""
    store_release(words, np.int64(index), np.int64(value))
