"""Kills of what takes part in an exchange of models."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from tests.support.runs.judge import Say

SLACK_S = 5.0  # after a kill in which a read may fail


class Killer(threading.Thread):
    """Kills something by SIGKILL again and again, and has it brought back; nothing is killed while `lock` is held."""

    def __init__(
        self, kills: int, every_s: float, seed: int, victims: Callable[[], Mapping[str, Callable[[], None]]], say: Say
    ) -> None:
        """`victims`: what there is to kill now; each call kills, and returns once that is back."""
        super().__init__(name="killer", daemon=True)
        self.killed, self.lock = Counter[str](), threading.Lock()
        self.spans_s: list[tuple[float, float]] = []  # in which errors are to be expected
        self.failed: list[str] = []
        self._kills, self._every_s, self._victims, self._say = kills, every_s, victims, say
        self._rng, self._ended, self._idle = random.Random(seed), threading.Event(), threading.Event()

    def run(self) -> None:
        """Kill until all kills are made, or `end`; what was brought back dies with the thread that has started it."""
        self._kill_all()
        self._idle.set()
        threading.Event().wait()

    def _kill_all(self) -> None:
        while self.killed.total() < self._kills:
            if self._ended.wait(self._rng.uniform(0.2, 1.8) * self._every_s):
                return
            with self.lock:
                acts = self._victims()
                fewest = min((self.killed[name] for name in acts), default=0)
                name = self._rng.choice(sorted(one for one in acts if self.killed[one] == fewest) or [""])
                if not name or self._ended.is_set():
                    continue
                self._say(f"  kill {self.killed.total() + 1} of {self._kills}: {name}")
                self.killed[name] += 1
                began_s = time.time()
                self.spans_s.append((began_s - 1.0, float("inf")))  # until it is back
                try:
                    acts[name]()
                except Exception as error:  # what does not come back is a finding
                    self.failed.append(f"{name}: {type(error).__name__}: {error}")
                self.spans_s[-1] = began_s - 1.0, time.time() + SLACK_S

    def count(self) -> int:
        """Return the number of kills, once what was killed last is back."""
        with self.lock:
            return self.killed.total()

    def end(self) -> None:
        """Kill nothing any more."""
        self._ended.set()
        self._idle.wait()
