"""Judgement of the answers of a service: each against the change log of the job that it names, bit by bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.gnn.kinds.model import KindsModel, load_any_model
from freshet.gnn.readout import load_readouts
from freshet.job.service.generations import GENERATION, Generation
from tests.drills.swap_answers import NEAREST, WHOLE, digests
from tests.support.runs.jobs import Log, read_log

NOTES = 20
SLACK = 1e-4  # of logits in float64, relative to the largest


@dataclass
class Verdict:
    """Counts of answers and of faults in them; only `answers` should not be 0."""

    answers: int = 0
    wrong: int = 0
    mixed: int = 0
    back: int = 0
    lost: int = 0  # rows that an answer lacks
    errors: int = 0
    errors_apart: int = 0  # from any kill
    notes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.answers > 0 and not (self.wrong or self.mixed or self.back or self.lost or self.errors_apart)

    def note(self, text: str) -> None:
        """Keep the first ones."""
        if len(self.notes) < NOTES:
            self.notes.append(text)


class JobLog:
    """The change log of a job for a kind, as it was epoch by epoch, forward only; digests as answers have them.

    Shapes: ids (v,); own, rows, owns, logits (v,) of the rows that live now
    """

    def __init__(self, out: Path, model: Path, kind: str, known: np.ndarray) -> None:
        """`known`: further ids that are asked for."""
        self.log: Log = read_log(out, kind)
        self.ids = np.union1d(self.log.id, known)
        self._at, self._done = np.searchsorted(self.ids, self.log.id), 0
        self._row_digests = digests(self.log.id, self.log.vector)
        self._own_digests: np.ndarray | None = None
        self._logit_digests = digests(self.log.id, logits_of(model, kind, self.log.vector))
        self.lives = np.zeros(len(self.ids), bool)
        self.own, self._k = np.zeros(len(self.ids), np.int64), np.zeros(len(self.ids), np.int64)

    def forward_to(self, epoch: int) -> None:
        """Have the rows as they were at this epoch."""
        end = int(np.searchsorted(self.log.epoch, epoch, side="right"))
        assert end >= self._done, "forward only"
        while self._done < end:  # an epoch at a time, which has an id once
            here = self.log.epoch[self._done]
            upto = min(end, int(np.searchsorted(self.log.epoch, here, side="right")))
            k = np.arange(self._done, upto)
            at = self._at[k]
            self.lives[at], self.own[at], self._k[at] = ~self.log.deleted[k], here, k
            self._done = upto

    def rewind(self) -> None:
        """Begin again."""
        self._done = 0
        self.lives[:] = False

    def rows(self, at: np.ndarray) -> np.ndarray:
        """Return the digests of rows at these places of `ids`."""
        return self._row_digests[self._k[at]]

    def logits(self, at: np.ndarray) -> np.ndarray:
        """Return the digests of logits."""
        return self._logit_digests[self._k[at]]

    def ever_had(self, rows: np.ndarray) -> np.ndarray:
        """Return which digests are that of some row, of any epoch."""
        return np.isin(rows, self._row_digests)


def logits_of(model: Path, kind: str, vectors: np.ndarray) -> np.ndarray:
    """Return the logits that the model's head makes, which a second computation in float64 has to come near.

    Raises: AssertionError where it does not.
    """
    loaded = load_any_model(model)
    readout = load_readouts(model).of(kind)
    assert readout is not None, f"{model}: no head"
    found: np.ndarray = readout.columns(vectors)["logits"]
    name = f"heads.{kind}.0" if isinstance(loaded, KindsModel) else "head.0"
    weight, bias = (loaded.weights[f"{name}.{one}"].astype(np.float64) for one in ("weight", "bias"))
    finite = np.isfinite(vectors).all(axis=1)
    expected = vectors[finite].astype(np.float64) @ weight.T + bias
    largest = max(float(np.abs(expected).max(initial=0.0)), 1.0)
    assert np.abs(found[finite] - expected).max(initial=0.0) <= SLACK * largest, f"{model}: logits differ"
    return found


@dataclass
class Asked:
    """The questions of one reader, and the answers that it got."""

    name: str
    kind: str
    answers: pa.Table
    lists: Sequence[Sequence[int]]


class Oracle:
    """Judges the answers of readers."""

    def __init__(
        self, generations: Sequence[Generation], models: Mapping[str, Path], kinds: Sequence[str], known: np.ndarray
    ) -> None:
        """`models`: folders by SHA-256."""
        self._generations, self.verdict = generations, Verdict()
        jobs = {one.job: models[one.model] for one in generations}
        self._logs = {
            (job, kind): JobLog(Path(job), model, kind, known) for job, model in jobs.items() for kind in kinds
        }

    def judge(self, asked: Asked, kills: Sequence[tuple[float, float]] = ()) -> None:
        """Judge what a reader got. `kills`: from when to when errors are to be expected."""
        table, verdict = asked.answers, self.verdict
        began_s = table["began_s"].to_numpy()
        failed = np.flatnonzero(table["error"].is_valid().to_numpy())
        for k in failed.tolist():
            end_s = began_s[k] + table["took_ms"][k].as_py() / 1e3
            apart = not any(begin <= end_s and began_s[k] <= end for begin, end in kills)
            verdict.errors_apart += apart
            if apart:
                verdict.note(f"{asked.name}: {table['error'][k].as_py()} at {began_s[k]:.3f}")
        verdict.errors += len(failed)
        answers = table.filter(table["error"].is_null())
        verdict.answers += len(answers)
        self._look_back(asked.name, answers)
        self._compare(asked, answers)

    def _look_back(self, name: str, answers: pa.Table) -> None:
        """Count answers in which anything is older than in one before of the same reader."""
        for column in ("epoch", "generation", "as_of_ms"):
            values = answers[column].to_numpy()
            values = values[values >= 0]
            back = np.flatnonzero(np.diff(values) < 0)
            self.verdict.back += len(back)
            for k in back[:3].tolist():
                self.verdict.note(f"{name}: {column} {values[k + 1]} after {values[k]}")

    def _compare(self, asked: Asked, answers: pa.Table) -> None:
        generations, epochs = np.divmod(answers["epoch"].to_numpy(), GENERATION)
        lists = [np.sort(np.array(one, np.int64)) for one in asked.lists]
        for number in np.unique(generations).tolist():
            if number >= len(self._generations):
                self._find(asked, "wrong", f"generation {number} is none")
                continue
            generation = self._generations[number]
            log = self._logs[generation.job, asked.kind]
            log.rewind()
            here = np.flatnonzero(generations == number)
            here = here[np.argsort(epochs[here], kind="stable")]
            lines = answers.take(pa.array(here)).to_pylist()
            for line, epoch in zip(lines, epochs[here].tolist(), strict=True):
                log.forward_to(epoch)
                self._judge_one(asked, line, generation, log, lists)

    def _judge_one(
        self, asked: Asked, line: dict[str, Any], generation: Generation, log: JobLog, lists: list[np.ndarray]
    ) -> None:
        own = np.array(line["own"], np.int64)
        if len(own) and (own.min() < generation.base or own.max() >= generation.base + GENERATION):
            self._find(asked, "mixed", f"epoch {line['epoch']} has rows of epochs {own.min()} to {own.max()}")
            return
        if line["generation"] not in (-1, generation.generation) or line["model"] not in ("", generation.model):
            said = f"generation {line['generation']}, model {line['model'][:8]}"
            self._find(asked, "wrong", f"epoch {line['epoch']} with {said}")
            return
        if line["asked"] == WHOLE:
            self._judge_whole(asked, line, generation, log)
            return
        ids = np.array(line["ids"], np.int64)
        order = np.argsort(ids)
        ids, own = ids[order], own[order]
        wanted = ids if line["asked"] == NEAREST else lists[line["asked"]]
        at = np.searchsorted(log.ids, wanted)
        at = at[log.lives[at] & (log.ids[at] == wanted)]
        lacking = np.setdiff1d(log.ids[at], ids)
        if len(lacking):
            self.verdict.lost += len(lacking)
            self._find(asked, "wrong", f"epoch {line['epoch']} lacks {lacking[:5].tolist()}")
            return
        if not np.array_equal(ids, log.ids[at]) or not np.array_equal(own, log.own[at] + generation.base):
            self._find(asked, "wrong", f"epoch {line['epoch']} has other ids or epochs of rows")
            return
        rows = np.array(line["rows"], np.uint64)[order]
        differ = np.flatnonzero(rows != log.rows(at))
        if len(differ):
            others = [one for (job, kind), one in self._logs.items() if kind == asked.kind and job != generation.job]
            foreign = any(one.ever_had(rows[differ]).any() for one in others)
            what = f"epoch {line['epoch']}: {len(differ)} of {len(rows)} rows differ, as of {ids[differ[0]]}"
            self._find(asked, "mixed" if foreign else "wrong", what)
        elif line["logits"] and not np.array_equal(np.array(line["logits"], np.uint64)[order], log.logits(at)):
            self._find(asked, "wrong", f"epoch {line['epoch']}: logits differ, rows do not")

    def _judge_whole(self, asked: Asked, line: dict[str, Any], generation: Generation, log: JobLog) -> None:
        at = np.flatnonzero(log.lives)
        own = log.own[at] + generation.base
        expected = len(at), int(log.rows(at).sum()), int(digests(log.ids[at], own[:, None]).sum())
        got = line["count"], line["rows"][0], line["owns"][0]
        if got != expected:
            self.verdict.lost += max(expected[0] - got[0], 0)
            self._find(asked, "wrong", f"epoch {line['epoch']}: {got} of the whole table, expected {expected}")
        elif line["logits"] and line["logits"][0] != int(log.logits(at).sum()):
            self._find(asked, "wrong", f"epoch {line['epoch']}: logits of the whole table differ")

    def _find(self, asked: Asked, what: str, text: str) -> None:
        setattr(self.verdict, what, getattr(self.verdict, what) + 1)
        self.verdict.note(f"{asked.name}: {what}: {text}")


def latencies(tables: Sequence[pa.Table], switches_s: Sequence[float], near_s: float = 2.0) -> dict[str, float]:
    """Return the longest read within some seconds of a switch, and otherwise, with the median, in ms.

    Without the first read of each reader, which loads what it needs.
    """
    began_s, took_ms = (np.concatenate([one[name].to_numpy()[1:] for one in tables]) for name in ("began_s", "took_ms"))
    end_s, near = began_s + took_ms / 1e3, np.zeros(len(began_s), bool)
    for at_s in switches_s:
        near |= (end_s >= at_s - near_s) & (began_s <= at_s + near_s)
    found = {"p50": np.median(took_ms), "max_near_switch": took_ms[near].max(initial=0.0)}
    found |= {"max_otherwise": took_ms[~near].max(initial=0.0)}
    return {name: round(float(value), 2) for name, value in found.items()}


def first_answers(tables: Sequence[pa.Table]) -> dict[int, float]:
    """Return when each generation was read first, in s since 1970."""
    found: dict[int, float] = {}
    for table in tables:
        good = table.filter(table["error"].is_null())
        generations = good["epoch"].to_numpy() // GENERATION
        end_s = good["began_s"].to_numpy() + good["took_ms"].to_numpy() / 1e3
        for number, first in zip(*np.unique(generations, return_index=True), strict=True):
            found[int(number)] = min(found.get(int(number), np.inf), float(end_s[first]))
    return found


def counted(tables: Sequence[pa.Table]) -> dict[str, int]:
    """Return the number of answers by generation."""
    found = Counter[int]()
    for table in tables:
        good = table.filter(table["error"].is_null())["epoch"].to_numpy() // GENERATION
        found.update(dict(zip(*(one.tolist() for one in np.unique(good, return_counts=True)), strict=True)))
    return {str(number): found[number] for number in sorted(found)}
