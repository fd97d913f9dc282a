"""A lock on a file in a folder, taken before anything in the folder is read.

The kernel gives the lock back when its process ends, however it ends. What stands in the file says who has it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from freshet.files.owner_only import FILE
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.folder.layout import LOCK

OWNER_S = 0.5  # in which whoever has just taken a lock says who it is
_POLL_S = 0.02
LETS_GO_S = 0.1  # whoever is about to end is gone by then
LOOKS_S = 10.0  # and whoever only looks whether somebody works there (`is_held`), however busy the machine is
_OWNER_BYTES = 500


@contextmanager
def taken(folder: Path, command: str, option: str = "--out") -> Iterator[None]:
    """Be the one that works on a folder, which is made where it is not there; one left empty is removed again.

    Raises: UsageError naming the process that works on it, or when it is no folder that can be written to.
    """
    made = not folder.exists()

    def refused(owner: str) -> str:
        stop = f" or stop it (freshet stop {folder})" if "freshet run" in owner else ""
        return f"{option} {folder}: {owner} works on it; wait for its end{stop}, or give another folder"

    try:
        _make(folder)
        lock = _take(folder / LOCK, refused, fcntl.LOCK_EX)
    except (FileExistsError, NotADirectoryError):
        msg = f"{option} {folder}: a file; expected a folder, new or empty"
        raise UsageError(msg) from None
    except PermissionError as error:
        msg = f"{option} {folder}: can't be written to: {error.strerror}"
        raise UsageError(msg) from None
    try:
        with _held(lock, folder / LOCK, command):
            yield
    finally:
        if made:
            with suppress(OSError):  # something is in it
                folder.rmdir()


@contextmanager
def read(folder: Path, command: str) -> Iterator[None]:
    """Have nobody work on a folder while it is read, by any number of processes.

    Raises: UsageError naming the process that works on it.
    """

    def refused(owner: str) -> str:
        return f"{folder}: {owner} works on it; stop it first: freshet stop {folder}"

    try:
        lock = _take(folder / LOCK, refused, fcntl.LOCK_SH)
    except PermissionError:  # of somebody else, whose lock file is not there: whoever works there has one
        yield
        return
    try:
        _sign(lock, command)
        yield
    finally:
        with suppress(OSError):  # others read it, too
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / LOCK).unlink(missing_ok=True)
        os.close(lock)


@contextmanager
def locked(path: Path, command: str, refused: Callable[[str], str]) -> Iterator[None]:
    """Hold a file's lock; `refused` makes the error from the description of the process that has it.

    Raises: UsageError where another process has it.
    """
    with _held(_take(path, refused, fcntl.LOCK_EX), path, command):
        yield


@contextmanager
def _held(lock: int, path: Path, command: str) -> Iterator[None]:
    try:
        _sign(lock, command)
        yield
    finally:
        path.unlink(missing_ok=True)  # first: who opens it before this and gets the lock then looks again
        os.close(lock)


def is_held(folder: Path) -> bool:
    """Return whether a process works on a folder, on this machine or another; False where files have no locks."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
    return False


def is_empty(folder: Path) -> bool:
    """Return whether a folder has nothing but a lock."""
    return all(item.name == LOCK for item in folder.iterdir())


def _make(folder: Path) -> None:
    """Make a folder, unless it is there.

    Raises: FileExistsError for a file, and other OSErrors.
    """
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return
        except FileExistsError:
            if os.path.lexists(folder):
                raise  # else whoever let go has removed it just now


def _take(path: Path, refused: Callable[[str], str], kind: int) -> int:
    began = time.monotonic()
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT, FILE)
        except FileNotFoundError:  # whoever let go has removed the folder
            _make(path.parent)
            continue
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() - began < (LOOKS_S if _is_shared(lock) else LETS_GO_S):
                os.close(lock)
                time.sleep(_POLL_S)
                continue
            msg = refused(owner_of(lock))
            os.close(lock)
            raise UsageError(msg) from None
        except OSError as error:
            say(f"{path}: this file system has no locks ({error.strerror}): let no other process work on that folder")
            return lock
        if _is_at(lock, path):
            return lock
        os.close(lock)  # whoever let go has removed it meanwhile


def _is_shared(lock: int) -> bool:
    """Return whether those who have the lock share it: they look or read, and do not work on the folder."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_at(lock: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _sign(lock: int, command: str) -> None:
    owner = f"process {os.getpid()} on {socket.gethostname()} ({command}, since {time.strftime('%F %T')})"
    with suppress(OSError):  # a full disk: the lock holds all the same
        os.truncate(lock, 0)
        os.pwrite(lock, owner.encode(), 0)


def owner_of(lock: int) -> str:
    """Return who has signed a lock that is taken."""
    deadline = time.monotonic() + OWNER_S
    while not (owner := os.pread(lock, _OWNER_BYTES, 0)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return owner.decode(errors="replace") or "another process"
