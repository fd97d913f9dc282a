"""A check says what it is at, also while it is inside one long call."""

import io
import itertools
import time

import pytest

from freshet.job.console import CheckProgress, ProgressDisplay


def test_what_goes_on_is_shown_while_the_caller_is_busy() -> None:
    shown, seconds = io.StringIO(), itertools.count(0, 11)  # every look at the clock is 11 s later
    progress = CheckProgress(ProgressDisplay("freshet check", shown, lambda: float(next(seconds))), clock=lambda: 0.0)
    deadline = time.monotonic() + 60
    with progress:
        progress.report("full pass over 3 vertices")
        while shown.getvalue().count("full pass") < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert "freshet check  full pass over 3 vertices  0 s" in shown.getvalue()
    after = shown.getvalue()
    time.sleep(0.5)
    assert shown.getvalue() == after


def test_nothing_is_shown_of_a_check_that_takes_no_time() -> None:
    shown = io.StringIO()
    with pytest.raises(ValueError, match="wrong"), CheckProgress(ProgressDisplay("freshet check", shown)):
        raise ValueError("wrong")
    assert shown.getvalue() == ""
