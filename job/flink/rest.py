"""The few calls of Flink's REST interface that we need, and the cluster of `--cluster` before a job is submitted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx

from freshet.job.errors import JobFailed, UsageError
from freshet.job.flink.errors import is_to_ask_again, is_unknown_job, root_cause_of_text
from freshet.job.machine.ports import why_silent
from freshet.job.uris import location

_POLL_S = 0.1
_METRICS = 40  # in a call
_NATIVE = "kubernetes.internal.jobmanager.entrypoint.class"  # an option of Flink that asks Kubernetes for TaskManagers
NOT_IN_TIME = "no savepoint in time"  # it may still come
_SLOTS_POLL_S = 0.5
_CONNECTOR = "flink-sql-connector-kafka"
_SILENT = "ConnectException", "UnknownHostException", "ConnectTimeoutException"


class FlinkRestError(JobFailed):
    """Flink refused a call or could not be reached; the message says which."""


class UnknownJobError(FlinkRestError):
    """Flink answers, and has no job of this id: it began after the job, or has forgotten its end."""


class FlinkRest:
    """A client for one job at `http://HOST:PORT`."""

    def __init__(self, address: str, job_id: str, timeout_s: float = 10.0) -> None:
        """Nothing is called yet."""
        self.job_id = job_id
        self._http = httpx.Client(base_url=f"http://{address}/v1", timeout=timeout_s, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def state(self) -> str:
        """Return the job's state, such as RUNNING."""
        answer = self._call("GET", f"/jobs/{self.job_id}/status")
        if not isinstance(answer, dict) or "status" not in answer:
            msg = f"{self._http.base_url}: the answer is not Flink's: {str(answer)[:80]}"
            raise FlinkRestError(msg)
        return str(answer["status"])

    def causes(self) -> list[tuple[int, str]]:
        """Return (time in ms, root cause) of each failure so far, oldest first."""
        history = self._call("GET", f"/jobs/{self.job_id}/exceptions")["exceptionHistory"]["entries"]
        return sorted((int(entry["timestamp"]), root_cause_of_text(entry["stacktrace"])) for entry in history)

    def retained_since_ms(self, count: int) -> int | None:
        """Return when the oldest of the newest `count` complete checkpoints was begun; None: there is none."""
        history = self._call("GET", f"/jobs/{self.job_id}/checkpoints")["history"]
        done = [one for one in history if one["status"] == "COMPLETED" and not one["is_savepoint"]]
        newest = sorted(done, key=lambda one: int(one["id"]))[-count:]
        return int(newest[0]["trigger_timestamp"]) if newest else None

    def last_checkpoint_ms(self) -> int | None:
        """Return when the newest complete checkpoint was done; None: there is none."""
        latest = self._call("GET", f"/jobs/{self.job_id}/checkpoints")["latest"]
        done = [one for one in (latest["completed"], latest["savepoint"]) if one is not None]
        return max((int(one["latest_ack_timestamp"]) for one in done), default=None)

    def last_savepoint(self) -> str | None:
        """Return where the newest savepoint of the job is."""
        latest = (self._call("GET", f"/jobs/{self.job_id}/checkpoints").get("latest") or {}).get("savepoint") or {}
        return location(str(latest["external_path"])) if "external_path" in latest else None

    def metrics(self, is_wanted: Callable[[str], bool]) -> dict[str, float]:
        """Return the values of all metrics of the job's operators that are wanted, by name."""
        found: dict[str, float] = {}
        for vertex in self._call("GET", f"/jobs/{self.job_id}")["vertices"]:
            path = f"/jobs/{self.job_id}/vertices/{vertex['id']}/metrics"
            names = [one["id"] for one in self._call("GET", path) if is_wanted(one["id"])]
            for first in range(0, len(names), _METRICS):  # Flink takes no long address
                asked = quote(",".join(names[first : first + _METRICS]))
                values = self._call("GET", f"{path}?get={asked}")
                found |= {one["id"]: float(one["value"]) for one in values}
        return found

    def network_bytes(self) -> int:
        """Return the network memory of all TaskManagers together: what can be under way between their tasks."""
        managers = self._call("GET", "/taskmanagers")["taskmanagers"]
        return sum(int(manager["memoryConfiguration"]["networkMemory"]) for manager in managers)

    def free_slots(self) -> int:
        """Return the slots of the cluster that no job has."""
        return int(self._call("GET", "/overview")["slots-available"])

    def starts_task_managers(self) -> bool:
        """Return whether Flink starts TaskManagers for a job by itself, once it asks for slots."""
        options = {one["key"]: one["value"] for one in self._call("GET", "/jobmanager/config")}
        target = str(options.get("execution.target", ""))
        return target.startswith(("kubernetes", "yarn")) or _NATIVE in options

    def class_path(self) -> list[str]:
        """Return the jars of the JobManager, as its command line has them."""
        return list(map(str, self._call("GET", "/jobmanager/environment").get("classpath") or []))

    def stop(self, target: str, timeout_s: float) -> str:
        """Stop the job with a savepoint below the folder `target` (a URI) and return where it is.

        While a task is just starting or ending, the job is asked again. Raises: FlinkRestError when Flink refuses,
        fails, or is not done in time.
        """
        return self._asked("stop", {"targetDirectory": target, "drain": False}, timeout_s)

    def savepoint(self, target: str, timeout_s: float) -> str:
        """Write a savepoint below the folder `target` (a URI) while the job goes on, and return where it is.

        Raises: FlinkRestError as `stop` does.
        """
        body = {"target-directory": target, "cancel-job": False, "formatType": "CANONICAL"}
        return self._asked("savepoints", body, timeout_s)

    def dispose(self, savepoint: str, timeout_s: float) -> None:
        """Have Flink remove a savepoint.

        Raises: FlinkRestError when it can't, or is not done in time.
        """
        trigger = self._call("POST", "/savepoint-disposal", {"savepoint-path": savepoint})["request-id"]
        self._await(f"/savepoint-disposal/{trigger}", time.monotonic() + timeout_s)

    def _asked(self, what: str, body: dict[str, Any], timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                trigger = self._call("POST", f"/jobs/{self.job_id}/{what}", body)["request-id"]
                operation = self._await(f"/jobs/{self.job_id}/savepoints/{trigger}", deadline)
                return location(str(operation["location"]))
            except FlinkRestError as error:
                if not is_to_ask_again(str(error)) or time.monotonic() + _POLL_S >= deadline:
                    raise
            time.sleep(_POLL_S)

    def _await(self, path: str, deadline: float) -> dict[str, Any]:
        """Wait for an asynchronous operation of Flink and return its result."""
        while (answer := self._call("GET", path))["status"]["id"] != "COMPLETED":
            if time.monotonic() >= deadline:
                msg = f"job {self.job_id}: {NOT_IN_TIME}"
                raise FlinkRestError(msg)
            time.sleep(_POLL_S)
        operation: dict[str, Any] = answer.get("operation") or {}
        if (failure := operation.get("failure-cause")) is not None:
            cause = root_cause_of_text(failure.get("stack-trace", ""))
            msg = f"job {self.job_id}: no savepoint: {cause}"
            raise FlinkRestError(msg)
        return operation

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            answer = self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            msg = f"{self._http.base_url}{path}: {type(error).__name__}: {error}"
            raise FlinkRestError(msg) from error
        if answer.status_code >= 400:
            try:
                reasons = answer.json()["errors"]
            except (ValueError, KeyError):
                reasons = [answer.text]
            msg = f"{method} {path}: {answer.status_code}: {root_cause_of_text(str(reasons[-1]))}"
            raise (UnknownJobError if is_unknown_job(str(reasons)) else FlinkRestError)(msg)
        try:
            return answer.json()
        except ValueError as error:
            msg = f"{self._http.base_url}{path}: the answer is not Flink's: {answer.text[:80]!r}"
            raise FlinkRestError(msg) from error


def await_answer(address: str | None, *, by_tokens: bool = False) -> None:
    """Wait a few seconds for the cluster at HOST:PORT to take connections, where there is to be one.

    `by_tokens`: the job logs in to Kafka by tokens.
    Raises: JobFailed when it does not; UsageError for a cluster whose own connector can't do that.
    """
    if address is not None and (cause := why_silent(address)) is not None:
        raise JobFailed(_no_answer(address, cause))
    if address is not None and by_tokens:
        _refuse_connector(address)


def _refuse_connector(address: str) -> None:
    """Refuse a cluster whose own Kafka connector would be taken instead of the one that logs in by tokens.

    Raises: UsageError.
    """
    rest = FlinkRest(address, "")
    try:
        found = [one for one in rest.class_path() if _CONNECTOR in one]
    finally:
        rest.close()
    if found:
        msg = (
            f"--cluster {address}: has {found[0]}, in which Kafka's client can't log in by tokens (kafka: "
            "sasl.mechanism); take it out of the cluster's folder lib, since the job brings its own connector"
        )
        raise UsageError(msg)


def await_slots(address: str, wanted: int, report: Callable[[str], None], is_stopped: Callable[[], bool]) -> bool:
    """Wait for that many free slots, for any length of time; `report` gets what it waits for, again and again.

    A job without them would fail again and again, and use up its restarts in seconds. Returns False if `is_stopped`
    did first.
    Raises: FlinkRestError when the cluster ceases to answer.
    """
    rest = FlinkRest(address, "")
    try:
        while (free := rest.free_slots()) < wanted and not rest.starts_task_managers():
            if is_stopped():
                return False
            noun = "slot" if free == 1 else "slots"
            report(f"cluster has {free} free {noun}, {wanted} wanted; waiting until there are more")
            time.sleep(_SLOTS_POLL_S)
    finally:
        rest.close()
    return not is_stopped()


def with_address(address: str, cause: str) -> str:
    """The cause of a failure before the job was submitted; with the address where it is that nothing answers."""
    return _no_answer(address, cause) if cause.startswith(_SILENT) else cause


def _no_answer(address: str, cause: str) -> str:
    return f"--cluster {address}: no Flink cluster answers there ({cause})"
