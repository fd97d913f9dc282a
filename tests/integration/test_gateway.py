"""The Java process that PyFlink talks to answers nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import socket
import sys
from pathlib import Path
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError
from freshet.job.flink.gateway import start_gateway, stop_gateway
from pyflink.java_gateway import get_gateway

class Task:
    def run(self):
        print("called")

    class Java:
        implements = ["java.lang.Runnable"]


process = start_gateway(Path(sys.argv[1]), Path(sys.argv[1]), 512)
try:
    ours = get_gateway()
    port = ours.gateway_parameters.port
    print("ours", ours.jvm.java.lang.Math.abs(-7))
    for token in (None, "0" * 64):
        other = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            print("other", other.jvm.java.lang.System.getProperty("user.dir"))
        except Py4JError as error:
            print("refused", type(error).__name__)
    ours.jvm.java.lang.Thread(Task()).run()  # on a connection of its own: the watchdog keeps the first one busy
    with socket.create_connection(("127.0.0.1", ours.get_callback_server().get_listening_port()), 60) as stranger:
        stranger.settimeout(60)
        stranger.sendall(b"c\\np0\\nrun\\ne\\n")
        try:
            print("python", stranger.recv(100).decode().strip() or "refused")
        except ConnectionError:
            print("python refused")
finally:
    stop_gateway(process)
"""


# A stranger tries both ports at the moments when PyFlink has them open, before it has handed over anything.
EARLY = """
import socket
import sys
from pathlib import Path
import psutil
from py4j.java_gateway import GatewayParameters, JavaGateway
from pyflink import java_gateway
from freshet.job.flink import gateway as ours

def java_port():
    children = psutil.Process().children(recursive=True)
    ports = [one.laddr.port for child in children for one in child.net_connections() if one.status == "LISTEN"]
    print("ports of Java", len(ports))
    return ports[0]

def stranger_of_java():
    other = JavaGateway(gateway_parameters=GatewayParameters(port=java_port()))
    try:
        print("java answers", other.jvm.java.lang.System.getProperty("user.dir"))
    except Exception as error:
        print("java refuses", type(error).__name__)

def stranger_of_python(gateway):
    with socket.create_connection(("127.0.0.1", gateway.get_callback_server().get_listening_port()), 60) as stranger:
        stranger.settimeout(60)
        stranger.sendall(b"c\\nnobody\\nrun\\ne\\n")
        try:
            print("python answers" if stranger.recv(100) else "python refuses")
        except ConnectionError:
            print("python refuses")

def before_connecting(get=java_gateway.get_gateway):
    stranger_of_java()
    return get()

def as_it_connects(gateway, view=java_gateway.import_flink_view):
    stranger_of_java()
    stranger_of_python(gateway)
    view(gateway)

java_gateway.get_gateway, java_gateway.import_flink_view = before_connecting, as_it_connects
process = ours.start_gateway(Path(sys.argv[1]), Path(sys.argv[1]), 512)
try:
    token = java_gateway._gateway.gateway_parameters.auth_token
    lines = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
    stands = [str(value) for child in psutil.Process().children() for value in child.environ().values()]
    print("token seen" if any(token in line for line in [*lines, *stands]) else "token hidden")
finally:
    ours.stop_gateway(process)
"""


def test_nobody_comes_in_before_the_token_is_asked_for(tmp_path: Path) -> None:
    assert _said(EARLY, tmp_path) == [
        *("ports of Java 1", "java refuses Py4JError"),
        *("ports of Java 1", "java refuses Py4JError", "python refuses"),
        "token hidden",
    ]


def test_only_the_process_that_started_it_may_use_it(tmp_path: Path) -> None:
    said = _said(PROGRAM, tmp_path)
    assert said[:1] == ["ours 7"]
    assert [line.split()[0] for line in said[1:3]] == ["refused", "refused"], said[1:3]
    assert said[3:5] == ["called", "python refused"]


def _said(program: str, folder: Path) -> list[str]:
    command = [sys.executable, "-c", program, str(folder)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        out, errors = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors.decode()
    return out.decode().splitlines()
