"""Everything about a swap that can be refused before anything is done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from freshet.gnn.any_plan import AnyPlan, names_of_returned
from freshet.job.errors import UsageError
from freshet.job.folder import lock, run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.kafka.address import is_kafka
from freshet.job.lifecycle.job_state import state_of
from freshet.job.options.config_file import load_run_config, options_given
from freshet.job.options.flink_keys import read_flink
from freshet.job.options.output_options import ASKED
from freshet.job.run.model import plan_to_run
from freshet.job.run.successor import options_of_successor
from freshet.job.service.generations import Contract, Generation, Service
from freshet.job.swap.topics import topic_options
from freshet.operators.factory import load_plan

JOBS = "jobs"  # folder in V with the output folders of jobs that swaps have begun


class CurrentJob(NamedTuple):
    """The job that serves, as a swap finds it."""

    current: Generation
    saved: SavedJob
    run: Mapping[str, Any]  # what `run.json` says

    @staticmethod
    def of(service: Service) -> CurrentJob:
        """Return the current job of a service.

        Raises: UsageError where there is none.
        """
        current = service.serving()
        saved = SavedJob.read(current.out)
        if saved is None:
            msg = (
                f"{current.job}: the job that serves is not there; have its folder on this machine, or `freshet "
                "promote` another job"
            )
            raise UsageError(msg)
        return CurrentJob(current, saved, run_file.read_run(current.out))

    @property
    def is_application(self) -> bool:
        """True if Flink has started it, in application mode."""
        return bool(self.run.get("application"))

    @property
    def cluster(self) -> str:
        """The cluster that has it; empty where none has."""
        return str(self.run.get("cluster") or "")


def options_of_new_job(serving: CurrentJob, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the new job's --config file has: the options of the one that serves, and those that are given.

    Raises: UsageError for one that can't be; JobFailed where the brokers of an output topic do not answer.
    """
    had = options_of_successor(serving.saved)
    more = {name: str(one) if isinstance(one, Path) else one for name, one in given.items() if name != "layers"}
    if options_given(more).get("embeddings") == ASKED:
        msg = (
            f"--embeddings {ASKED}: a service has the embeddings of all vertices, and such a job writes none; leave it "
            "out, or begin that job beside the service by `freshet run`"
        )
        raise UsageError(msg)
    try:
        flink = {**(had.get("flink") or {}), **read_flink(more.get("flink") or {})}
    except ValueError as error:
        msg = f"-D: {error}"
        raise UsageError(msg) from None
    topic = topic_options(serving.saved, serving.current.generation + 1, more)
    found = {**had, **topic, **more} | ({"flink": flink} if flink else {})
    load_run_config({**found, "model": "M2", "out": "O2", "events": [*serving.saved.settings.sources]})
    return found


def refuse(service: Service, serving: CurrentJob, model: Path, *, in_turn: bool, by_hand: bool) -> None:
    """Refuse a swap that could not come to a good end.

    Raises: UsageError, ModelError
    """
    current, saved = serving.current, serving.saved
    new = plan_to_run(model, undirected=saved.settings.partitioning.undirected)
    refuse_model(load_plan(saved.settings.model), new, service.contract(), model)
    if missing := [one for one in saved.settings.sources if not is_kafka(one) and not Path(one).exists()]:
        where = "give the command in the folder in which the job was started"
        msg = f"{current.job}: it reads {missing[0]}, which is not there; {where}"
        raise UsageError(msg)
    is_over = state_of(current.out).is_over
    if saved.runtime == "local" and not is_over and not in_turn:
        msg = (
            f"{current.job}: a job of the local runtime can't be exported while it runs; give --in-turn, which stops it"
        )
        raise UsageError(msg)
    if serving.is_application and not by_hand:
        msg = f"{current.job}: its job is a Flink application; give --print-spec, and start what it prints"
        raise UsageError(msg)


def refuse_model(old: AnyPlan, new: AnyPlan, contract: Contract, model: Path) -> None:
    """Refuse a model that cannot follow the one of the job that serves.

    Raises: UsageError for one that lacks a kind which the service returns, or reads features or attributes of edges
        that the job does not have.
    """
    if lacking := [kind for kind in contract.returned if kind not in names_of_returned(new)]:
        msg = f"--model {model}: it does not return {', '.join(lacking)}, which the service has from generation 0 on"
        raise UsageError(msg)
    if len(old.features.widths) == len(new.features.widths) == 1 and old.features.width != new.features.width:
        msg = f"--model {model}: it reads {new.features}, and vertices of the job that serves have {old.features.width}"
        raise UsageError(msg)
    if new.features.given_edge_width and not old.features.given_edge_width:
        msg = (
            f"--model {model}: it reads attributes of edges, and the job that serves keeps none, since its model reads "
            "none; begin a job from the original source, and `freshet promote` it"
        )
        raise UsageError(msg)
    counts = zip(new.features.categories, old.features.categories or (0,) * len(new.features.categories), strict=False)
    if narrower := [place for place, (mine, before) in enumerate(counts) if mine and not 0 < before <= mine]:
        msg = (
            f"--model {model}: attribute {narrower[0]} of its edges numbers {new.features.categories[narrower[0]]} "
            "categories, and the job that serves takes other numbers there; begin a job from the original source, and "
            "`freshet promote` it"
        )
        raise UsageError(msg)


def out_of_new_job(service: Service, serving: CurrentJob, given: Path | None) -> Path:
    """Return the output folder of the new job, which holds nothing yet.

    Raises: UsageError for one that does.
    """
    if given is not None:
        if given.exists() and not (given.is_dir() and lock.is_empty(given)):
            msg = f"--out {given}: expected a folder that is new or empty"
            raise UsageError(msg)
        return given.absolute()
    name = f"g{serving.current.generation + 1}"
    beside = [service.folder / JOBS / (name if number == 0 else f"{name}-{number}") for number in range(10_000)]
    return next(one for one in beside if not one.exists())  # those of swaps that were refused stay
