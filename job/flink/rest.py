"""The few calls of Flink's REST interface that we need: stop with a savepoint, why a job restarted, its memory."""

from __future__ import annotations

import time
from typing import Any

import httpx

from job.flink.errors import is_to_ask_again, root_cause_of_text
from job.flink.job_spec import location

_POLL_S = 0.1
NOT_IN_TIME = "no savepoint in time"  # it may still come


class FlinkRestError(RuntimeError):
    """Flink refused a call or could not be reached; the message says which."""


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
        return str(self._call("GET", f"/jobs/{self.job_id}/status")["status"])

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

    def network_bytes(self) -> int:
        """Return the network memory of all TaskManagers together: what can be under way between their tasks."""
        managers = self._call("GET", "/taskmanagers")["taskmanagers"]
        return sum(int(manager["memoryConfiguration"]["networkMemory"]) for manager in managers)

    def stop(self, target: str, timeout_s: float) -> str:
        """Stop the job with a savepoint below the folder `target` (a URI) and return where it is.

        A job of which a task is just starting or ending is asked again. Raises: FlinkRestError when Flink refuses,
        fails, or is not done in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self._stop(target, deadline)
            except FlinkRestError as error:
                if not is_to_ask_again(str(error)) or time.monotonic() + _POLL_S >= deadline:
                    raise
            time.sleep(_POLL_S)

    def _stop(self, target: str, deadline: float) -> str:
        body = {"targetDirectory": target, "drain": False}
        trigger = self._call("POST", f"/jobs/{self.job_id}/stop", body)["request-id"]
        while time.monotonic() < deadline:
            answer = self._call("GET", f"/jobs/{self.job_id}/savepoints/{trigger}")
            if answer["status"]["id"] == "COMPLETED":
                operation = answer["operation"]
                if "location" in operation:
                    return location(str(operation["location"]))
                cause = root_cause_of_text(operation.get("failure-cause", {}).get("stack-trace", ""))
                message = f"job {self.job_id}: no savepoint: {cause}"
                raise FlinkRestError(message)
            time.sleep(_POLL_S)
        message = f"job {self.job_id}: {NOT_IN_TIME}"
        raise FlinkRestError(message)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            answer = self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            message = f"{self._http.base_url}{path}: {type(error).__name__}: {error}"
            raise FlinkRestError(message) from error
        if answer.status_code >= 400:
            try:
                reasons = answer.json()["errors"]
            except (ValueError, KeyError):
                reasons = [answer.text]
            message = f"{method} {path}: {answer.status_code}: {root_cause_of_text(str(reasons[-1]))}"
            raise FlinkRestError(message)
        return answer.json()
