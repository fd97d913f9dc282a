"""A script that is ended by a signal takes what it has started along."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial

import pytest

_SERVES = """
import signal, sys, time
import typer
from freshet.job.dev.script import run_script
app = typer.Typer()

@app.command()
def serve():
    try:
        print("up", flush=True)
        time.sleep(60)
    except Exception:
        print("taken for a finding", flush=True)
    finally:
        signal.raise_signal(signal.SIGTERM)
        print("servers ended", flush=True)

run_script(app, "serve")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_unwinds_the_script(number: signal.Signals) -> None:
    heard = partial(signal.signal, number, signal.SIG_DFL)  # also where the tests run by nohup, which ignores SIGHUP
    command = [sys.executable, "-c", _SERVES]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=heard)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    said, _ = process.communicate(timeout=600)
    assert (said, process.returncode) == ("servers ended\n", 128 + number)
