"""Says at the end of a script what it took."""

from __future__ import annotations

import atexit
import os
import sys
import time


def tell_what_it_took() -> None:
    """Have the time of this process and of those that it starts be said on stderr as it ends."""
    atexit.register(_tell, time.perf_counter())


def _tell(began: float) -> None:
    spent = os.times()
    cpu = spent.user + spent.system + spent.children_user + spent.children_system
    print(f"took {time.perf_counter() - began:,.0f} s, {cpu:,.0f} s of the processor", file=sys.stderr)
