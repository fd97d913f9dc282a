"""Export random torch modules, and compare each that is taken with the module itself on graphs unlike the export's own.

Prints how many were taken and refused, the reasons by how often they were given, and the source of each that is wrong.

Example: python scripts/tools/pyg_random.py --count 200 --seed 0
"""

from __future__ import annotations

import argparse
import linecache
import random
import re
import signal
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.pyg.export import ExportError, export_model
from scripts.tools.pyg_examples import trained
from scripts.tools.pyg_random_graphs import apart, run, scores_apart, small, stream_apart
from scripts.tools.pyg_random_kinds import draw_kinds
from scripts.tools.pyg_random_programs import Source, draw
from scripts.tools.pyg_random_written import draw_written

ALLOWED = 1e-5  # of what was summed to get a value, in float64; weights are rounded to float32
ALLOWED_OF_SCORES, ALLOWED_OF_STREAMS = 1e-4, 1e-4  # of float32
_SECONDS = 60


class Result(NamedTuple):
    """Result of a module, and why: taken, refused, wrong; unmade or unjudged where it does not run itself."""

    what: str
    why: str = ""


def made(source: Source, seed: int) -> nn.Module:
    """Return the module of a source, as if it were trained."""
    name = _home(seed)
    file = f"<{name}>"
    linecache.cache[file] = (len(source.text), None, source.text.splitlines(keepends=True), file)
    home = sys.modules[name] = ModuleType(name)
    torch.manual_seed(seed)
    exec(compile(source.text, file, "exec"), home.__dict__)
    module = home.Drawn()
    if any(map(is_lazy, module.parameters())):
        run(source.call, {**home.__dict__, "module": module.double().eval()}, small(source), typed=source.typed)
        module.float()
    return trained(module)


def _home(seed: int) -> str:
    return f"pyg_random_{seed}"


def judged(source: Source, seed: int, *, stream: bool = False) -> Result:
    """Export a module and compare it; `stream`: after the epochs of a stream with deletions as well."""
    given = small(source)
    try:
        module = made(source, seed).double()
        names = {**vars(sys.modules[type(module).__module__]), **vars(sys.modules[_home(seed)]), "module": module}
        rows = run(source.call, names, given, typed=source.typed)
    except Exception as error:
        return Result("unmade", f"{type(error).__name__}: {error}")
    if not isinstance(rows, dict) and len(rows) not in {len(x) for x in given.x.values()}:
        return Result("unmade", "it gives another number of rows")
    with tempfile.TemporaryDirectory() as folder:
        try:
            options = eval(source.options, names)
            if source.link is not None:
                options["link_head"] = names["Pair"](rows.shape[-1], rows.shape[-1])
            model = export_model(made(source, seed), folder, **options)
        except ExportError as error:
            return Result("refused", str(error))
        except TimeoutError:
            raise
        except Exception as error:
            return Result("wrong", f"export_model fails: {type(error).__name__}: {error}")
    try:
        found = list(apart(source, names, model, seed))
    except TimeoutError:
        raise
    except Exception as error:
        return Result("wrong", f"the model fails: {type(error).__name__}: {error}")
    about, worst = max(found, key=lambda one: one[1] if one[1] == one[1] else np.inf, default=("", 0.0))
    if not worst <= ALLOWED:
        return Result("wrong", f"off by {worst:.3g} on {about}")
    largest = 0.0 if source.link is None else scores_apart(options["link_head"], model, source.link)
    if not largest <= ALLOWED_OF_SCORES:
        return Result("wrong", f"scores of pairs are off by {largest:.3g}")
    if stream:
        return _on_stream(source, names, model)
    return Result("taken" if found else "unjudged")


def _on_stream(source: Source, names: Any, model: Any) -> Result:
    """Compare a module that is taken after the epochs of a stream with deletions."""
    try:
        off, many = stream_apart(source, names, model)
    except TimeoutError:
        raise
    except Exception as error:
        return Result("unstreamed", f"{type(error).__name__}: {error}")
    if not off <= ALLOWED_OF_STREAMS:
        return Result("wrong", f"off by {off:.3g} after the epochs of a stream")
    return Result("taken", f"{many} rows of a stream")


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
    parser.add_argument("--kinds", type=float, default=0.5, help="share of modules with kinds or types of edges")
    parser.add_argument("--written", type=float, default=0.3, help="share of the others that are as users write them")
    parser.add_argument("--stream", type=float, default=0.1, help="share that is compared on a stream as well")
    parser.add_argument("--examples", action="store_true", help="print a source with each reason of a refusal")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _late)
    counts, reasons, shown = dict[str, Counter[str]](), Counter[str](), dict[str, str]()
    for seed in range(given.seed, given.seed + given.count):
        rng = random.Random(f"module {seed}")
        of_kinds, as_written = rng.random() < given.kinds, random.Random(f"written {seed}").random() < given.written
        source = (draw_kinds if of_kinds else draw_written if as_written else draw)(seed, given.hostile)
        found = _in_time(source, seed, stream=rng.random() < given.stream)
        of = counts.setdefault(source.group, Counter[str]())
        of[found.what] += 1
        of["rows"] += int(found.why.split()[0]) if found.what == "taken" and found.why else 0
        if found.what in ("refused", "unmade"):
            reasons[why := f"{source.group}, {found.what}: {shortened(found.why)}"] += 1
            shown.setdefault(why, f"seed {seed}: {found.why}\n{source.text}")
        elif found.what != "taken":
            print(
                f"{found.what.upper()} seed {seed}: {found.why}\n{source.text}{source.call} {source.options}",
                flush=True,
            )
        elif source.hostile:
            print(f"taken, seed {seed}: {' || '.join(source.hostile)}", flush=True)
    for why, times in reasons.most_common():
        print(f"{times:5} {why}")
        if given.examples:
            print(shown[why])
    for group, of in counts.items():
        print(group, dict(of))
    every = sum(counts.values(), Counter[str]())
    return 1 if every["wrong"] or not every["taken"] else 0


def _in_time(source: Source, seed: int, *, stream: bool) -> Result:
    """Return the result of a module, which has a minute."""
    signal.alarm(_SECONDS)
    try:
        return judged(source, seed, stream=stream)
    except TimeoutError as error:
        return Result("slow", str(error))
    finally:
        signal.alarm(0)
        sys.modules.pop(_home(seed), None)


if __name__ == "__main__":
    sys.exit(main())
