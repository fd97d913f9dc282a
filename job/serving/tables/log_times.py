"""Moment of epochs by the files of `epochs/`, for rows whose epoch the table no longer has."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from pathlib import Path

import numpy as np

from freshet.job.folder.run_file import began_ms
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.epoch_files import EpochTimes, times_in
from freshet.state.served.times import NO_TIME

FILES_KEPT = 32  # of at most 50,000 rows each


class LogTimes:
    """Reads the files that are needed, and keeps those of the last ones; safe for threads."""

    def __init__(self, log: LogFolders) -> None:
        self.log, self._lock = log, threading.Lock()
        self._kept: OrderedDict[str, tuple[tuple[int, int], EpochTimes]] = OrderedDict()
        self._first: dict[str, int] = {}  # epoch of a file, by its name

    def of(self, epochs: np.ndarray) -> np.ndarray:
        """Return (arrived_ms, event_ts) of epochs, (n, 2) int64, NO_TIME where there is none.

        Epoch 0 arrives when the job begins. An epoch past the last file has the times of the last one in it, which are
        a few seconds earlier: its own are not visible yet.

        Raises: DamagedFileError.
        """
        asked, back = np.unique(epochs, return_inverse=True)
        out = np.full((len(asked), 2), NO_TIME)
        with self._lock:
            files = sorted(self.log.epochs.glob("[!._]*.parquet"))
            at = len(asked)
            while at and files:
                number = bisect_right(files, int(asked[at - 1]), key=self._first_of) - 1
                if number < 0:
                    break
                found = self._read(files[number])
                begin = int(np.searchsorted(asked, found.epochs[0])) if len(found.epochs) else at - 1
                places = np.searchsorted(found.epochs, asked[begin:at], "right") - 1
                out[begin:at] = found.times[places]
                at = min(begin, at - 1)
        if len(asked) and asked[0] == 0:
            out[0] = began_ms(self.log.out) or NO_TIME, NO_TIME
        return out[back.reshape(-1)]

    def _first_of(self, path: Path) -> int:
        if path.name not in self._first:
            found = self._read(path)
            self._first[path.name] = int(found.epochs[0]) if len(found.epochs) else 0
        return self._first[path.name]

    def _read(self, path: Path) -> EpochTimes:
        stat = path.stat()
        state = stat.st_mtime_ns, stat.st_size
        kept = self._kept.pop(path.name, None)
        if kept is None or kept[0] != state:
            kept = state, times_in(path)
        self._kept[path.name] = kept
        while len(self._kept) > FILES_KEPT:
            self._kept.popitem(last=False)
        return kept[1]
