"""Shells that bring the keyed state of a stopped job's operators out of a savepoint, and touch nothing in it.

One element per part comes to an operator that has the uid, the key and the state of the one that saved it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyflink.common import Row
from pyflink.datastream import KeyedProcessFunction, ProcessFunction, RuntimeContext
from pyflink.datastream.functions import KeyedProcessFunction as _Keyed

from freshet.operators.dataflow import Place
from freshet.operators.flink.shell import START
from freshet.state.entry_file import write_entries
from freshet.state.flink_backend import FlinkBackend


class KeysShell(ProcessFunction):
    """Turns numbers of parts into elements with their keys."""

    def __init__(self, keys: list[int]) -> None:
        """Take the key of each part."""
        self.keys = keys

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Row]:
        """Yield the part's element."""
        yield Row(self.keys[value], START)


class EntriesShell(KeyedProcessFunction):
    """Writes the entries of each part that an element comes for to the file OPERATOR-PART."""

    def __init__(self, operator: str, keys: list[int], folder: str) -> None:
        """Take plain data; `folder` is there."""
        self.operator, self.keys, self.folder = operator, keys, folder

    def open(self, runtime_context: RuntimeContext) -> None:
        """Declare the state."""
        self._backend = FlinkBackend(runtime_context)

    def process_element(self, value: bytes, ctx: _Keyed.Context) -> Iterator[Row]:
        """Write the entries of the key's part as they are stored: whoever reads the file looks at their checksums."""
        part = self.keys.index(ctx.get_current_key())
        write_entries(Path(self.folder) / str(Place(self.operator, part)), self._backend.items())
        yield from ()

    def on_timer(self, timestamp: int, ctx: _Keyed.OnTimerContext) -> Iterator[Row]:
        """Let the timers of the job that was stopped pass."""
        yield from ()
