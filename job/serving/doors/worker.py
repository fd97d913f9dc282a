"""A further process that answers from the table which another process of the server keeps: `python -m` this module."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from freshet.job.console import say
from freshet.job.machine.processes import STOPS, die_with_parent
from freshet.job.serving.bounds.budget import Budget, unpack_few_at_once
from freshet.job.serving.doors.answering import Answering, Doors
from freshet.job.serving.doors.tokens import GivenToken
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.history import History
from freshet.job.serving.tables.lookup import Lookup, joined
from freshet.job.serving.tables.served import CurrentTable, JobHere
from freshet.log_lines import begin_inherited

READY = b"ready\n"
_SWITCH_INTERVAL_S = 5e-4


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Configuration of a worker, on its standard input, so that tokens are in no list of processes."""

    doors: Doors
    number: int
    parent: int
    # Folders of tables, one for each kind, and the job that is expected there, as `ServedJob.described` has it: what a
    # table says of its own holds.
    tables: dict[str, dict[str, Any]]
    stale_after_s: float
    budget: int | None = None  # the descriptor of the memory in which processes count what is in flight
    history: int | None = None  # the same of the samples of the last hour

    def dump(self) -> bytes:
        """Return the JSON form."""
        fields = asdict(self)
        fields["doors"]["tokens"] = [one._asdict() for one in self.doors.tokens]
        return orjson.dumps(fields)

    @staticmethod
    def load(raw: bytes) -> WorkerSettings:
        """The inverse."""
        fields = orjson.loads(raw)
        doors = fields.pop("doors")
        doors |= {name: tuple(doors[name]) for name in ("flight_ports", "cors")}
        doors["tokens"] = tuple(GivenToken(**{**one, "tokens": tuple(one["tokens"])}) for one in doors["tokens"])
        return WorkerSettings(Doors(**doors), **fields)


def main() -> int:
    """Answer until SIGTERM, or until the process that keeps the table ends."""
    faulthandler.enable(2)  # the descriptor: what stands in for sys.stderr need have none
    begin_inherited()
    work = WorkerSettings.load(sys.stdin.buffer.read())
    ended, wake = os.pipe()  # not an Event: one signal amid another would wait for its lock for ever
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)  # any thread may get the signal, after a pause (SIGSTOP) say, and the main one reads on
    for number in STOPS:
        signal.signal(number, lambda *_: None)
    die_with_parent(signal.SIGTERM)
    if os.getppid() != work.parent:  # it ended before we could ask for its signal
        return 0
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    doors = work.doors
    tables = [CurrentTable(Path(folder), JobHere.described(job)) for folder, job in work.tables.items()]
    lookup = joined([Lookup(one) for one in tables])
    unpack_few_at_once()
    lookup.as_server(Budget(work.number, len(doors.flight_ports), work.budget))
    health = Health(lookup, work.stale_after_s)
    health.history = History(work.history)
    answering = Answering(doors, work.number, lookup, health)
    answering.start()
    gc.freeze()
    say(f"worker {work.number}: Flight at {doors.flights[work.number]}")
    with suppress(BrokenPipeError):  # the parent has died: the signal comes
        os.write(1, READY)
    os.read(ended, 1)
    answering.stop()
    os._exit(0)  # gRPC would wait for streams that clients keep open


if __name__ == "__main__":
    sys.exit(main())
