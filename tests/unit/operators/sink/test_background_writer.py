"""The thread that writes files lives until it is closed, whatever happens on it, and tells."""

import time

import pytest

from freshet.operators.sink import background_writer
from freshet.operators.sink.background_writer import BackgroundWriter
from freshet.operators.sink.change_log import ChangeLogError
from freshet.operators.sink.log_output import LogOutput
from tests.support.stages.sunk import block, control, files, sink_of


@pytest.fixture(autouse=True)
def _eager(monkeypatch):
    monkeypatch.setattr(background_writer, "IDLE_S", 0.001)


def test_an_error_while_there_is_nothing_to_write_surfaces_at_the_next_file():
    def on_idle():
        message = "on purpose"
        raise RuntimeError(message)

    writer = BackgroundWriter(lambda file: None, on_idle)
    writer.start()
    deadline = time.monotonic() + 60
    with pytest.raises(ChangeLogError, match="RuntimeError: on purpose"):
        while time.monotonic() < deadline:
            writer.check()
    for _ in range(4):  # more than may wait: nobody who hands a file over is kept
        with pytest.raises(ChangeLogError):
            writer.submit(None)
    with pytest.raises(ChangeLogError):
        writer.close()
    assert not writer._thread.is_alive()


def test_a_sink_that_takes_long_to_come_up_writes(tmp_path, monkeypatch):
    """The thread once called the Sink back before it was whole, and died; the Sink then waited for ever."""
    begin = LogOutput.__init__

    def slowly(self, *arguments):
        begin(self, *arguments)
        time.sleep(0.1)

    monkeypatch.setattr(LogOutput, "__init__", slowly)
    sink = sink_of(tmp_path)
    sink.apply(1, [block(1, [1], control=control())])
    sink.close()
    assert files(tmp_path) == ["part-0-00000000.parquet"]
