"""Functions that kernels call and that are written in LLVM's instructions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from numba import config
from numba.core.imputils import impl_ret_untracked
from numba.extending import intrinsic


def for_kernels(typed: Callable[..., Any], plain: Callable[..., Any]) -> Any:
    """What kernels call: the plain function itself where they are no kernels."""
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
