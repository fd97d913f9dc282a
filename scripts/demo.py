"""`make demo`: streams changes of the Cora graph through `freshet run`, and checks what comes out; needs no torch.

A GraphSAGE that was trained on 80% of the papers sees the others arrive, citations come and go, papers leave and return
and words change. Its embeddings, the class logits, are kept fresh, and compared with those of the snapshot (stale). All
files stay in --out for a look.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from freshet.extras import MissingExtraError, need
from freshet.operators.snapshot.writer import write_snapshot
from scripts.cora.graph import FOLDER, Cora, load
from scripts.cora.stream import Record, make_stream
from scripts.plots.picture import pyplot

ROOT = Path(__file__).resolve().parents[1]
STATE = "out"  # what the run writes, in the demo's folder
OPS = ("add_vertex", "del_vertex", "set_features", "add_edge", "del_edge")


def main() -> int:
    options = _options()
    began = time.perf_counter()
    folder: Path = options.out
    if folder == ROOT / "build" / "demo":
        shutil.rmtree(folder, ignore_errors=True)
    elif folder.exists() and any(folder.iterdir()):
        print(f"demo: --out {folder}: expected a folder that is new or empty", file=sys.stderr)
        return 2
    graph = load()
    try:
        records = make_stream(graph, options.events, options.seed)
    except ValueError as error:
        print(f"demo: --events: {error}", file=sys.stderr)
        return 2
    prepare(graph, records, folder)

    inputs = ["--model", FOLDER / "model", "--snapshot", folder / "snapshot", "--events", folder / "events.jsonl"]
    head("Streaming")
    sizes = ["--parts", options.parts, "--parallelism", options.parallelism]
    epochs = ["--epoch-events", options.epoch_events, "--epoch-ms", 0]  # epochs by count alone: the same in each run
    runtime = ["--undirected", "--runtime", options.runtime]
    code, _ = freshet("run", *inputs, "--out", folder / STATE, *runtime, *sizes, *epochs)
    if code:
        return code

    head("Accuracy on the test papers")
    history = History(graph, folder / STATE)
    show_accuracy(graph, history)
    if options.picture and _can_draw():
        draw(history, folder / "accuracy.png")
        say(f"How it came about: {shown(folder / 'accuracy.png')}")

    head("Check: the same embeddings as a full pass over the final graph?")
    code, line = freshet("check", *inputs, "--out", folder / STATE, "--oracle", "own")
    say(f"\n{verdict(code, line)} ({time.perf_counter() - began:.0f} s in all; the files are in {shown(folder)})")
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runtime", choices=("flink", "local"), default="flink")
    parser.add_argument("--events", type=int, default=8000, help="at least so many events (8000)")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--epoch-events", type=int, default=100, help="events of an epoch (100)")
    parser.add_argument("--seed", type=int, default=7, help="of the stream (7)")
    parser.add_argument("--no-picture", dest="picture", action="store_false", help="no accuracy.png")
    parser.add_argument(
        "--out", type=lambda text: Path(text).absolute(), default=ROOT / "build" / "demo",
        help="folder for all files (build/demo, which is wiped first)",
    )  # fmt: skip
    return parser.parse_args()


# -- input -------------------------------------------------------------------------------------------------------


def prepare(graph: Cora, records: list[Record], folder: Path) -> None:
    """Write the snapshot and the event file, and say what they are."""
    papers, edges = np.flatnonzero(graph.known), graph.known_edges()
    write_snapshot(
        folder / "snapshot", papers, graph.features()[papers], edges[:, 0], edges[:, 1], label=graph.label[papers]
    )
    with (folder / "events.jsonl").open("wb") as file:
        file.writelines(orjson.dumps(record) + b"\n" for record in records)
    kinds = Counter(record["op"] for record in records)
    head("The Cora citation graph, changing")
    say(f"model     {shown(FOLDER / 'model')}: GraphSAGE 1433-16-7, trained on the snapshot")
    say(f"snapshot  {shown(folder / 'snapshot')}: {len(papers):,} of {len(graph):,} papers, {len(edges):,} citations")
    say(f"events    {shown(folder / 'events.jsonl')}: {len(records):,}")
    say("          " + ", ".join(f"{kinds[op]:,} {op}" for op in OPS))


# -- commands ----------------------------------------------------------------------------------------------------


def freshet(*arguments: object) -> tuple[int, str]:
    """Run the command as a user would; what it prints is shown. Returns the exit code and the last line of stdout."""
    command = [Path(sys.executable).with_name("freshet"), *arguments]
    words = [shown(word) if isinstance(word, Path) else str(word) for word in command]
    say(f"$ {shlex.join(words)}")
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    lines: list[str] = []
    try:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            say(lines[-1])
    except KeyboardInterrupt:
        # The command has had the signal as well, and stops cleanly.
        sys.exit(process.wait() or 130)
    code = process.wait()
    if code:
        print(f"demo: freshet {arguments[0]} ended with {code}", file=sys.stderr)
    return code, lines[-1] if lines else ""


def verdict(code: int, line: str) -> str:
    if code:
        return "The check failed."
    result = orjson.loads(line)
    return f"Exact: {result['vertices']:,} embeddings, largest relative error {result['max_rel_error']:.1e}."


def _can_draw() -> bool:
    try:
        need("plots", "accuracy.png")
    except MissingExtraError as error:
        say(f"No picture: {error}")
        return False
    return True


# -- accuracy ----------------------------------------------------------------------------------------------------


class History:
    """The subject that the embeddings give each test paper, epoch by epoch, from the change log.

    Shapes: events (epochs + 1,) events so far; stale (papers,) subject by the snapshot, -1: not in it; fresh (papers,)
    subject at the end; shares of the papers there are at the time: fresh_right, stale_right (epochs + 1,)
    """

    def __init__(self, graph: Cora, out: Path) -> None:
        test = graph.in_split("test")
        ids, epochs, subjects = read_change_log(out)
        counts = pq.read_table(out / "epochs", columns=["epoch", "events"])
        last = max(epochs.max(), max(counts["epoch"].to_pylist(), default=0))
        self.events = np.zeros(last + 1, np.int64)
        np.add.at(self.events, counts["epoch"].to_numpy(), counts["events"].to_numpy())
        self.events = self.events.cumsum()
        self.fresh, self.stale = np.full(len(graph), -1), np.full(len(graph), -1)
        self.fresh_right, self.stale_right = np.zeros(last + 1), np.zeros(last + 1)
        ends = np.searchsorted(epochs, np.arange(last + 1), side="right")
        for epoch, (begin, end) in enumerate(zip((0, *ends[:-1]), ends, strict=True)):
            self.fresh[ids[begin:end]] = subjects[begin:end]
            if epoch == 0:
                self.stale = self.fresh.copy()
            there = test & (self.fresh >= 0)
            self.fresh_right[epoch] = (self.fresh == graph.label)[there].mean()
            self.stale_right[epoch] = (self.stale == graph.label)[there].mean()


def read_change_log(out: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, epochs and subjects (-1: deleted) of all rows, in the order of the epochs."""
    log = pq.read_table(out / "embeddings")
    logits = pa.concat_arrays([chunk.flatten() for chunk in log["embedding"].chunks]).to_numpy()
    subjects = logits.reshape(log.num_rows, -1).argmax(axis=1)
    subjects[log["deleted"].to_numpy()] = -1
    order = np.argsort(log["epoch"].to_numpy(), kind="stable")
    return log["id"].to_numpy()[order], log["epoch"].to_numpy()[order], subjects[order]


def show_accuracy(graph: Cora, history: History) -> None:
    """Fresh against stale, on all test papers and on those that both can answer."""
    test = graph.in_split("test") & (history.fresh >= 0)
    known = test & (history.stale >= 0)
    say(f"{'':42}fresh    stale")
    for name, asked in ((f"all {test.sum():,}", test), (f"the {known.sum():,} that were in the snapshot", known)):
        shares = [(subjects == graph.label)[asked].mean() for subjects in (history.fresh, history.stale)]
        say(f"{name:42}{shares[0]:5.1%}    {shares[1]:5.1%}")
    say("Stale are the snapshot's embeddings: none for papers that came later, which count as wrong in the first line.")
    say("In the second, the difference is what news of their neighbours and words did to papers known all along.")


def draw(history: History, path: Path) -> None:
    """Accuracy over the stream."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    axes.plot(history.events, 100 * history.fresh_right, label="fresh (Freshet)", color="#0a7d8c")
    axes.plot(history.events, 100 * history.stale_right, label="stale (snapshot)", color="#b5651d", linestyle="--")
    axes.set(xlabel="events", ylabel="right, % of the test papers there are", title="Cora, changing")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


# -- text --------------------------------------------------------------------------------------------------------


def shown(path: Path) -> str:
    """The path as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def head(text: str) -> None:
    say(f"\n== {text}")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
