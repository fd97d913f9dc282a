"""Table files of a process, and a budget of memory for them: pages that nobody uses go to the disk.

A table file is a shared mapping: what is in memory of it is the kernel's page cache, which is written to the disk and
given up at any time, and read again when it is touched. The process removes the names of its files at once, so nothing
in them outlives it. A job that starts again has its tables from its durable state alone.

The kernel itself gives such pages up when a machine or a container is short of memory. A `Pager` does so when the
process holds more than its budget. It goes round the files like the hand of a clock: pages that were touched since its
last visit stay, and lose the mark of that; the others are written and given up.

Source: second chance (Corbató, A paging experiment with the Multics system, 1968). The mark of a page is that it is
mapped: the kernel's own marks are not for processes without privileges.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from freshet.log_lines import warn
from freshet.state.memory.mapped_file import MappedFile
from freshet.state.memory.page_map import PRESENT, page_entries

PAGED_BYTES = 1 << 20  # smaller arrays stay in memory
IN_MEMORY_SHARE = 0.6  # of the budget: private memory past this share has tables move to files
_PAGES_SHARE = 0.15  # of the budget: for pages in any case, so that a process with too little goes on, if slowly
CHUNK = 4 << 20  # what the hand looks at, at a time
_SLACK_SHARE, _SLACK_MAX = 0.05, 128 << 20  # of the budget: what is kept free
_TICK_S = 0.02, 0.1
_COUNT_SHARE = 0.2  # of the time of the thread, for counting
_HOT_SHARE = 0.5  # of the pages of a chunk: past this it gets its second chance
_TIGHT_S = 30.0
_SYNC = 7  # of sync_file_range(2): wait, write, wait
_CACHESTAT, _PROCESS_MADVISE = 451, 440  # numbers of the system calls, on all processors (Linux 6.5, 5.10)
_RANGES_MAX = 1024  # of a call


class MemoryBudget(NamedTuple):
    """Bytes of memory for tables; `of_process`: what the process holds beside them counts, too."""

    nbytes: int
    of_process: bool = True


class PagedFile(MappedFile):
    """A file without a name whose pages a `Pager` gives up."""

    def __init__(self, folder: Path) -> None:
        """Make a file on the disk of this folder.

        Raises: OSError where that can't be done.
        """
        handle, name = tempfile.mkstemp(dir=folder, prefix="tables-")
        os.close(handle)
        super().__init__(Path(name), named=False)
        self.lock = threading.Lock()  # for its mapping, which moves when the file grows

    def array(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> np.ndarray:
        """The file as an array of this shape, which is no smaller than the one before; new rows are zeros.

        Raises: OSError naming the folder, where its disk is full.
        """
        with self.lock:
            try:
                made = super().array(shape, dtype)
            except OSError as error:  # as of a full disk
                raise OSError(error.errno, error.strerror, str(self.path.parent)) from None
            if self._memory is not None:
                self._memory.madvise(mmap.MADV_RANDOM)  # rows lie at random places: reading around them is in vain
            return made

    @property
    def resident_bytes(self) -> int:
        """Bytes of the file that are in memory, whether this process has them mapped or not."""
        with self.lock:
            if self._memory is None:
                return 0
            return _resident(self._file, _address_of(self._memory), 0, self.nbytes)

    def give_up(self, begin: int) -> int:
        """Take the mark from the pages of a chunk that were used lately, or write the others and give them up.

        Returns how many bytes less are in memory.
        """
        with self.lock:
            length = min(CHUNK, self.nbytes - begin)
            if self._memory is None or length <= 0:
                return 0
            address, given = _address_of(self._memory) + begin, 0
            used = _mapped_pages(address, length)
            if used <= _HOT_SHARE * -(-length // mmap.PAGESIZE):
                given = _resident(self._file, address, begin, length)
                _call("sync_file_range", self._file, begin, length, _SYNC)
                # the kernel keeps pages that are mapped or were written to meanwhile
                os.posix_fadvise(self._file, begin, length, os.POSIX_FADV_DONTNEED)
                given -= _resident(self._file, address, begin, length)
            _call("madvise", address, length, mmap.MADV_DONTNEED)
            return max(given, 0)


class Pager:
    """Keeps the table files of a process within a budget of memory.

    Invariant: contents never depend on it. The memory that is held exceeds the budget by what is touched within a
    fraction of a second, or by what must stay: private memory.
    """

    def __init__(self, folder: Path, budget: MemoryBudget) -> None:
        """`folder`: on whose disk the files lie."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.budget = folder, budget
        self.expected_bytes = 0  # of all tables of the job, where that is known before they are loaded
        self.given_up_bytes = 0
        self._files = weakref.WeakSet[PagedFile]()
        self._registry = threading.Lock()
        self._hand: Iterator[tuple[PagedFile, int]] = iter(())
        self._turn = threading.Lock()
        self._count_at = self._tight_until = 0.0
        # by what writes the pages of a marker: whether there are any left
        self.sweeping = weakref.WeakKeyDictionary[object, bool]()
        self.resident_bytes_lately = self.private_bytes_lately = 0
        self._faults_before = _page_faults()
        self._reporter = ""
        self._slack = min(int(budget.nbytes * _SLACK_SHARE), _SLACK_MAX)
        self.wants_files = False  # whether private memory is short now
        threading.Thread(target=_run, args=(weakref.ref(self),), daemon=True, name="pager").start()

    @property
    def is_tight(self) -> bool:
        """True if pages were given up lately, so that rows may have to be read again."""
        return time.monotonic() < self._tight_until

    def file(self) -> PagedFile:
        """Return a new file for a table."""
        made = PagedFile(self.folder)
        with self._registry:
            self._files.add(made)
        return made

    def expect(self, nbytes: int) -> None:
        """Take note of how much all tables of the job will have, before they are loaded."""
        self.expected_bytes = max(self.expected_bytes, nbytes)

    def is_short(self, more: int = 0) -> bool:
        """Return whether private memory, with `more` bytes of tables, leaves too little of the budget for pages."""
        return max(private_bytes() + more, self.expected_bytes) > IN_MEMORY_SHARE * self.budget.nbytes

    @property
    def file_bytes(self) -> int:
        """Bytes of all table files."""
        return sum(file.nbytes for file in self.files())

    @property
    def resident_bytes(self) -> int:
        """Bytes of the table files that are in memory."""
        return sum(file.resident_bytes for file in self.files())

    @property
    def page_faults(self) -> int:
        """Number of pages that threads of the process had to wait for since this began."""
        return _page_faults() - self._faults_before

    def is_reported_by(self, name: str) -> bool:
        """Return whether the figures of the process are reported under this name: the first one that asks."""
        self._reporter = self._reporter or name
        return self._reporter == name

    @property
    def sweeps(self) -> bool:
        """True if pages of the last marker are still to be written: all of them at once at another one."""
        return any(list(self.sweeping.values()))

    def make_room(self) -> float:
        """Give pages up until the budget is kept, where it was not counted just now; returns when to look again."""
        with self._turn:
            now = time.monotonic()
            if now < self._count_at:
                return _TICK_S[0]
            excess = self._excess()
            wait_s = min(max((time.monotonic() - now) / _COUNT_SHARE, _TICK_S[0]), _TICK_S[1])
            if excess > 0:
                self._give_up(excess)
            self._count_at = time.monotonic() + wait_s
            return wait_s

    def _excess(self) -> int:
        """Bytes that are to be given up; negative where there is room."""
        self.resident_bytes_lately, self.private_bytes_lately = self.resident_bytes, private_bytes()
        room = self.budget.nbytes - (self.private_bytes_lately if self.budget.of_process else 0)
        return self.resident_bytes_lately + self._slack - max(room, int(_PAGES_SHARE * self.budget.nbytes))

    def _give_up(self, excess: int) -> None:
        """Visit chunks until that many bytes are given up, or the hand has gone round twice."""
        given = 0
        for _ in range(2 * sum(-(-file.nbytes // CHUNK) for file in self.files())):
            if given >= excess or (place := self._next()) is None:
                break
            given += place[0].give_up(place[1])
        self.given_up_bytes += given
        self._tight_until = time.monotonic() + _TIGHT_S

    def _next(self) -> tuple[PagedFile, int] | None:
        """Return the place of the hand, which moves on."""
        for _ in range(2):
            if (place := next(self._hand, None)) is not None:
                return place
            self._hand = ((file, begin) for file in self.files() for begin in range(0, file.nbytes, CHUNK))
        return None

    def files(self) -> list[PagedFile]:
        """Return the table files of the process."""
        with self._registry:
            return list(self._files)


_pagers = weakref.WeakValueDictionary[tuple[Path, MemoryBudget], Pager]()
_making = threading.Lock()


def shared_pager(folder: Path, budget: MemoryBudget) -> Pager:
    """Return the pager of this process for a folder and a budget, which lives as long as tables have it."""
    with _making:
        pager = _pagers.get((folder, budget))
        if pager is None:
            pager = _pagers[folder, budget] = Pager(folder, budget)
        return pager


def _run(reference: weakref.ref[Pager]) -> None:
    wait_s = _TICK_S[0]
    while (pager := reference()) is not None:
        try:
            wait_s = pager.make_room()
            pager.wants_files = pager.is_short()
        except OSError as error:  # also what the owner of a table comes to that waits for room
            warn(f"{pager.folder}: pages of tables can't be given up: {error}")
            return
        del pager
        time.sleep(wait_s)


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def private_bytes() -> int:
    """Bytes of the process that no file has, and that no kernel can take back without swap."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return (int(fields[1]) - int(fields[2])) * mmap.PAGESIZE


def read_ahead(address: int, begins: np.ndarray, length: int) -> None:
    """Have the kernel begin to read pages that will be used at once, many at a time, and wait for none.

    `begins` are places of `length` bytes in a mapping of a file that begins at `address`. A kernel that can't (before
    Linux 6.13) reads each page when it is touched.
    """
    first, last = begins // mmap.PAGESIZE, (begins + (length - 1)) // mmap.PAGESIZE
    pages = 1
    if length <= mmap.PAGESIZE:
        first = np.concatenate([first, last])
    else:
        pages = -(-length // mmap.PAGESIZE) + 1
    first = np.unique(first)
    ranges = np.empty((first.size, 2), np.uint64)
    ranges[:, 0] = address + first * mmap.PAGESIZE
    ranges[:, 1] = pages * mmap.PAGESIZE
    for at in range(0, len(ranges), _RANGES_MAX):
        some = ranges[at : at + _RANGES_MAX]
        where = ctypes.c_void_p(some.ctypes.data)
        if _library().syscall(_PROCESS_MADVISE, _pidfd_of(os.getpid()), where, len(some), mmap.MADV_WILLNEED, 0) < 0:
            return


@cache
def _pidfd_of(pid: int) -> int:
    return os.pidfd_open(pid)


def _mapped_pages(address: int, length: int) -> int:
    """Return how many pages of a range this process has mapped; none where the kernel does not say."""
    try:
        return int(np.count_nonzero(page_entries(address, length) & PRESENT))
    except OSError:
        return 0


def _address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class _Range(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_uint64), ("length", ctypes.c_uint64))


def _resident(file: int, address: int, begin: int, nbytes: int) -> int:
    """Bytes of a range of a file in the page cache, as the kernel counts them, or page by page where it is older.

    `address` is where the range is mapped.
    """
    counts = (ctypes.c_uint64 * 5)()
    of = _Range(begin, nbytes)
    if not _library().syscall(_CACHESTAT, file, ctypes.byref(of), ctypes.byref(counts), 0):
        return int(counts[0]) * mmap.PAGESIZE
    found = np.empty(-(-nbytes // mmap.PAGESIZE), np.uint8)
    _call("mincore", address, nbytes, found.ctypes.data)
    return int(np.count_nonzero(found & 1)) * mmap.PAGESIZE


def _call(name: str, *args: int) -> None:
    if getattr(_library(), name)(*args):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


@cache
def _library() -> ctypes.CDLL:
    """The C library's calls on mappings, which let other threads run meanwhile."""
    library = ctypes.CDLL(None, use_errno=True)
    address, length = ctypes.c_void_p, ctypes.c_size_t
    library.madvise.argtypes = [address, length, ctypes.c_int]
    library.mincore.argtypes = [address, length, address]
    library.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return library
