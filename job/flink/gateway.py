"""Starts the Java process that PyFlink talks to, with our memory, our log and a life tied to ours.

PyFlink would start one itself, but hands it pipes that nobody reads (a chatty operator then blocks for good after
64 KB) and lets it live on for up to ten seconds after this process was killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from job.errors import JobFailed
from job.flink.java_command import end_java, start_java
from job.machine.java import prepare_environment

_SERVER = "org.apache.flink.client.python.PythonGatewayServer"
_START_TIMEOUT_S = 60.0


class GatewayError(JobFailed):
    """The Java process did not come up; the message has the end of its output."""


def start_gateway(logs: Path, scratch: Path, heap_mb: int, direct_mb: int = 0) -> subprocess.Popen[bytes]:
    """Start the Java process and connect PyFlink to it; call once, from a thread that outlives the job.

    `scratch` has to be there, and is to be taken away when the process has ended; `direct_mb`: what Java may need
    outside the heap, where it may take as much as the heap anyway.
    Raises: GatewayError when it does not come up; RuntimeError when PyFlink already has a gateway.
    """
    from pyflink import java_gateway

    if java_gateway._gateway is not None:
        msg = "PyFlink already runs a Java process in this one: one Flink job per process"
        raise RuntimeError(msg)
    prepare_environment()
    folder = Path(tempfile.mkdtemp(prefix="freshet-gateway-"))
    env = {**os.environ, "_PYFLINK_CONN_INFO_PATH": str(folder / "port")}
    env.pop("PYFLINK_GATEWAY_PORT", None)
    try:
        # Where it can't be tied to us, the end of its standard input ends it within seconds.
        log, output, direct = logs / "flink.log", logs / "java.log", f"{max(heap_mb, direct_mb)}m"
        process = start_java([_SERVER], heap_mb, log, output, scratch, env, [f"-XX:MaxDirectMemorySize={direct}"])
        port = _read_port(process, folder / "port", output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    os.environ["PYFLINK_GATEWAY_PORT"] = str(port)
    watchdog = java_gateway.Watchdog

    def locked() -> Any:
        _lock_out_others(java_gateway._gateway)
        return watchdog()

    # The watchdog is the last thing that PyFlink hands over, and the first by which Java calls back, on a thread of its
    # own: a call between two of the fields that are set would be refused, and Java would end.
    java_gateway.Watchdog = locked
    try:
        java_gateway.get_gateway()
    finally:
        java_gateway.Watchdog = watchdog
        del os.environ["PYFLINK_GATEWAY_PORT"]
    # Py4J logs a traceback for each call to a Java process that has died, by its own logger or by the root logger.
    logging.getLogger("py4j.java_gateway").disabled = True
    logging.getLogger().addFilter(_is_not_of_py4j)
    return process


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _lock_out_others(gateway: Any) -> None:
    """Ask a token of whoever connects from now on, in both directions.

    Both ports are on the loopback address, where every local user could run code as us. Py4J knows tokens, but PyFlink
    starts it without one, so it is set in the running servers; a later Flink whose fields have other names fails here.
    """
    token = secrets.token_hex(32)
    server = gateway.java_gateway_server
    for end in (server.getCallbackClient(), server):
        field = end.getClass().getDeclaredField("authToken")
        field.setAccessible(True)
        field.set(end, token)
    gateway.gateway_parameters.auth_token = token
    gateway.get_callback_server().callback_server_parameters.auth_token = token


def _read_port(process: subprocess.Popen[bytes], path: Path, log: Path) -> int:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        if path.is_file() and path.stat().st_size >= 4:
            return int(struct.unpack("!I", path.read_bytes()[:4])[0])
        time.sleep(0.02)
    process.kill()
    tail = log.read_text(errors="replace")[-2000:].strip()
    msg = f"the Java process did not start (exit {process.wait()}): {tail}"
    raise GatewayError(msg)


def stop_gateway(process: subprocess.Popen[bytes]) -> None:
    """End the Java process by force, and close what led to it."""
    from pyflink import java_gateway

    end_java(process)
    gateway, java_gateway._gateway = java_gateway._gateway, None
    if gateway is not None:
        with contextlib.suppress(Exception):  # the other side is gone: only our own sockets are left to close
            gateway.shutdown_callback_server()
            gateway.close()
