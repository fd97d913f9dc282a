"""A stop that is heard while an epoch takes long: it is said at once, and does not wait for ever.

What is not committed can be dropped at any moment: `--resume` computes it again, to the same bits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from freshet.job.console import say

PATIENCE_S = 10.0  # as long as `docker stop` waits
AT_ONCE_S = 1.0  # most stops are over by then
_POLL_S = 0.1


@contextmanager
def bounded_stop(caught: list[int], drop: Callable[[int], None]) -> Iterator[None]:
    """Have the block end soon after the first signal is in `caught`, or `drop` called with it on another thread.

    `drop` ends the process: a kernel that is at work can't be ended otherwise.
    """
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(caught, drop, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(caught: list[int], drop: Callable[[int], None], done: threading.Event) -> None:
    """Wait for a signal, report it if the end takes longer, and finally drop the remaining work."""
    while not caught:
        if done.wait(_POLL_S):
            return
    if done.wait(AT_ONCE_S):
        return
    say(f"stopping: the epochs under way have {PATIENCE_S:.0f} s to end; another signal ends the process at once")
    if not done.wait(PATIENCE_S):
        drop(caught[0])
