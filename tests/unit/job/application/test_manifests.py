"""Manifests for Kubernetes: what `freshet spec` writes and what deploy/k8s has, against the published schemas."""

from __future__ import annotations

import copy
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from freshet.job import cli
from freshet.job.application.manifest import name_of
from freshet.job.options.config_file import load_run_config
from tests.support.kubernetes import schemas
from tests.unit.test_imports import ROOT

K8S = ROOT / "deploy" / "k8s"
FILES = sorted(path.name for path in K8S.glob("*.yaml") if path.name != "job.yaml")
OPERATORS = [schemas.of_operator_on_maven, schemas.of_operator_in_folder]


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((K8S / name).read_text()))


@pytest.fixture
def spec(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            cli.main(["spec", *map(str, arguments)])
        told = capsys.readouterr()
        return int(end.value.code or 0), told.out, told.err

    return call


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_manifest_is_what_its_schema_allows(operator: Callable[[], dict[str, Any]]) -> None:
    schema = operator()
    found = [one for name in FILES for one in documents(name)]
    assert {one["kind"] for one in found} >= {"FlinkDeployment", "Deployment", "Service", "Job", "ConfigMap"}
    assert {one["kind"] for one in found} >= {"PodMonitor", "PodDisruptionBudget", "NetworkPolicy"}
    for one in found:
        schemas.check(one, schema)


def test_the_schemas_refuse_what_they_do_not_know() -> None:
    operator = schemas.of_operator_on_maven()
    for name, path in (("serve.yaml", ["spec", "template", "spec"]), ("flinkdeployment.yaml", ["spec", "job"])):
        wrong = copy.deepcopy(next(one for one in documents(name) if one["kind"].endswith("Deployment")))
        inner = wrong
        for key in path:
            inner = inner[key]
        inner["volums"] = []
        with pytest.raises(jsonschema.ValidationError, match="volums"):
            schemas.check(wrong, operator)


def test_the_deployment_is_what_spec_writes(spec: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = spec("--config", K8S / "job.yaml")
    assert (code, out) == (0, (K8S / "flinkdeployment.yaml").read_text())


def test_options_come_from_flags_environment_and_file(
    spec: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRESHET_RUN_EPOCH_EVENTS", "500")
    monkeypatch.setenv("FRESHET_RUN_PARTS", "16")
    _, out, _ = spec("--config", K8S / "job.yaml", "--parts", "4", "--resume", "auto", "--no-stay")
    options, deployment, *_ = yaml.safe_load_all(out)
    written = yaml.safe_load(options["data"]["job.yaml"])
    assert (written["parts"], written["epoch-events"], written["parallelism"]) == (4, "500", 2)
    assert "resume" not in written
    assert written["cluster"] == "freshet-out-rest:8081"
    assert deployment["spec"]["job"]["parallelism"] == 2


def test_a_topic_gets_the_rows_of_a_snapshot_unless_that_is_declined(
    spec: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    def options(config: Path, *more: str) -> dict[str, Any]:
        _, out, _ = spec("--config", config, *more)
        return dict(yaml.safe_load(next(yaml.safe_load_all(out))["data"]["job.yaml"]))

    assert "embeddings-from-start" not in options(K8S / "job.yaml")
    assert options(K8S / "job.yaml", "--snapshot", "/data/graph")["embeddings-from-start"] is True
    declined = tmp_path / "job.yaml"
    declined.write_text((K8S / "job.yaml").read_text() + "embeddings-from-start: false\n")
    assert options(declined, "--snapshot", "/data/graph")["embeddings-from-start"] is False


def test_slots_are_those_of_the_layers(spec: Callable[..., tuple[int, str, str]]) -> None:
    """Where each layer has its own number, --parallelism is the limit only."""
    shape = "--parts", "4", "--parallelism", "6", "--layer-parallelism", "1,3"
    _, out, _ = spec("--config", K8S / "job.yaml", *shape)
    options, deployment, budget, _ = yaml.safe_load_all(out)
    assert yaml.safe_load(options["data"]["job.yaml"])["layer-parallelism"] == "1,3"
    assert deployment["spec"]["job"]["parallelism"] == 5
    assert budget["spec"]["minAvailable"] == 5, "of five TaskManagers and a JobManager one may be evicted"


def test_the_program_takes_the_options_that_spec_writes(tmp_path: Path) -> None:
    options, deployment, *_ = documents("flinkdeployment.yaml")
    (tmp_path / "job.yaml").write_text(options["data"]["job.yaml"])
    config = load_run_config({}, tmp_path / "job.yaml")
    assert config.cluster == f"{deployment['metadata']['name']}-rest:8081"
    arguments = deployment["spec"]["job"]["args"]
    program = ROOT / Path(arguments[arguments.index("-py") + 1]).relative_to("/opt/freshet")
    assert program.is_file()
    assert arguments[-2:] == ["--config", "/etc/freshet/job.yaml"]


def test_modules_of_layers_go_along(spec: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """Each lies where the program finds it, with the bytes that the model was made with."""
    _, out, _ = spec("--config", K8S / "job.yaml", "--layers", "examples.gated_sum", "--layers", "examples.top_k")
    options, deployment, *_ = yaml.safe_load_all(out)
    volume = deployment["spec"]["podTemplate"]["spec"]["volumes"][1]["configMap"]
    for one in volume["items"]:
        (tmp_path / one["path"]).parent.mkdir(exist_ok=True)
        (tmp_path / one["path"]).write_text(options["data"][one["key"]])
    for name in ("gated_sum", "top_k"):
        assert (tmp_path / "examples" / f"{name}.py").read_text() == (ROOT / "examples" / f"{name}.py").read_text()
    assert load_run_config({}, tmp_path / "job.yaml").layers == ["examples.gated_sum", "examples.top_k"]
    code, out, err = spec("--config", K8S / "job.yaml", "--layers", "examples.none")
    assert (code, out) == (2, "")
    assert "freshet: --layers examples.none: it cannot be imported" in err
    schemas.check(deployment, schemas.of_operator_on_maven())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--out", "out"], "--out out: expected a path below /data"),
        (["--out", "/data/../etc/out"], "--out /data/../etc/out: expected a path below /data"),
        (["--model", "/models/m"], "--model /models/m: expected a path below /data"),
        (["--events", "/tmp/e.jsonl"], "--events /tmp/e.jsonl: expected a path below /data"),
        (["--runtime", "local"], "--runtime local: reads files only"),
        (["--detach", "--cluster", "a:1"], "--detach: an application has no client"),
        (["--resume", "latest"], "--resume latest: an application begins in a new folder"),
        (["--parallelism", "3", "--parts", "2", "--pipeline", "1"], "--parts: got 2 with --parallelism 3"),
    ],
)
def test_what_can_not_run_there_is_refused(
    spec: Callable[..., tuple[int, str, str]], options: list[str], told: str
) -> None:
    code, out, err = spec("--config", K8S / "job.yaml", *options)
    assert (code, out) == (2, "")
    assert err.startswith(f"freshet: {told}")


def test_secrets_are_references(spec: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text((K8S / "job.yaml").read_text().replace("${KAFKA_PASSWORD}", "hunter2"))
    code, out, err = spec("--config", tmp_path / "job.yaml")
    assert (code, out, "hunter2" in err) == (2, "", False)
    assert err.startswith("freshet: kafka: sasl.jaas.config: a secret")
    environ = documents("flinkdeployment.yaml")[1]["spec"]["podTemplate"]["spec"]["containers"][0]["env"]
    assert [one["name"] for one in environ] == ["KAFKA_PASSWORD"]


def test_names_of_resources_follow_from_the_folder_or_the_name() -> None:
    def name(out: str, **options: str) -> str:
        found = load_run_config({"model": Path("M"), "events": ["e.jsonl"], "out": Path(out), **options})
        return name_of(found.name, found.out)

    assert name("/data/out") == "freshet-out"
    assert name("/data/out", name="fraud-eu") == "freshet-fraud-eu"
    assert len(name("/data/" + "x" * 90)) == 45
    folders = ["run", "a/run", "b/run", "a-run", "A/run", "My Job_2", "my-job-2", "ü", "ö", "x" * 90, "x" * 91]
    found = [name(f"/data/{one}") for one in folders] + [name("/data/run", name=one) for one in ("EU 1", "eu_1", "日")]
    assert len(set(found)) == len(found), "no two jobs share resources"
    assert all(len(one) <= 45 and re.fullmatch("freshet-[a-z0-9]([-a-z0-9]*[a-z0-9])?", one) for one in found)


@pytest.mark.parametrize("name", FILES)
def test_services_beside_a_pod_set_no_options_of_it(name: str) -> None:
    for one in documents(name):
        pod = one.get("spec", {}).get("podTemplate") or one.get("spec", {}).get("template")
        assert pod is None or pod["spec"]["enableServiceLinks"] is False


@pytest.mark.parametrize(("file", "name"), [("serve.yaml", "freshet-serve"), ("serve-epochs.yaml", "freshet-serve")])
def test_probes_leave_a_stale_server_in_the_service(file: str, name: str) -> None:
    found = {one["metadata"]["name"]: one for one in documents(file) if one["kind"] == "Deployment"}
    [container] = found[name]["spec"]["template"]["spec"]["containers"]
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert probes == {"startup": "/readyz?stale=ok", "readiness": "/readyz?stale=ok", "liveness": "/healthz"}
    assert any(one["name"] == "FRESHET_TOKEN" and "secretKeyRef" in one["valueFrom"] for one in container["env"])


@pytest.mark.parametrize("name", FILES)
def test_commands_of_containers_are_ours(name: str) -> None:
    for one in documents(name):
        if one["kind"] not in ("Deployment", "Job"):
            continue
        [container] = one["spec"]["template"]["spec"]["containers"]
        _, command, *flags = container["args"]
        text = (ROOT / "job" / "commands" / f"{command}.py").read_text() + (ROOT / "job" / "cli.py").read_text()
        assert flags
        for flag in flags:
            known = flag.partition("=")[0]
            assert known in text or known[2:].replace("-", "_") + ":" in text, flag


def entry(tmp_path: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The image's entry point, with a Flink whose scripts say how they were called."""
    for script in ("jobmanager.sh", "standalone-job.sh", "taskmanager.sh", "config-parser-utils.sh"):
        path = tmp_path / "bin" / script
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/bash\necho "{script} $@"\n')
        path.chmod(0o755)
    places = {"FLINK_HOME": str(tmp_path), "FLINK_CONF_DIR": "conf", "FLINK_LIB_DIR": "lib"}
    command = ["bash", str(ROOT / "job" / "docker-entrypoint.sh"), *arguments]
    environ = {**os.environ, **places, **environ}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=True)


def test_the_entry_point_is_called_as_the_one_of_flinks_image(tmp_path: Path) -> None:
    assert entry(tmp_path, "standalone-job", "--job-classname", "a b").stdout == (
        "standalone-job.sh start-foreground --job-classname a b\n"
    )
    assert entry(tmp_path, "taskmanager").stdout == "taskmanager.sh start-foreground\n"
    assert entry(tmp_path, "bash", "-c", "umask; echo $0", "x").stdout == "0077\nx\n"  # as in native mode
    properties = "taskmanager.numberOfTaskSlots: 2\n\n  rest.port: 8081\n"
    said = entry(tmp_path, "jobmanager", FLINK_PROPERTIES=properties, JOB_MANAGER_RPC_ADDRESS="jm")
    assert said.stdout.splitlines() == [
        f"config-parser-utils.sh conf {tmp_path}/bin lib -Djobmanager.rpc.address=jm -Dtaskmanager.numberOfTaskSlots=2 "
        "-Drest.port=8081",
        "jobmanager.sh start-foreground",
    ]


def pods() -> list[dict[str, Any]]:
    """The pods of all manifests; those of a FlinkDeployment with the labels that Flink's operator sets."""
    found = []
    for name in FILES:
        for one in documents(name):
            if one["kind"] == "Deployment":
                found.append(one["spec"]["template"])
            elif one["kind"] == "FlinkDeployment":
                template = copy.deepcopy(one["spec"]["podTemplate"])
                template["metadata"]["labels"] |= {"app": one["metadata"]["name"], "type": "flink-native-kubernetes"}
                found.append(template)
    return found


def chosen(selector: dict[str, Any]) -> list[dict[str, Any]]:
    within = {one["key"]: one["values"] for one in selector.get("matchExpressions", ())}
    return [
        pod
        for pod in pods()
        if selector["matchLabels"].items() <= pod["metadata"]["labels"].items()
        and all(pod["metadata"]["labels"].get(key) in values for key, values in within.items())
    ]


def ports_of(pod: dict[str, Any]) -> set[str | int]:
    found = [port for container in pod["spec"]["containers"] for port in container["ports"]]
    return {port["name"] for port in found} | {port["containerPort"] for port in found}


def test_monitors_budgets_and_policies_are_of_pods_that_are_there() -> None:
    """With the ports that these name."""
    seen = []
    for one in (one for name in FILES for one in documents(name)):
        spec = one["spec"] if "spec" in one else {}
        if one["kind"] == "PodMonitor":
            found = chosen(spec["selector"])
            asked = [{end["port"] for end in spec["podMetricsEndpoints"]}] * len(found)
        elif one["kind"] == "NetworkPolicy":
            found = chosen(spec["podSelector"])
            named = {port["port"] for rule in spec["ingress"] for port in rule.get("ports", ())}
            asked = [named - {8081}] * len(found)  # the JobManager's own, which Flink adds
        elif one["kind"] == "PodDisruptionBudget":
            found, asked = chosen(spec["selector"]), []
        else:
            continue
        seen.append((one["kind"], one["metadata"]["name"]))
        assert found, seen[-1]
        assert all(names <= ports_of(pod) for pod, names in zip(found, asked, strict=False)), seen[-1]
    assert len(seen) == 9


def test_servers_of_one_epoch_feed_from_the_one_with_the_volume() -> None:
    found = {(one["kind"], one["metadata"]["name"]): one for one in documents("serve-epochs.yaml")}
    feed, server = (found["Deployment", name]["spec"] for name in ("freshet-feed", "freshet-serve"))
    [first], [second] = feed["template"]["spec"]["containers"], server["template"]["spec"]["containers"]
    out = yaml.safe_load((K8S / "job.yaml").read_text())["out"]
    assert f"--tables={out}/tables" in first["args"]
    assert (feed["replicas"], feed["strategy"]["type"]) == (1, "Recreate")
    [port] = [one for one in found["Service", "freshet-feed"]["spec"]["ports"] if one["name"] == "flight"]
    assert f"--from=freshet-feed:{port['port']}" in second["args"]
    assert not any("persistentVolumeClaim" in one for one in server["template"]["spec"]["volumes"])


def test_the_alerts_are_a_rule_of_prometheus_operator() -> None:
    """As the comment of monitoring.yaml makes it, for scrape jobs of the names that both files give."""
    text = (ROOT / "deploy" / "alerts.yml").read_text()
    rule = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": {"name": "freshet"}}
    schemas.check({**rule, "spec": yaml.safe_load(text)}, {})
    plain = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())
    here = {one["job_name"] for one in plain["scrape_configs"]}
    monitors = [end for one in documents("monitoring.yaml") for end in one["spec"]["podMetricsEndpoints"]]
    there = {one["replacement"] for end in monitors for one in end["relabelings"] if one["targetLabel"] == "job"}
    assert set(re.findall(r'up\{job="(\w+)"', text)) == here == there


def test_the_entry_point_helps_a_user_id_without_a_name(tmp_path: Path) -> None:
    for name, text in (("id", "exit 1"), ("python", '[ "$1" = -c ] && echo --patch')):
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    said = entry(tmp_path, "bash", "-c", "echo $JDK_JAVA_OPTIONS", PATH=path, JDK_JAVA_OPTIONS="-Da=b")
    assert said.stdout == "-Da=b --patch\n"
    assert entry(tmp_path, "bash", "-c", "echo $JDK_JAVA_OPTIONS", JDK_JAVA_OPTIONS="").stdout == "\n"
