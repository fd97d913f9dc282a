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
from job.flink.gateway import start_gateway, stop_gateway
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
    with socket.create_connection(("127.0.0.1", ours.get_callback_server().get_listening_port()), 5) as stranger:
        stranger.settimeout(5)
        stranger.sendall(b"c\\np0\\nrun\\ne\\n")
        try:
            print("python", stranger.recv(100).decode().strip() or "refused")
        except ConnectionError:
            print("python refused")
finally:
    stop_gateway(process)
"""


def test_only_the_process_that_started_it_may_use_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        out, errors = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors.decode()
    said = out.decode().split("\n")
    assert said[:1] == ["ours 7"]
    assert [line.split()[0] for line in said[1:3]] == ["refused", "refused"], said[1:3]
    assert said[3:5] == ["called", "python refused"]
