"""Costs of a streaming job's state: made in memory and by `freshet embed`, and the start of jobs from it.

    .venv/bin/python scripts/bench/image.py --vertices 1000000 --edges 12000000 --memory 1GiB --flink

The graph and the model are those of scripts/bench/embed.py. In turn, in a process each, whose private memory is sampled
from outside: the snapshot as one epoch in memory (`--in-memory`), `freshet embed`, and `freshet run --snapshot S2` with
one event or `--events`, edges between random vertices. The figures of the latter are the seconds to the first file of
the change log, and the anonymous memory then and at its peak. (In a Flink job that is only the client's.)
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.embed import FRESHET, Private, save_convs, save_graph

ROOT = Path(__file__).resolve().parents[2]
_IN_MEMORY = """
import sys
from pathlib import Path
from freshet.job.local.malloc import give_freed_memory_back
from freshet.operators.base_image import build_image
from freshet.operators.factory import load_plan
from freshet.operators.settings import Settings
from freshet.operators.snapshot.reader import open_snapshot

give_freed_memory_back()
model, snapshot, out, parts = sys.argv[1:]
settings = Settings(model=model, out=out, image=out + "/base", parts=int(parts))
build_image(settings, open_snapshot(snapshot, load_plan(model).features).blocks())
"""


def measured(command: list[object]) -> dict[str, Any]:
    """A process's seconds, the most private memory that it had, and the JSON line at its end."""
    began = time.perf_counter()
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    private = Private(process.pid)
    answer, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {process.returncode}: {errors.decode()[-2000:]}")
    line = orjson.loads(answer.splitlines()[-1]) if answer.strip() else {}
    return {
        "wall_s": round(time.perf_counter() - began, 1),
        "anonymous_MiB": private.anonymous >> 20,
        "uss_MiB": private.uss >> 20,
        "line": line,
    }


class Watched:
    """A job that runs in the background until its first epoch is in the change log."""

    def __init__(self, command: list[object], out: Path) -> None:
        self.began, self.out = time.perf_counter(), out
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        self.private = Private(self.process.pid)

    def first_epoch(self, is_there: Callable[[], bool]) -> float:
        """Seconds from the start until the first epoch was there."""
        while not is_there():
            if self.process.poll() is not None and not is_there():
                raise SystemExit(f"the job ended: {self.process.stderr.read().decode()[-2000:]}")  # type: ignore[union-attr]
            time.sleep(0.05)
        return time.perf_counter() - self.began


def started(model: Path, snapshot: Path, out: Path, events: Path, runtime: str, parts: int) -> dict[str, Any]:
    """Seconds from the start of `freshet run` to the file of its first epoch, and to its end."""
    command = [FRESHET, "run", "--model", model, "--snapshot", snapshot, "--events", events, "--out", out]
    command += ["--runtime", runtime, "--parts", parts]
    job = Watched(command, out)
    seconds = job.first_epoch(lambda: len(list((out / "embeddings").glob("part-*-00000001.parquet"))) > 0)
    then = job.private.anonymous
    job.process.communicate()
    return {
        "first_epoch_s": round(seconds, 1),
        "first_anonymous_MiB": then >> 20,
        "wall_s": round(time.perf_counter() - job.began, 1),
        "anonymous_MiB": job.private.anonymous >> 20,
        "uss_MiB": job.private.uss >> 20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=250_000)
    parser.add_argument("--edges", type=int, default=3_000_000)
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 128, 40])
    parser.add_argument("--skew", type=float, default=2.0, help="as of scripts/bench/embed.py")
    parser.add_argument("--memory", nargs="+", default=["512MiB"])
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--in-memory", action="store_true", help="also the pass of one epoch in memory")
    parser.add_argument("--start", action="store_true", help="also the start of a job in the local runtime")
    parser.add_argument("--flink", action="store_true", help="also the start of a job on Flink")
    parser.add_argument("--events", type=int, default=1, help="that the jobs get")
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        runs = measure(given, Path(folder))
    table = Table(
        "what", "memory", "first_epoch_s", "first_anonymous_MiB", "wall_s", "anonymous_MiB", "uss_MiB", box=SIMPLE
    )
    for run in runs:
        table.add_row(*(str(run.get(str(column.header), "")) for column in table.columns))
    Console(stderr=True).print(table)
    print(orjson.dumps({"vertices": given.vertices, "edges": given.edges, "parts": given.parts, "runs": runs}).decode())


def measure(given: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """All that was asked for, in turn."""
    snapshot, model, events = work / "S", work / "M", work / "events.jsonl"
    save_graph(snapshot, given.vertices, given.edges, given.widths[0], given.skew, None)
    save_convs(model, given.widths)
    ends = np.random.default_rng(3).integers(0, given.vertices, (given.events, 2)).tolist()
    events.write_text("".join(f'{{"op":"add_edge","src":{a},"dst":{b},"weight":0.5}}\n' for a, b in ends))
    runs: list[dict[str, Any]] = []

    def add(what: str, found: dict[str, Any], **told: Any) -> None:
        runs.append({"what": what, **told, **found})
        print(orjson.dumps(runs[-1]).decode(), file=sys.stderr, flush=True)

    for number in range(given.rounds):
        if given.in_memory:
            out = work / f"memory-{number}"
            out.mkdir()
            add("in memory", measured([sys.executable, "-c", _IN_MEMORY, model, snapshot, out, given.parts]))
        for memory in given.memory:
            embed = [FRESHET, "embed", "--model", model, "--snapshot", snapshot, "--parts", given.parts]
            embed += ["--memory", memory, "--out"]
            made = work / f"made-{number}-{memory}"
            add("embed", measured([*embed, made]), memory=memory)
            for runtime in ["local"] * given.start + ["flink"] * given.flink:
                out = work / f"{runtime}-{number}-{memory}"
                add(f"run, {runtime}", started(model, made, out, events, runtime, given.parts), memory=memory)
    return runs


if __name__ == "__main__":
    main()
