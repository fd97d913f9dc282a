"""Kills `freshet embed` at random moments, again and again, and compares what comes out at last with one undisturbed.

A killed attempt is gone on with by the next, which may be killed too; when one comes to its end, its files are compared
byte by byte and a new embedding begins.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from freshet.job.embed import folder
from freshet.job.machine.processes import die_with_parent
from tests.support.runs.jobs import FRESHET

DEADLINE_S = 600


class KillsError(AssertionError):
    """An attempt failed, or left something else than it should."""


def digests(of: Path) -> dict[str, str]:
    """A hash of each file in a folder, by its name there; without what is only needed until an embedding is done."""
    files = sorted(path for path in of.rglob("*") if path.is_file() and folder.WORK not in path.parts)
    return {str(path.relative_to(of)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@dataclass
class Kills:
    """What the kills came to."""

    kills: int = 0
    finished: int = 0
    """Embeddings that came to their end after at least one kill, each with the same files."""
    at_s: list[float] = field(default_factory=list)
    """Seconds from the start of each attempt to its kill."""


class KilledEmbed:
    """An embedding that is killed; `options` are those of `freshet embed`."""

    def __init__(self, model: Path, snapshot: Path, work: Path, *options: str) -> None:
        self._command = [FRESHET, "embed", "--model", model, "--snapshot", snapshot, *options]
        self._snapshot, self._work = snapshot, work

    def run(self, kills: int, random: Random, tell: Callable[[Kills], None] = lambda _: None) -> Kills:
        """Kill it so many times.

        Raises: KillsError when something is not as it was without kills.
        """
        before = digests(self._snapshot)
        told = self._told()
        began = time.monotonic()
        wanted = self._undisturbed(told)
        seconds = time.monotonic() - began
        found, out, killed = Kills(), self._work / "killed", 0
        self._begin(out, told)
        while found.kills < kills or killed:
            patience = random.uniform(0, seconds) if found.kills < kills else DEADLINE_S
            if self._killed_after(out, patience):
                found.kills, killed = found.kills + 1, killed + 1
                found.at_s.append(round(patience, 2))
            if folder.is_finished(out):  # also when it was killed behind that
                _compare(digests(out), wanted)
                found.finished += killed > 0
                killed = 0
                self._begin(out, told)
            tell(found)
        _compare(digests(self._snapshot), before)
        return found

    def _told(self) -> bytes:
        """What an attempt is told, of which the seed of its hashes is drawn: all of them are to have the same."""
        out, told, until = self._work / "first", b"", time.monotonic() + DEADLINE_S
        while not told:  # an attempt may end before this process has a core to look, and then it is gone
            process = self._start(out)
            while process.poll() is None and not told and time.monotonic() < until:
                with suppress(FileNotFoundError):
                    told = (out / folder.WORK / folder.TOLD).read_bytes()
                time.sleep(0.005)
            errors = self._end(process)
            if time.monotonic() > until or process.returncode not in (0, -signal.SIGKILL):
                raise KillsError(errors)
            shutil.rmtree(out)
        return told

    def _undisturbed(self, told: bytes) -> dict[str, str]:
        out = self._work / "whole"
        self._begin(out, told)
        if self._killed_after(out, DEADLINE_S):
            msg = f"not done after {DEADLINE_S} s"
            raise KillsError(msg)
        return digests(out)

    def _begin(self, out: Path, told: bytes) -> None:
        shutil.rmtree(out, ignore_errors=True)
        (out / folder.WORK).mkdir(parents=True)
        (out / folder.WORK / folder.TOLD).write_bytes(told)

    def _start(self, out: Path) -> subprocess.Popen[str]:
        command: list[Any] = [*self._command, "--out", out]
        return subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )

    def _killed_after(self, out: Path, seconds: float) -> bool:
        """Whether an attempt had to be killed, or came to its end before."""
        process = self._start(out)
        try:
            _, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._end(process)
            return True
        if process.returncode:
            raise KillsError(errors)
        return False

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> str:
        process.send_signal(signal.SIGKILL)
        return process.communicate()[1]


def _compare(found: dict[str, str], wanted: dict[str, str]) -> None:
    differing = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    if differing or not wanted:
        msg = f"after kills these files differ: {', '.join(differing)}"
        raise KillsError(msg)
