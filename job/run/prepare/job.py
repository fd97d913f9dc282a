"""Prepares a new job: each step takes what the ones before it returned; only the first three see the options."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from freshet.job.options.run_config import RunConfig
from freshet.job.run.outputs import Outputs, new_job_id
from freshet.job.run.prepare.ends import plan_ends
from freshet.job.run.prepare.folders import write_folders
from freshet.job.run.prepare.image import make_image
from freshet.job.run.prepare.model import read_model
from freshet.job.run.prepare.settings import new_job
from freshet.job.run.sources import Sources
from freshet.operators.settings import Settings


@dataclass(frozen=True)
class Job:
    """A prepared job: the settings of its stages, its input and its output topics."""

    settings: Settings
    sources: Sources
    outputs: Outputs = field(default_factory=Outputs)


def prepare(config: RunConfig, out: Path) -> Job:
    """Plan the input and compute the base image of a new job.

    Raises: InputError for a bad input file.
    """
    job_id = new_job_id()
    model = read_model(config)
    ends = plan_ends(config, model, job_id)
    saved = new_job(config, model, ends, job_id, out)
    write_folders(saved, ends, model.start, out)
    make_image(saved.settings, model.start)
    return Job(saved.settings, ends.sources, ends.outputs)
