"""`freshet train`; what it does is in `job.training`."""

from __future__ import annotations

import inspect
from typing import Any

import typer

from freshet.extras import need
from freshet.job.commands.promote import seconds
from freshet.job.errors import EXIT_CHECK_FAILED, UsageError
from freshet.job.folder.layout import out_here
from freshet.job.options.layers import take_layers
from freshet.job.options.training import Training, parameters


def train(**options: Any) -> None:
    """Train a model on the live graph of a job, and keep it if it is better than the one that is served.

    Reads the graph at the newest epoch beside the job, which goes on: the training has a lower priority and takes half
    of the processors. Trains the served model further, or a new one by --factory, and judges both on labelled vertices
    that are left out of the training. M2 gets report.json and training.png, and the model where its metric is above
    that of the served model by --gate-margin. Else the command exits with 1, and M2 has no model.json. Prints the
    report as a JSON line. Needs torch and torch-geometric, from `make install` or the extra torch of the wheel.

    [bold]Examples[/bold]

    [cyan]freshet train O --labels L.parquet --out M2[/cyan]
    [cyan]freshet swap V --model M2[/cyan]

    [cyan]freshet train O --labels L.parquet --factory mymodels:make --head classifier --lr 0.01 --out M2[/cyan]

    [cyan]freshet train V --labels L.parquet --out R --every 1d --then 'freshet swap V --model $FRESHET_MODEL'[/cyan]
    trains each day on the graph of the service's job, and serves a better model.
    """
    need("torch", "train")
    given = Training(**options | {"out": out_here(options["out"])})
    _check(given)
    every_s = None if given.every is None else seconds(given.every, "--every")
    take_layers(given.layers)
    from freshet.job.training.command import repeat, run_once

    if every_s is None:
        raise typer.Exit(0 if run_once(given).taken else EXIT_CHECK_FAILED)
    repeat(given, every_s)


train.__signature__ = inspect.Signature(parameters())  # type: ignore[attr-defined]


def _check(given: Training) -> None:
    """Refuse options that do not go together.

    Raises: UsageError
    """
    msg = ""
    if bool(given.fanout) != bool(given.batch_size):
        one, lacks = ("fanout", "--batch-size") if given.fanout else ("batch-size", "--fanout, once for each conv")
        msg = f"--{one}: a batch has labelled vertices and samples of their neighbours; give {lacks}, too"
    elif given.head and not given.factory:
        msg = "--head: it names a submodule of the module that --factory builds; the served model has its head"
    elif given.ranks > 1 and (given.factory or given.batch_size):
        msg = "--ranks: processes share the served model and take whole passes; leave --factory and --batch-size out"
    elif given.then and not given.every:
        msg = "--then: it is for rounds; give --every, or write the command behind this one with &&"
    elif given.epoch is not None and given.every:
        msg = "--epoch: each round of --every takes the graph of its time; leave one of both out"
    if msg:
        raise UsageError(msg)
