"""Training by several processes that share a graph: each has some of its vertices and all of their in-edges."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor

from freshet.gnn.torch_modules.loading import to_torch
from freshet.gnn.torch_modules.module import FreshetModule
from freshet.job.console import ProgressDisplay
from freshet.job.training.fit import Pass, Schedule, fit
from freshet.job.training.judge import quality
from freshet.job.training.ranks.launch import run_on_ranks
from freshet.job.training.ranks.rank_module import RankModule, total
from freshet.job.training.ranks.shards import Shard, shards_of
from freshet.job.training.ranks.whole import owners_of, whole_graph
from freshet.job.training.subjects import Graph, logits_of, store_of
from freshet.job.training.targets import Targets, loss_sum

_MODEL, _FOUND, _PASSES, _PART = "model", "found.safetensors", "passes.json", "part"
_FIT, _STOP = 1, 2


def fit_shared(
    module: FreshetModule, graph: Graph, targets: Targets, how: Schedule, ranks: int, report: Callable[[str], None]
) -> list[Pass]:
    """Train a module by processes that share a graph, as `fit` does; their gradients are summed exactly.

    Raises: RankFailedError where a process ends before it is done.
    """
    store = store_of(graph, targets.kind)
    store[_PART] = torch.zeros(len(targets.y), dtype=torch.int64)
    store[_PART][targets.fit] += _FIT
    store[_PART][targets.stop] += _STOP
    with tempfile.TemporaryDirectory(prefix="freshet-train-") as folder:
        module.save(Path(folder) / _MODEL)
        whole = whole_graph(graph, module.declared)
        report(f"dividing the graph among {ranks} processes")
        for shard in shards_of(whole, owners_of(whole, ranks), ranks):
            shard.save(Path(folder) / str(shard.rank))
        given = targets.kind, targets.positive_factor, len(targets.fit), tuple(how)
        run_on_ranks(_work, ranks, (folder, *given))
        module.load_state_dict(load_file(Path(folder) / _FOUND))
        return [Pass(*one) for one in orjson.loads((Path(folder) / _PASSES).read_bytes())]


def _work(rank: int, folder: str, kind: str, factor: float, count: int, how: tuple[int, float, str]) -> None:
    """Train on the shard of a rank; the first one writes the result."""
    schedule = Schedule(*how)  # type: ignore[arg-type]
    task = _OnRank(Path(folder), rank, kind, factor, count, schedule)
    with ProgressDisplay("freshet train") as progress:
        passes = fit(task, schedule, progress.update if rank == 0 else lambda text: None)
    if rank == 0:
        save_file({name: one.contiguous() for name, one in task.module.state_dict().items()}, Path(folder) / _FOUND)
        (Path(folder) / _PASSES).write_bytes(orjson.dumps([tuple(one) for one in passes]))


class _OnRank:
    """The training of a model on the vertices of one rank."""

    def __init__(self, folder: Path, rank: int, kind: str, factor: float, count: int, how: Schedule) -> None:
        self.module = to_torch(folder / _MODEL)
        shard = Shard.load(folder / str(rank))
        self._on_rank = RankModule(self.module, shard)
        self._rows = shard.rows[shard.kinds.index(kind) if kind else 0]
        self._kind, self._factor, self._count, self._how = kind, factor, count, how

    def losses(self) -> Iterator[Tensor]:
        """Yield this rank's part of the mean loss of all ranks' vertices."""
        yield loss_sum(*self._labelled(_FIT), self._factor) / self._count

    def value(self, loss: Tensor) -> float:
        """Return the mean loss of all ranks' vertices."""
        return total(loss).item()

    def share_gradients(self) -> None:
        """Sum gradients over ranks."""
        self._on_rank.sum_gradients()

    def quality(self) -> float:
        """Return the quality of the vertices of all ranks that choose the best pass."""
        with torch.no_grad():
            logits, labels = (_gathered(one) for one in self._labelled(_STOP))
        return quality(self._how.metric, logits.numpy(), labels.numpy())

    def _labelled(self, part: int) -> tuple[Tensor, Tensor]:
        """Return logits and labels of this rank's vertices of a part."""
        found = self._on_rank()
        rows = found[self._kind] if self._kind else next(iter(found.values()))
        where = torch.nonzero(self._rows[_PART] & part).flatten()
        return logits_of(self.module, rows, self._kind)[where], self._rows["y"][where]


def _gathered(rows: Tensor) -> Tensor:
    """Return the rows of all ranks, one rank after the other."""
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([len(rows)]))
    most = max(int(one) for one in counts)
    padded = torch.cat([rows, rows.new_zeros((most - len(rows), *rows.shape[1:]))])
    every = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(every, padded)
    return torch.cat([one[: int(count)] for one, count in zip(every, counts, strict=True)])
