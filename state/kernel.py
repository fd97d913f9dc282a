"""How the project compiles its kernels.

`kernel` is numba's njit with nogil and a cache on disk (gnn/compiled.py), without reference counting: a kernel works
on arrays that its caller keeps alive and never makes or returns one, so the counts are never needed, but numba would
change them atomically for every array of every View on every inner call. Without them the Partitioner's kernels run two
to four times as fast and compile in two thirds of the time. (The option is numba's `_nrt`, by which it builds its own
runtime-free code; a kernel that would allocate is refused when it is compiled, "NRT required but not enabled".)

Integer literals and globals passed as arguments make numba compile a callee once per value: pass variables.
"""

from __future__ import annotations

from gnn.compiled import compiled

kernel = compiled(nogil=True, _nrt=False)
# For what is over in microseconds: getting the interpreter lock back would take longer than another thread gains by it.
quick = compiled(nogil=False, _nrt=False)
# May make arrays; counted like any others.
allocating = compiled(nogil=True)
