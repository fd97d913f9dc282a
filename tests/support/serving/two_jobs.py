"""Two jobs of the same input, of which one takes the place of the other, and readers that judge what they get."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx

from freshet import EmbeddingClient
from freshet.job.service.generations import GENERATION
from tests.support.serving.hand_job import JOB_ID, WIDTH, HandJob


class Jobs:
    """Two jobs of the same input that go on side by side; a row's value says of which job and epoch it is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.epoch = folder, 0
        self.jobs = {name: HandJob(folder / name, job_id=f"{JOB_ID[:-2]}{name}") for name in ("a1", "b2")}
        self._stop, self.lock, self.silent = threading.Event(), threading.Lock(), set[str]()
        self._thread = threading.Thread(target=self._run)
        self.step()

    def start(self) -> None:
        self._thread.start()

    def step(self) -> None:
        """An epoch of each job."""
        with self.lock:
            self.epoch += 1
            for name, job in self.jobs.items():
                if name not in self.silent:
                    value = value_of(name, self.epoch)
                    job.apply(self.epoch, ({2: value, 3: value}, []), ({4: value}, []))

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            self.step()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for job in self.jobs.values():
            job.close()


def value_of(name: str, epoch: int) -> float:
    return float(epoch if name == "a1" else -epoch)


class Reader(threading.Thread):
    """Reads rows of both parts over and over, and checks each answer."""

    def __init__(self, read: Any, names: list[str]) -> None:
        super().__init__()
        self._read, self._names, self.stop = read, names, threading.Event()
        self.wrong, self.generations, self.answers = list[Any](), list[int](), 0

    def run(self) -> None:
        seen = -1
        while not self.stop.is_set():
            epoch, generation, rows = self._read()
            self.answers += 1
            number, own = divmod(epoch, GENERATION)
            wanted = [[value_of(self._names[number], own)] * WIDTH] * 3
            if rows != wanted or epoch < seen or generation not in (None, number):
                self.wrong.append((epoch, generation, rows, seen))
            seen = max(seen, epoch)
            if number not in self.generations:
                self.generations.append(number)


def by_client(client: EmbeddingClient) -> Any:
    def read() -> tuple[int, int, list[list[float]]]:
        table = client.get([2, 3, 4])
        metadata = table.schema.metadata
        return int(metadata[b"epoch"]), int(metadata[b"generation"]), table["embedding"].to_pylist()

    return read


def by_rows(client: EmbeddingClient) -> Any:
    def read() -> tuple[int, None, list[list[float]]]:
        found = client.rows([2, 3, 4])
        return found.epoch, None, found[2].tolist()

    return read


def by_http(address: str) -> Any:
    client = httpx.Client(base_url=f"http://{address}", timeout=60, trust_env=False)

    def read() -> tuple[int, int, list[list[float]]]:
        found = client.post("/embeddings", json={"ids": [2, 3, 4]}).json()
        return found["as_of"], found["generation"], [one["embedding"] for one in found["found"]]

    return read


def change(how: Any, *given: Any) -> Any:
    found = how(*given, wait_s=60.0, force=True)
    assert found.readable, found
    return found.generation
