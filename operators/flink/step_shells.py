"""The shells of a batch job: steps that run in processes of their own, and the barriers between waves of steps.

Elements are JSON text. What goes to a step says which one it is and what the wave before has left; what comes from it,
its manifest, says what it has left itself. Rows stay in files.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from pyflink.datastream import ProcessFunction, RuntimeContext

from freshet.operators.flink.worker import Worker

_SAID = 2000  # characters of what a process said last


class StepError(RuntimeError):
    """The process of a step failed."""


def run_step(command: Sequence[str], element: str) -> str:
    """Do a step in a process, which reads the element and prints its manifest as the last line.

    Raises: StepError with the last line that the process said.
    """
    done = subprocess.run(command, input=element, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout.splitlines()[-1]
    said = done.stderr[-_SAID:].strip().splitlines()
    how = f"killed by signal {-done.returncode}" if done.returncode < 0 else f"exit {done.returncode}"
    msg = f"step {json.loads(element)['step']}: {how}{': ' + said[-1] if said else ''}"
    raise StepError(msg)


class StepShell(ProcessFunction):
    """Does the steps whose elements it gets, one after the other; yields their manifests."""

    def __init__(self, name: str, command: list[str]) -> None:
        """Take plain data."""
        self.name, self.command = name, command

    def open(self, runtime_context: RuntimeContext) -> None:
        """Start the thread that waits for processes."""
        self._worker: Worker | None = Worker(self.name)

    def close(self) -> None:
        """End the thread."""
        worker, self._worker = getattr(self, "_worker", None), None
        if worker is not None:
            worker.stop()

    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Iterator[str]:
        """Do a step."""
        assert self._worker is not None
        yield self._worker.call(run_step, self.command, value)


class BarrierShell(ProcessFunction):
    """Waits for the manifests of a whole wave, then sends the next wave's steps on their way."""

    def __init__(self, wave: list[str], following: list[str]) -> None:
        """Take the steps of both; there are none after the last wave."""
        self.wave, self.following = wave, following

    def open(self, runtime_context: RuntimeContext) -> None:
        """Begin without elements; a restarted attempt gets all manifests again."""
        self._came: dict[str, Any] = {}

    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Iterator[str]:
        """Take a manifest."""
        manifest = json.loads(value)
        self._came[manifest["step"]] = manifest
        if len(self._came) == len(self.wave):
            inputs = [self._came[name] for name in self.wave]
            yield from (json.dumps({"step": name, "inputs": inputs}) for name in self.following)


class FirstShell(ProcessFunction):
    """Turns the numbers of the first wave's steps into elements."""

    def __init__(self, wave: list[str]) -> None:
        """Take the steps."""
        self.wave = wave

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[str]:
        """Yield a step that reads nothing of others."""
        yield json.dumps({"step": self.wave[value], "inputs": []})
