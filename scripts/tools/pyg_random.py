"""Export random torch modules, and compare each that is taken with the module itself on graphs unlike the export's own.

Prints how many were taken and refused, the reasons by how often they were given, and the source of each that is wrong.

Example: python scripts/tools/pyg_random.py --count 200 --seed 0
"""

from __future__ import annotations

import argparse
import linecache
import re
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.oracles import kinds as kinds_oracle
from freshet.gnn.oracles import own_scale
from freshet.gnn.pyg.check import off
from freshet.gnn.pyg.export import ExportError, export_model
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.schema import WEIGHT, EdgeValues, Graph
from scripts.tools.pyg_examples import trained
from scripts.tools.pyg_random_programs import FEATURES, Source, draw

ALLOWED = 1e-5  # of what was summed to get a value, in float64; weights are rounded to float32
_SECONDS = 60


class Result(NamedTuple):
    """Result of a module, and why: taken, refused, wrong; unmade or unjudged where it does not run itself."""

    what: str
    why: str = ""


def made(source: Source, seed: int) -> nn.Module:
    """Return the module of a source, as if it were trained."""
    name = f"pyg_random_{seed}"
    file = f"<{name}>"
    linecache.cache[file] = (len(source.text), None, source.text.splitlines(keepends=True), file)
    home = sys.modules[name] = ModuleType(name)
    torch.manual_seed(seed)
    exec(compile(source.text, file, "exec"), home.__dict__)
    return trained(home.Drawn())


def graphs(seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield graphs with what is said of them: features (n, width), sources and destinations."""
    rng = np.random.default_rng(10_000 + seed)
    for n, edges, scale in ((1, 0, 1.0), (2, 3, 1.0), (3, 9, 100.0), (7, 49, 1e-3), (50, 300, 1.0), (5000, 9999, 1.0)):
        scale = float(scale if n == 1 else rng.choice((1e-3, 1.0, 30.0, 1e3)))
        pairs = np.unique(rng.integers(n * n, size=edges)) if edges < n * n else np.arange(n * n)
        x = rng.standard_normal((n, FEATURES)).astype(np.float32) * np.float32(scale)
        yield f"{n} vertices, {len(pairs)} edges, features of {scale:g}", x, pairs // n, pairs % n
        if n in (3, 50):
            src, dst = pairs // n, pairs % n
            yield f"{n} vertices, all features 0", np.zeros_like(x), src, dst
            x = rng.integers(-1, 2, (n, FEATURES)).astype(np.float32)
            x[::3] = 0
            keep = dst % 2 == 0
            yield f"{n} vertices, half of them without in-edges, features -1, 0 and 1", x, src[keep], dst[keep]
            yield f"{n} vertices, no edges", x, src[:0], dst[:0]


def apart(module: nn.Module, model: Model | KindsModel, call: str, seed: int) -> Iterator[tuple[str, float]]:
    """Yield how far a model is off its module on graphs, with what is said of these, where the module runs."""
    for about, x, src, dst in graphs(seed):
        try:
            want = _run(module, call, x, np.stack([src, dst]))
        except Exception:  # whatever it is, there is nothing to compare
            continue
        values = EdgeValues(len(src), {WEIGHT: np.ones(len(src), np.float32)}, None)
        if isinstance(model, Model):
            got = own_scale.forward(model, Graph(x, src, dst, values), tolerance=1e-4)
        else:
            both = RelationEdges(src, dst, values), RelationEdges(dst, src, values)
            ends = [both[one.mirrors is not None] for one in model.relations]
            (got,) = kinds_oracle.forward(model, KindsGraph([x], ends), tolerance=1e-4).values()
        if want.shape != got[0].shape:
            yield f"{about}: shape {want.shape}, got {got[0].shape}", float("inf")
        else:
            yield about, off([want], [got])


def _run(module: nn.Module, call: str, x: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return what a module in float64 gives."""
    torch.set_default_dtype(torch.float64)  # of tensors that a forward makes
    try:
        with torch.no_grad():
            given = {"x": torch.from_numpy(x).double(), "edge_index": torch.from_numpy(edges), "Data": Data}
            result: np.ndarray = eval(call, {"module": module, **given}).numpy()
    finally:
        torch.set_default_dtype(torch.float32)
    return result


def judged(source: Source, seed: int) -> Result:
    """Export a module and compare it."""
    rng = np.random.default_rng(seed)
    try:
        module = made(source, seed).double()
        rows = _run(module, source.call, rng.standard_normal((23, FEATURES)), rng.integers(0, 23, (2, 60)))
    except Exception as error:
        return Result("unmade", f"{type(error).__name__}: {error}")
    if len(rows) != 23:
        return Result("unmade", "it gives another number of rows")
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = export_model(made(source, seed), folder, features=FEATURES)
        except ExportError as error:
            return Result("refused", str(error))
        except Exception as error:
            return Result("wrong", f"export_model fails: {type(error).__name__}: {error}")
    found = list(apart(module, model, source.call, seed))
    about, worst = max(found, key=lambda one: one[1] if one[1] == one[1] else np.inf, default=("", 0.0))
    if not worst <= ALLOWED:
        return Result("wrong", f"off by {worst:.3g} on {about}")
    return Result("taken" if found else "unjudged")


def shortened(why: str) -> str:
    """Return a reason without names and numbers, so that those of one kind are counted together."""
    return re.sub(r"\d+", "#", re.sub(r"pyg_random_\d+|<[^>]*>|line \d+|'[^']*'", "", why))[:170]


def _late(*_: Any) -> None:
    msg = f"no end after {_SECONDS} s"
    raise TimeoutError(msg)


def main() -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="number of modules")
    parser.add_argument("--seed", type=int, default=0, help="of the first module; each has the next one")
    parser.add_argument("--hostile", type=float, default=0.12, help="share of functions that no model may have")
    parser.add_argument("--examples", action="store_true", help="print a source with each reason of a refusal")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _late)
    counts, reasons, shown = Counter[str](), Counter[str](), dict[str, str]()
    for seed in range(given.seed, given.seed + given.count):
        source = draw(seed, given.hostile)
        signal.alarm(_SECONDS)
        try:
            found = judged(source, seed)
        except TimeoutError as error:
            found = Result("slow", str(error))
        signal.alarm(0)
        counts[found.what] += 1
        if found.what in ("refused", "unmade"):
            reasons[why := f"{found.what}: {shortened(found.why)}"] += 1
            shown.setdefault(why, f"seed {seed}: {found.why}\n{source.text}")
        elif found.what != "taken":
            print(f"{found.what.upper()} seed {seed}: {found.why}\n{source.text}", flush=True)
        elif source.hostile:
            print(f"taken, seed {seed}: {', '.join(source.hostile)}", flush=True)
        sys.modules.pop(f"pyg_random_{seed}", None)
    for why, times in reasons.most_common():
        print(f"{times:5} {why}")
        if given.examples and times > 1:
            print(shown[why])
    print(dict(counts))
    return 1 if counts["wrong"] or not counts["taken"] else 0


if __name__ == "__main__":
    sys.exit(main())
