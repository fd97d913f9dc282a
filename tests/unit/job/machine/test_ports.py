"""Whether a server answers at an address."""

import random
import socket
import subprocess
import sys
import threading
import time

import pytest

from freshet.job.machine.ports import free_port, is_free, server_port, why_silent
from tests.support.runs.listening import has_ipv6


def test_a_seed_does_not_decide_and_no_port_is_given_twice():
    given = set()
    for _ in range(50):
        random.seed(0)
        given.add(server_port())
    assert len(given) == 50


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names that go with a process")
def test_no_two_processes_are_given_the_same_before_a_server_binds_it():
    claim = f"import socket; socket.socket(socket.AF_UNIX).bind('\\0freshet-port-{server_port()}')"
    refused = subprocess.run([sys.executable, "-c", claim], capture_output=True, text=True, check=False)
    assert "Address already in use" in refused.stderr


def test_a_server_that_listens_answers_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.monotonic()
        assert why_silent(f"127.0.0.1:{server.getsockname()[1]}", 30) is None
        assert time.monotonic() - began < 15


def test_nobody_is_told_in_time():
    began = time.monotonic()
    assert why_silent(f"127.0.0.1:{free_port()}", 0.3) == "Connection refused"
    assert time.monotonic() - began < 15


def test_one_that_is_just_starting_is_waited_for():
    port = free_port()
    servers = []
    timer = threading.Timer(0.6, lambda: servers.append(socket.create_server(("127.0.0.1", port))))
    timer.start()
    try:
        assert why_silent(f"127.0.0.1:{port}", 30) is None
    finally:
        timer.join()
        servers[0].close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_ports_of_any_kind_of_address(host):
    if host == "::1" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    port = free_port(0, host)
    assert is_free(port, host)
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as taken:
        taken.bind(place)
        taken.listen()
        assert not is_free(port, host)
        assert free_port(port, host) != port
