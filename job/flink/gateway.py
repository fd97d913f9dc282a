"""Starts the Java process that PyFlink talks to, with our memory, our log and a life tied to ours.

PyFlink would start one itself, but hands it pipes that nobody reads (a chatty operator then blocks for good after
64 KB) and lets it live on for up to ten seconds after this process was killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from job.errors import JobFailed
from job.machine.java import prepare_environment
from job.machine.processes import die_with_parent

_LOG4J = """rootLogger.level = ${env:FRESHET_FLINK_LOG_LEVEL:-INFO}
rootLogger.appenderRef.file.ref = file
appender.file.name = file
appender.file.type = RollingFile
appender.file.fileName = ${sys:log.file}
appender.file.filePattern = ${sys:log.file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %-40.40c{1} %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 50MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""
_START_TIMEOUT_S = 60.0


class GatewayError(JobFailed):
    """The Java process did not come up; the message has the end of its output."""


def _tie_to_parent() -> None:
    """In the child, before exec: die with the parent, and leave the terminal's signals to it."""
    die_with_parent()  # elsewhere than on Linux the gateway's own watchdog ends it within seconds
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _command(env: dict[str, str], log4j: Path, log: Path, heap_mb: int) -> list[str]:
    from pyflink import pyflink_gateway_server as server

    server.prepare_environment_variables(env)
    return [
        str(Path(env["JAVA_HOME"]) / "bin" / "java"),
        # Java only moves bytes here: its second compiler costs more than it brings (measured on two cores: 3 s of start
        # and 4% of the throughput). JVM_ARGS can take it back.
        "-XX:TieredStopAtLevel=1",
        *env.get("JVM_ARGS", "").split(),
        f"-Xms{min(heap_mb, 512)}m",
        f"-Xmx{heap_mb}m",
        "-XX:+UseG1GC",
        "-XX:G1HeapRegionSize=8m",  # blocks of a megabyte are ordinary objects then
        "-XX:+UseTransparentHugePages",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+IgnoreUnrecognizedVMOptions",
        "--add-opens=jdk.proxy2/jdk.proxy2=ALL-UNNAMED",
        *server.get_jvm_opts(env),
        f"-Dlog.file={log}",
        f"-Dlog4j.configurationFile={log4j}",
        "-cp",
        server.construct_flink_classpath(env),
        "org.apache.flink.client.python.PythonGatewayServer",
    ]


def start_gateway(logs: Path, heap_mb: int) -> subprocess.Popen[bytes]:
    """Start the Java process and connect PyFlink to it; call once, from a thread that outlives the job.

    Raises: GatewayError when it does not come up; RuntimeError when PyFlink already has a gateway.
    """
    from pyflink import java_gateway

    if java_gateway._gateway is not None:
        msg = "PyFlink already runs a Java process in this one: one Flink job per process"
        raise RuntimeError(msg)
    prepare_environment()
    logs.mkdir(parents=True, exist_ok=True)
    log4j = logs / "log4j.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    folder = Path(tempfile.mkdtemp(prefix="freshet-gateway-"))
    env = {**os.environ, "_PYFLINK_CONN_INFO_PATH": str(folder / "port")}
    env.pop("PYFLINK_GATEWAY_PORT", None)
    try:
        command = _command(env, log4j, logs / "flink.log", heap_mb)
        with (logs / "java.log").open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # held open by us: the gateway also ends when it closes
                stdout=output,
                stderr=output,
                env=env,
                preexec_fn=_tie_to_parent,
            )
        port = _read_port(process, folder / "port", logs / "java.log")
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
    return process


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
    """End the Java process by force: call it when the job is over, its shutdown hooks would only take seconds."""
    from pyflink import java_gateway

    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
    gateway, java_gateway._gateway = java_gateway._gateway, None
    if gateway is not None:
        with contextlib.suppress(Exception):  # the other side is gone: only our own sockets are left to close
            gateway.shutdown_callback_server()
            gateway.close()
