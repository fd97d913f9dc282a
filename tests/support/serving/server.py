"""A `freshet serve` in a process of its own, what clients get from it, and the change log that judges it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from freshet.job.serving.clients.client import EmbeddingClient
from freshet.job.serving.protocol.errors import NotReadyError, NotYetError
from freshet.job.serving.tables import place
from freshet.job.serving.tables.place import read_server
from freshet.state.served.layout import SHM
from tests.support.runs.jobs import ROOT, Log, read_log

START_S = 300.0  # on a machine that does nothing else, two


@dataclass
class Server:
    """Of the job in `out`; `end` leaves nothing behind."""

    out: Path
    process: subprocess.Popen[bytes] | None = None
    freshet: tuple[str, ...] = (sys.executable, "-m", "freshet.job.cli")
    cwd: Path = ROOT
    of: tuple[str, ...] = ()  # what it serves; empty: the tables of the job
    kind: str = ""  # that has a folder of its own

    @property
    def tables(self) -> Path:
        return self.out / "tables" / self.kind

    def start(self, *options: str) -> dict[str, Any]:
        """Start it and wait until it answers; what it tells of itself."""
        self.launch(*options)
        return self.until_ready()

    def launch(self, *options: str) -> None:
        """Start it."""
        command = [*self.freshet, "serve", *(self.of or ("--tables", str(self.tables))), "--port", "0"]
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with (self.out.parent / "serve.log").open("ab") as log:
            # Without a function before exec: this process may run gRPC's threads, which do not survive a plain fork.
            self.process = subprocess.Popen(
                [*command, "--http-port", "0", *options], cwd=self.cwd, stdout=log, stderr=log, start_new_session=True
            )

    def until_ready(self) -> dict[str, Any]:
        """Wait until it answers; what it tells of itself."""
        assert self.process is not None
        deadline = time.monotonic() + START_S
        while (told := read_server(self.tables)).get("pid") != self.process.pid:
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)
        return told

    def log(self) -> str:
        return (self.out.parent / "serve.log").read_text()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it in good order; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(300)
        if code:
            print(self.log())
        return code

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        for path in SHM.glob(f"freshet-*-{place.mark_of(self.tables)}-*.table"):  # others' come and go meanwhile
            path.unlink(missing_ok=True)

    def knows(self, folder: Path) -> bool:
        """Whether it was told of a folder, or has anything open or mapped there."""
        assert self.process is not None
        own = Path(f"/proc/{self.process.pid}")
        told = [(own / "cmdline").read_text(), (own / "environ").read_text(), (own / "maps").read_text()]
        for one in (own / "fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile: it answers
                told.append(os.readlink(one))
        return any(str(folder) in one for one in told)


@dataclass
class Sampler:
    """Asks again and again on a thread of its own, and keeps what it gets: (epoch, ids, epochs, rows) of some ids."""

    address: str
    ids: np.ndarray
    every_s: float = 0.04
    answers: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)
    failures: int = 0
    broken: BaseException | None = None

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        client = EmbeddingClient(self.address, timeout=0.5)
        try:
            while not self._stop.wait(self.every_s):
                try:
                    found = client.rows(self.ids)
                except (NotReadyError, NotYetError):
                    self.failures += 1
                    continue
                self.answers.append((found.epoch, *found))
        except BaseException as error:
            self.broken = error
        finally:
            client.close()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    def end(self) -> None:
        self.stop()
        self._thread.join(300)
        assert not self._thread.is_alive()
        if self.broken is not None:
            raise self.broken


class Judge:
    """What the change log says of any epoch."""

    def __init__(self, out: Path) -> None:
        self.log: Log = read_log(out)

    def at(self, epoch: int, ids: np.ndarray) -> dict[int, tuple[int, bytes]]:
        """The rows of those ids that live: own epoch and bits."""
        log, wanted = self.log, set(ids.tolist())
        found: dict[int, tuple[int, bytes]] = {}
        for k in range(int(np.searchsorted(log.epoch, epoch, side="right"))):
            id_ = int(log.id[k])
            if id_ in wanted:
                if log.deleted[k]:
                    found.pop(id_, None)
                else:
                    found[id_] = int(log.epoch[k]), log.vector[k].tobytes()
        return found

    def approve(self, sampler: Sampler, most: int = 60) -> set[int]:
        """Hold answers against the log, bit by bit; epochs never go back. The epochs of all answers."""
        epochs = [answer[0] for answer in sampler.answers]
        assert epochs == sorted(epochs)
        step = max(1, len(epochs) // most)
        for epoch, ids, own, rows in sampler.answers[::step] + sampler.answers[-1:]:
            got = {int(i): (int(e), row.tobytes()) for i, e, row in zip(ids, own, rows, strict=True)}
            assert got == self.at(epoch, sampler.ids), epoch
        return set(epochs)
