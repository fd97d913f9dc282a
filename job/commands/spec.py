"""`freshet spec`: the manifests of a job for Kubernetes, from the options of `freshet run`."""

from __future__ import annotations

import inspect
from typing import Any

from freshet.job.commands.run import RunCommand, parameters_of_run
from freshet.job.options.config_file import load_run_config, options_given


def spec(**given: Any) -> None:
    """Write the manifests of a job that runs as a Flink application on Kubernetes, and start nothing.

    Takes the options of `freshet run`, from flags, environment and --config; paths are those in the pods. What can be
    checked here is checked. On stdout are a ConfigMap with the options, and with the modules of --layers, and a
    FlinkDeployment for Flink's Kubernetes operator, which runs as `--resume auto` does: it begins in a new --out, and
    continues in a used one.

    [bold]Examples[/bold]

    [cyan]freshet spec --config job.yaml > job.k8s.yaml[/cyan]
    [cyan]kubectl apply -f job.k8s.yaml[/cyan]
    """
    config = given.pop("config")
    options = {name.rstrip("_"): value for name, value in given.items() if value not in (None, [])}
    settings = load_run_config(options, config)
    from freshet.gnn.own.loading import loaded_sources
    from freshet.job.application import manifest
    from freshet.job.application.checks import check
    from freshet.job.flink.pipeline import processes_of
    from freshet.job.options.layers import take_layers

    written = {name: value for name, value in options_given(options, config).items() if name != "resume"}
    written["cluster"] = settings.cluster or manifest.rest_address(manifest.name_of(settings.name, settings.out))
    settings = load_run_config({**options, "cluster": written["cluster"]}, config)
    if settings.snapshot is not None and settings.embeddings_to is not None:
        written.setdefault("embeddings_from_start", True)  # else a server of the topic never has most rows
    check(settings)
    take_layers(settings.layers)
    documents = manifest.manifests(written, settings, processes_of(*settings.processes), loaded_sources())
    print(manifest.as_yaml(documents), end="", flush=True)


COMMAND = RunCommand
spec.__signature__ = inspect.Signature(parameters_of_run())  # type: ignore[attr-defined]
