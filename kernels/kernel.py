"""Decorators that compile the project's kernels.

`kernel` is numba's njit with nogil and a cache on disk (kernels/compiled.py), and further

- without exceptions (`error_model`): raising one takes the interpreter lock, on a thread that must not wait for it. A
  division by zero gives what numpy gives.
- without reference counting (`_nrt`, by which numba builds its own runtime-free code): a kernel works on arrays that
  its caller keeps alive, and never makes or returns one. numba would still count, atomically, for every array of every
  View on every inner call: without that the Partitioner's kernels run two to four times as fast and compile in two
  thirds of the time. A kernel that allocates is refused when it is compiled: "NRT required but not enabled".

Integer literals that stand in calls count as integers: a kernel is compiled once per types, never once per value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from freshet.kernels.compiled import compiled, compiling

kernel = compiled(nogil=True, error_model="numpy", _nrt=False)
# Called by kernels alone: compiled without an entry from Python, which often takes longer than the kernel itself, and
# made a part of each kernel that calls it. LLVM makes a function of its own of one that is long or has several callers,
# and hands it every array of every View by way of the stack: hundreds of words a call, where an edge has a few dozen.
inner = compiled(inner=True, forceinline=True, nogil=True, error_model="numpy", _nrt=False)
# Likewise, but a function of its own: for what is long and rarely called, or whose instructions are looked at by tests
# (state/served).
apart = compiled(inner=True, nogil=True, error_model="numpy", _nrt=False)
# For what is over in microseconds: getting the interpreter lock back would take longer than another thread gains by it.
quick = compiled(nogil=False, error_model="numpy", _nrt=False)
# Multiplies and adds in one instruction, which rounds once, where the processor has it, as BLAS does.
fused = compiled(nogil=True, error_model="numpy", _nrt=False, fastmath={"contract"})
# Called by kernels alone, for long sums that end in a number of half the digits: in whichever order is fastest.
summed = compiled(inner=True, nogil=True, error_model="numpy", _nrt=False, fastmath={"contract", "reassoc"})
# May make arrays; counted like any others.
allocating = compiled(nogil=True, error_model="numpy")
# e^x. Infinity where it is past float64, also where kernels are plain Python, in which math.exp raises then.
exp: Any = math.exp if compiling() else np.exp
