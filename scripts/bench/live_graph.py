"""Seconds of `freshet.LiveGraph` on the folder of a job: replay, arrays, going back, save and going on from there.

    python scripts/bench/live_graph.py O

Times are of the processor as well, since a machine may have other work. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.live.live_graph import LiveGraph


def timed(name: str, work: Callable[[], Any], into: dict[str, Any]) -> Any:
    """Do the work; its seconds, on the clock and of the processor, are named in `into`."""
    began, used = time.perf_counter(), time.process_time()
    found = work()
    into[f"{name}_s"] = [round(time.perf_counter() - began, 3), round(time.process_time() - used, 3)]
    return found


def main() -> None:
    """Measure one job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="output folder of a job")
    out = parser.parse_args().out
    line: dict[str, Any] = {}
    with LiveGraph(out) as warm:  # kernels are loaded
        warm.arrays(min(1, warm.newest()))
    with LiveGraph(out) as live, tempfile.TemporaryDirectory() as folder:
        graph = timed("replay_and_arrays", live.arrays, line)
        timed("arrays", live.arrays, line)
        line |= {"epochs": live.epoch, "events": live.events, "vertices": sum(map(len, graph.ids))}
        line["edges"] = sum(len(one.src) for one in graph.graph.edges)
        timed("save", lambda: live.save(folder), line)
        with LiveGraph(out, begin=folder) as other:
            timed("go_on", other.arrays, line)
    replay = [one - other for one, other in zip(line["replay_and_arrays_s"], line["arrays_s"], strict=True)]
    line["events_per_s"] = [round(line["events"] / seconds) for seconds in replay]
    line["max_rss_gib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    print(orjson.dumps(line).decode())


if __name__ == "__main__":
    main()
