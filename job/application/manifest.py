"""Manifests of a job as a Flink application: options, FlinkDeployment for Flink's operator, and rules for its pods.

The image is that of job/Dockerfile. Paths are the pods': the volume claim is mounted at DATA in all of them. Modules of
layers that users write lie beside the options, where the program finds them (job/main.py).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from freshet.gnn.own.sources import is_package_of
from freshet.job.machine.java import java_options_of_flink
from freshet.job.options.run_config import RunConfig, option_fields
from freshet.job.uris import is_remote

_REFERENCE = re.compile(r"\$\{(\w+)\}", re.ASCII)
_SECRET = re.compile(r"password|secret|token|jaas|keystore\.key|basic\.auth", re.IGNORECASE)


def references_in(properties: Mapping[str, Any]) -> list[str]:
    """Return the environment variables that client properties refer to, each once."""
    found = [name for value in properties.values() if isinstance(value, str) for name in _REFERENCE.findall(value)]
    return list(dict.fromkeys(found))


def in_plain_text(properties: Mapping[str, Any]) -> list[str]:
    """Return the properties that hold a secret as it is."""
    written = {str(key): value for key, value in properties.items() if isinstance(value, str)}
    return [
        key
        for key, value in written.items()
        if _SECRET.search(key) and not _REFERENCE.search(value) and not key.endswith((".class", ".url", ".location"))
    ]


DATA, CLAIM, IMAGE = "/data", "freshet-data", "freshet:latest"
OPTIONS, OPTIONS_AT = "job.yaml", "/etc/freshet"
PROGRAM = "/opt/freshet/job/main.py"
_FLINK_PYTHON = "local:///opt/flink/opt/flink-python-2.2.1.jar"
_PYTHON = "/opt/venv/bin/python"
_GRACE_S = 120
_USER = 1000
_METRICS, _REST = "metrics", 8081
_METRICS_PORT = 9249
PART_OF = {"app.kubernetes.io/part-of": "freshet"}  # label of all pods, by which deploy/k8s/monitoring.yaml finds them
_PREFIX = "freshet-"
_NAME_MAX = 45  # of a FlinkDeployment


def name_of(given: str | None, out: Path) -> str:
    """Return the name of a job's resources: its --name, else its output folder below DATA.

    Where Kubernetes does not allow all of it, a hash tells it from others that come to the same.
    """
    whole = given or os.path.normpath(out).removeprefix(f"{DATA}/")
    name = re.sub(r"[^a-z0-9]+", "-", whole.lower()).strip("-")
    if name != whole or len(name) > _NAME_MAX - len(_PREFIX):
        digest = hashlib.sha256(whole.encode(errors="surrogateescape")).hexdigest()[:6]
        name = f"{name[: _NAME_MAX - len(_PREFIX) - 7]}-{digest}".lstrip("-")
    return _PREFIX + name


def rest_address(name: str) -> str:
    """Return where others reach the JobManager: the service that Flink makes."""
    return f"{name}-rest:{_REST}"


class _Text(str):
    """A text of several lines."""

    __slots__ = ()


class _Manifest(yaml.SafeDumper):
    """Writes texts of several lines as such, and values that stand in several places at each of them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Manifest.add_representer(_Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|"))


def as_yaml(documents: list[dict[str, Any]]) -> str:
    """Return manifests as one file."""
    return str(yaml.dump_all(documents, Dumper=_Manifest, sort_keys=False, width=1000))


def manifests(
    given: Mapping[str, Any], config: RunConfig, slots: int, modules: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the manifests of a job; `given` are its options as they were written, `slots` those that it needs.

    `modules`: the sources of --layers, and of modules of the user's that they import, by the names of the modules.
    """
    name = name_of(config.name, config.out)
    plain = (bool, int, float, list, dict)  # else a path, say
    options = {
        key.replace("_", "-"): value if isinstance(value, plain) else str(value)
        for key in option_fields()
        if (value := given.get(key)) is not None
    }
    return [_options(name, options, modules), _deployment(name, config, slots, modules), *_rules_for_pods(name, slots)]


def _options(name: str, options: dict[str, Any], modules: Mapping[str, str]) -> dict[str, Any]:
    text = yaml.safe_dump(options, sort_keys=False, allow_unicode=True, width=1000)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-options"},
        "data": {OPTIONS: _Text(text)} | {_key(module): _Text(source) for module, source in modules.items()},
    }


def _key(module: str) -> str:
    """Return the key of a module's source among the options."""
    return f"{module}.py"


def _path(module: str, modules: Collection[str]) -> str:
    """Return the path of a module's file below a folder of modules."""
    inside = "/__init__" if is_package_of(module, modules) else ""
    return f"{module.replace('.', '/')}{inside}.py"


def _deployment(name: str, config: RunConfig, slots: int, modules: Collection[str]) -> dict[str, Any]:
    return {
        "apiVersion": "flink.apache.org/v1beta1",
        "kind": "FlinkDeployment",
        "metadata": {"name": name},
        "spec": {
            "image": IMAGE,
            "flinkVersion": "v2_2",
            "serviceAccount": "flink",
            "flinkConfiguration": flink_configuration(name, config),
            "podTemplate": _pod(name, references_in(config.kafka), modules),
            "jobManager": {"replicas": 1, "resource": {"memory": "2048m", "cpu": 1}},
            "taskManager": {"resource": {"memory": "4096m", "cpu": 1}},
            "job": {
                "jarURI": _FLINK_PYTHON,
                "entryClass": "org.apache.flink.client.python.PythonDriver",
                "args": ["-pyclientexec", _PYTHON, "-py", PROGRAM, "--config", f"{OPTIONS_AT}/{OPTIONS}"],
                "parallelism": slots,
                "upgradeMode": "savepoint",
                "state": "running",
            },
        },
    }


def flink_configuration(name: str, config: RunConfig) -> dict[str, str]:
    """Return what Flink's processes need to know before the job's own options come."""
    checkpoints = config.checkpoint_dir or f"{config.out}/checkpoints"
    where = checkpoints if is_remote(checkpoints) else f"file://{checkpoints}"
    store = where if is_remote(checkpoints) else f"file://{DATA}"
    return {
        "taskmanager.numberOfTaskSlots": "1",  # one Python process has one GIL
        "taskmanager.memory.managed.size": f"{config.managed_mb}m",
        "taskmanager.memory.task.off-heap.size": "1536m",  # Python's tables: see `freshet size`
        "taskmanager.network.memory.buffer-debloat.enabled": "true",
        "taskmanager.network.memory.buffer-debloat.target": "50 ms",
        "env.java.opts.all": java_options_of_flink(),
        "python.execution-mode": "thread",
        "python.executable": _PYTHON,
        "python.client.executable": _PYTHON,
        "execution.checkpointing.dir": where,
        "execution.checkpointing.savepoint-dir": f"{where}/savepoints",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "high-availability.type": "kubernetes",
        "high-availability.storageDir": f"{store}/ha/{name}",
        "metrics.reporter.prom.factory.class": "org.apache.flink.metrics.prometheus.PrometheusReporterFactory",
        "metrics.reporter.prom.port": str(_METRICS_PORT),
        "metrics.reporter.prom.filterLabelValueCharacters": "false",
    }


def _pod(name: str, secrets: list[str], modules: Collection[str]) -> dict[str, Any]:
    files = [{"key": _key(one), "path": _path(one, modules)} for one in modules]
    items = {"items": [{"key": OPTIONS, "path": OPTIONS}, *files]} if files else {}
    environ = [{"name": one, "valueFrom": {"secretKeyRef": {"name": f"{name}-secrets", "key": one}}} for one in secrets]
    return {
        "metadata": {"labels": PART_OF},
        "spec": {
            "enableServiceLinks": False,  # a service called freshet-run would set FRESHET_RUN_PORT, as if an option
            "securityContext": {"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER},
            "terminationGracePeriodSeconds": _GRACE_S,
            "containers": [
                {
                    "name": "flink-main-container",  # the operator's word for it
                    **({"env": environ} if environ else {}),
                    "ports": [{"name": _METRICS, "containerPort": _METRICS_PORT}],
                    "volumeMounts": [
                        {"name": "data", "mountPath": DATA},
                        {"name": "options", "mountPath": OPTIONS_AT, "readOnly": True},
                    ],
                }
            ],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}},
                {"name": "options", "configMap": {"name": f"{name}-options", **items}},
            ],
        },
    }


def _rules_for_pods(name: str, slots: int) -> list[dict[str, Any]]:
    """Return what may evict the pods of a job, and who may connect to them.

    A drained node stops one pod at a time, and Flink continues from a checkpoint. The job's own pods may connect to
    each other, Flink's operator and servers of this namespace to the JobManager, and Prometheus of any namespace to the
    metrics.
    """
    pods = {"matchLabels": {"app": name}}  # as Flink labels them
    operator = {"matchLabels": {"app.kubernetes.io/name": "flink-kubernetes-operator"}}
    ingress = [
        {"from": [{"podSelector": pods}]},
        {
            "from": [{"podSelector": {"matchLabels": PART_OF}}, {"namespaceSelector": {}, "podSelector": operator}],
            "ports": [{"port": _REST}],
        },
        {
            "from": [
                {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}
            ],
            "ports": [{"port": _METRICS_PORT}],
        },
    ]
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            # of one JobManager and a TaskManager for each slot; for pods that no controller scales, it must be a number
            "spec": {"minAvailable": slots, "selector": pods},
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name},
            "spec": {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": ingress},
        },
    ]
