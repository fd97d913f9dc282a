"""The server of `freshet run --flight-port`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import yaml

from freshet.job.folder.run_file import read_run
from freshet.job.options.config_file import load_run_config
from freshet.job.serving.embedded import server_of_run


def test_a_server_that_ends_before_its_run_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said, until = "", time.monotonic() + 60
    with server_of_run(0, tmp_path / "O"):
        os.kill(read_run(tmp_path / "O")["serving"]["pid"], signal.SIGKILL)
        while "another one by" not in said and time.monotonic() < until:
            time.sleep(0.05)
            said += capfd.readouterr().err
    assert "the server of --flight-port has ended (exit code -9)" in said
    assert f"freshet serve --tables {tmp_path}/O/tables" in said


def test_properties_of_kafka_are_handed_to_what_reads_the_input_and_stand_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, python = tmp_path / "told", tmp_path / "python"
    lines = "#!/bin/sh", f"exec > {told}", "echo $*", "for last; do :; done", "cat $last $last", "echo end"
    python.write_text("\n".join(lines))
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    kafka = {"sasl.jaas.config": "x"}
    given = {"model": "M", "events": "kafka://b:9092/t", "out": "O", "flight_port": 0, "kafka": kafka}
    for more, are_asked, expected in (({"what_if": True}, False, kafka), ({}, True, kafka), ({}, False, None)):
        served = load_run_config(given | more).served(are_asked=are_asked)
        with server_of_run(0, tmp_path / "O", served["server_options"], served["server_config"]):
            until = time.monotonic() + 60
            while not (told.exists() and told.read_text().endswith("end\n")):
                assert time.monotonic() < until
                time.sleep(0.01)
        command, *lines, _ = told.read_text().splitlines()
        told.unlink()
        assert "jaas" not in command
        if expected:
            first, second = "\n".join(lines).split("kafka:")[1:]  # it is read as often as the graph is opened
            assert yaml.safe_load(first) == yaml.safe_load(second) == expected


def test_the_end_of_the_run_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with server_of_run(None, tmp_path / "O"):
        pass
    assert not capfd.readouterr().err
