"""A thread that writes files of the change log, one after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from freshet.operators.sink.change_log import ChangeLogError
from freshet.operators.sink.epoch_rows import LogFile
from freshet.operators.threads import next_of

IDLE_S = 0.5


class BackgroundWriter:
    """Calls `write` for one file after the other on a thread of its own.

    Invariant: at most `waiting` files wait; an error surfaces at the next call, and no later file is written.
    """

    def __init__(
        self, write: Callable[[LogFile], None], on_idle: Callable[[], None] = lambda: None, waiting: int = 2
    ) -> None:
        """Nothing runs before `start`; `on_idle` is called on the thread about twice a second while it has nothing."""
        self._write, self._on_idle = write, on_idle
        self._queue: queue.Queue[LogFile | None] = queue.Queue(waiting)
        self._done = threading.Condition()
        self._submitted = self._finished = 0
        self._error: BaseException | None = None
        self.visible_epoch = 0  # the last epoch in a file that is visible
        self._thread = threading.Thread(target=self._run, name="freshet-change-log", daemon=True)

    def start(self) -> None:
        """Start the thread; from now on `on_idle` may be called."""
        self._thread.start()

    def _run(self) -> None:
        while (file := next_of(self._queue, IDLE_S, self._idle)) is not None:
            self.write_now(file)
            del file  # its arrays are free while the thread waits for the next one
            with self._done:
                self._finished += 1
                self._done.notify_all()

    def _idle(self) -> None:
        """Call `on_idle`; an error must not end the thread, or whoever hands a file over would wait for ever."""
        if self._error is not None:
            return
        try:
            self._on_idle()
        except BaseException as error:
            self._error = error

    def write_now(self, file: LogFile) -> None:
        """Write a file, if none has failed; for the writer's own thread, on which `on_idle` is called, too."""
        if self._error is not None:
            return
        try:
            self._write(file)
            self.visible_epoch = file.epochs[-1].epoch if file.epochs else self.visible_epoch
        except BaseException as error:
            self._error = error

    def check(self) -> None:
        """See whether a file failed.

        Raises:
            ChangeLogError: it did; the job must be restored, since what was not written is gone from memory.
        """
        if self._error is not None:
            msg = f"the change log could not be written: {type(self._error).__name__}: {self._error}"
            raise ChangeLogError(msg) from self._error

    def submit(self, file: LogFile) -> int:
        """Hand a file over, waiting while too many are under way; returns what `wait` takes."""
        self.check()
        self._queue.put(file)
        self._submitted += 1
        return self._submitted

    def wait(self, ticket: int | None = None) -> None:
        """Wait until that file, or every file, is visible."""
        last = self._submitted if ticket is None else ticket
        with self._done:
            self._done.wait_for(lambda: self._finished >= last)
        self.check()

    def close(self) -> None:
        """Finish what was handed over and end the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self.check()
