"""Published schemas of manifests: fetched from Maven by their hashes, or read from a folder; none is part of ours.

FRESHET_SCHEMAS names a folder with a newer schema of Flink's operator, `helm/flink-kubernetes-operator/crds/
flinkdeployments.flink.apache.org-v1.yml` of its repository.
"""

from __future__ import annotations

import json
import os
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from freshet.job.machine.artifacts import Artifact, ArtifactError, fetch

DEPLOYMENTS = "flinkdeployments.flink.apache.org-v1.yml"
OPERATOR = Artifact(
    "org.apache.flink:flink-kubernetes-operator-api:1.10.0",
    "b1f44814e17514fa8395c61b329a3ee9087123a5bda5b21fe1a495d5182c30b6",
)
_MODELS = {
    "apps": "c754130b1fa0b746b8dceb00b3c145373cc82b16af220762c45da9e3eb1eccfe",
    "batch": "9f27ea1ec42ad613aeeb4e32e835061e9a3b65cb2fd49aef3fac5de7133cadd4",
    "core": "a4f1c2d4317ef85053f6fa07692066fbf8b5d7a9d0fc3ce20e209f1a97a49566",
    "networking": "c40166d576904e6500f599506e6ad27c5901ed2e989d6350a1b92c78ac69f7ff",
    "policy": "e6c6bda29e0a0758a7ca43161a4cbf1ebc171aea7bf4500fe413ab7a0066622f",
    "monitoring": "2976e382cd96e41b60ff85bac3f6ee4788c5cb6faa2e1aab16c88f98b64adda1",  # Prometheus' operator
}
_KINDS = {
    "Deployment": ("apps", "kubernetes_apps_Deployment"),
    "Job": ("batch", "kubernetes_batch_v1_Job"),
    "Service": ("core", "kubernetes_core_Service"),
    "ConfigMap": ("core", "kubernetes_core_ConfigMap"),
    "PersistentVolumeClaim": ("core", "kubernetes_core_PersistentVolumeClaim"),
    "NetworkPolicy": ("networking", "kubernetes_networking_v1_NetworkPolicy"),
    "PodDisruptionBudget": ("policy", "kubernetes_policy_v1_PodDisruptionBudget"),
    "PodMonitor": ("monitoring", "os_monitoring_v1_PodMonitor"),
    "PrometheusRule": ("monitoring", "os_monitoring_v1_PrometheusRule"),
}
_FREE = "Quantity", "IntOrString", "Time"  # written as text or numbers


def check(manifest: dict[str, Any], operator: dict[str, Any]) -> None:
    """Hold a manifest against the schema of its kind; a field that the schema has not is an error."""
    schema = operator if manifest["kind"] == "FlinkDeployment" else of_kind(manifest["kind"])
    jsonschema.Draft7Validator(schema).validate(manifest)


def of_operator_on_maven() -> dict[str, Any]:
    """Return the newest schema of a FlinkDeployment that Maven has; it names no version of Flink past 2.0."""
    text = _in_jar(OPERATOR, f"META-INF/fabric8/{DEPLOYMENTS}")
    schema = _of_deployments(text)
    schema["properties"]["spec"]["properties"]["flinkVersion"] = {"type": "string"}
    return schema


def of_operator_in_folder() -> dict[str, Any]:
    """Return the schema of a FlinkDeployment in the folder that FRESHET_SCHEMAS names."""
    folder = os.environ.get("FRESHET_SCHEMAS")
    if folder is None:
        pytest.skip(f"FRESHET_SCHEMAS names no folder with {DEPLOYMENTS} of Flink's operator")
    return _of_deployments((Path(folder) / DEPLOYMENTS).read_text())


@lru_cache
def of_kind(kind: str) -> dict[str, Any]:
    """Return the schema of one of Kubernetes' own kinds."""
    model, name = _KINDS[kind]
    group = "openshift" if model == "monitoring" else "kubernetes"
    jar = Artifact(f"io.fabric8:{group}-model-{model}:6.13.2", _MODELS[model])
    definitions = json.loads(_in_jar(jar, "schema/kube-schema.json"))["definitions"]
    free = {one: {} for one in definitions if one.endswith(_FREE)}
    closed = {one: _closed(schema) for one, schema in definitions.items()} | free
    return {"$ref": f"#/definitions/{name}", "definitions": closed}


def _of_deployments(text: str) -> dict[str, Any]:
    version = yaml.load(text, yaml.CSafeLoader)["spec"]["versions"][-1]["schema"]["openAPIV3Schema"]
    schema = _closed(version)
    schema["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}
    return schema


def _closed(schema: Any) -> Any:
    """Return a schema that takes no field but those that it names."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {}
    made = {key: _closed(value) for key, value in schema.items()}
    named = isinstance(made.get("properties"), dict) and made.get("type") == "object"
    if named and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    return made


def _in_jar(artifact: Artifact, name: str) -> str:
    try:
        [jar] = fetch([artifact])
    except ArtifactError as error:
        pytest.skip(str(error))
    with zipfile.ZipFile(jar) as file:
        return file.read(name).decode()
