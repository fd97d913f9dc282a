"""A full pass in chunks on a device (`freshet embed --device`) beside the engine, by width, on one graph.

    .venv/bin/python scripts/bench/gpu_pass.py --vertices 200000 --edges 2000000 --widths 64 128 --device-memory 64MiB

The graph is that of scripts/bench/embed.py. Both ways run one after the other, each in a process of its own, on models
of two layers of one width. `rows_s` are rows of all layers a second: of the engine in its passes, without reading and
sorting the edges; of the device in its own. `wall_s` is that of the whole command. Without a GPU the pass runs on the
processor, with a budget (64MiB by default).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.embed import run_embed, save_convs, save_graph, shown

TIMES = ["conv", "width", "by", "rows_s", "wall_s", "transfer_share", "compute_share"]
COLUMNS = [*TIMES, "bytes_copied", "bytes_kept", "chunks"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--convs", nargs="+", default=["sage_conv", "gcn_conv"], help="as model.json names them")
    parser.add_argument("--skew", type=float, default=2.0, help="in-degrees fall as rank to the power of 1/skew - 1")
    parser.add_argument("--memory", default="2GiB", help="that of the host")
    parser.add_argument("--device-memory", help="of the device (default: most of a GPU's, 64MiB of the processor's)")
    parser.add_argument("--work", type=Path, help="an existing folder on the disk to use (default: a temporary one)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        print(orjson.dumps(measure(given, Path(folder))).decode())


def measure(given: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """Return the figures of all runs; tables go to stderr."""
    from freshet.gnn.torch_modules.chunked.device import why_no_cuda

    reason = why_no_cuda()
    memory = given.device_memory or ("64MiB" if reason else None)
    options = ["--device", "cpu" if reason else "cuda", *(["--device-memory", memory] if memory else [])]
    found = []
    for width in given.widths:
        save_graph(work / "S", given.vertices, given.edges, width, given.skew, None)
        for conv in given.convs:
            save_convs(work / "M", [width, width, width], conv)
            for by, more in (("engine", []), ("device", options)):
                line = run_embed(work / "M", work / "S", work / "out", "--memory", given.memory, *more)
                seconds = sum(line["layers_s"])
                engine = {"rows_s": round(2 * given.vertices / seconds)} if seconds else {}
                named = {"conv": conv, "width": width, "by": line.get("device", by), "wall_s": round(line["wall_s"], 1)}
                found.append({name: value for name, value in (line | engine | named).items() if name in COLUMNS})
                shutil.rmtree(work / "out")
            shutil.rmtree(work / "M")
        shutil.rmtree(work / "S")
    for columns in (TIMES, [*TIMES[:3], *COLUMNS[len(TIMES) :]]):
        shown(found, columns)
    return found


if __name__ == "__main__":
    main()
