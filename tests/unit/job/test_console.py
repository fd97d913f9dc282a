import io

from freshet.job.console import ProgressDisplay, Stats, format_stats

FULL = Stats(
    events=12_345,
    events_per_s=6789.4,
    epoch=12,
    rows=90_000,
    lag_events=1500,
    latency_ms_p50=4800.34,
    latency_ms_p99=9600.0,
    applied_ms_p50=2.34,
    applied_ms_p99=16.0,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_has_every_field() -> None:
    assert format_stats(FULL) == (
        "events 12,345  events/s 6,789  epoch 12  lag 1,500  p50 4800.3 ms  p99 9600.0 ms  "
        "applied p50 2.3 ms  p99 16.0 ms  rows 90,000"
    )


def test_what_is_rejected_stands_last_where_there_is_any() -> None:
    assert format_stats(FULL._replace(rejected="2.0%: id: missing")).endswith("rows 90,000  rejected 2.0%: id: missing")


def test_unknown_figures_show_as_dashes() -> None:
    assert "lag -  p50 -  p99 -  applied p50 -  p99 -" in format_stats(
        Stats(events=0, events_per_s=0.0, epoch=0, rows=0)
    )


def test_without_a_terminal_a_line_every_ten_seconds_and_the_last() -> None:
    clock, stream = Clock(), io.StringIO()
    with ProgressDisplay(stream=stream, clock=clock) as progress:
        for second in range(25):
            clock.now = float(second)
            progress.update(FULL._replace(epoch=second))
    lines = stream.getvalue().splitlines()
    assert [line.split("epoch ")[1].split()[0] for line in lines] == ["10", "20", "24"]


def test_nothing_is_printed_when_nothing_was_reported() -> None:
    stream = io.StringIO()
    with ProgressDisplay(stream=stream, clock=Clock()):
        pass
    assert stream.getvalue() == ""


def test_on_a_terminal_the_line_is_redrawn_in_place() -> None:
    clock, stream = Clock(), Terminal()
    with ProgressDisplay(stream=stream, clock=clock) as progress:
        for tick in range(10):
            clock.now = tick * 0.15
            progress.update(FULL._replace(epoch=tick))
    assert "epoch 9" in stream.getvalue()
    assert stream.getvalue().count("\n") <= 2
