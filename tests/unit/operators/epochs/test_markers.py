"""When a marker comes, and what it lets go of the journal."""

from freshet.operators.control import MARKER
from freshet.operators.epochs.cut_log import CutLog
from tests.support.stages.sealed import Job, edges


def test_markers_follow_the_clock() -> None:
    log = CutLog()
    job = Job(log, marker_interval_ms=100)
    for k in range(8):
        job.receive(4, 1 + 40.0 * k, first=4 * k)
    assert [cut.epoch for cut in log.cuts.values() if cut.marker] == [4, 7]
    assert [epoch for epoch, ctl in job.sent.items() if ctl[MARKER] >= 0] == [4, 7]


def test_markers_come_at_the_latest_after_so_many_epochs() -> None:
    log = CutLog()
    job = Job(log, marker_interval_ms=10**9, marker_epochs_max=3)
    job.receive(40)
    assert [cut.epoch for cut in log.cuts.values() if cut.marker] == [3, 6, 9]


def test_markers_thin_out_as_the_state_grows() -> None:
    """A second per 20 MB that all pages may come to: here 20 ms per epoch of four edges."""
    log = CutLog()
    job = Job(log, marker_interval_ms=10, edge_bytes=100_000)
    for k in range(14):
        job.receive(4, 1 + 25.0 * k, first=4 * k)
    assert [cut.epoch for cut in log.cuts.values() if cut.marker] == [2, 6]


def test_markers_follow_the_bytes_of_the_journal() -> None:
    """However fast events come: here all at one moment."""
    log, size = CutLog(), len(edges(4))
    job = Job(log, marker_interval_ms=10**9, journal_bytes=3 * size - 1)
    level = job.stage.levels["journal_bytes"]
    for k in range(20):
        job.receive(4, first=4 * k)
        assert level.now == job.journal_bytes <= level.peak <= level.bound
    assert [cut.epoch for cut in log.cuts.values() if cut.marker] == [3, 6, 9, 12, 15, 18]
    assert level.peak == 6 * size, "from the marker before last on, which the marker that is due takes away"
    assert level.bound == 2 * (3 * size - 1 + size)
    assert (job.stage.levels["waiting_bytes"].now, job.stage.levels["waiting_events"].now) == (0, 0)


def test_a_journal_may_grow_to_what_a_marker_would_write() -> None:
    log, size = CutLog(), len(edges(4))
    job = Job(log, marker_interval_ms=10**9, journal_bytes=2 * size, edge_bytes=size // 8)
    for k in range(40):
        job.receive(4, now_ms=1.0, first=4 * k)
    markers = [cut.epoch for cut in log.cuts.values() if cut.marker]
    assert markers == [2, 4, 7, 13, 25], "half as many blocks as there are, which the edges weigh"


def test_bytes_since_the_marker_survive_a_restart() -> None:
    size = len(edges(4))
    options = {"marker_interval_ms": 10**9, "journal_bytes": 5 * size}
    for stopped_after in range(1, 19):
        log = CutLog()
        job = Job(log, **options)
        for k in range(20):
            if k == stopped_after:
                job = Job(log, job.entries, **options)
                assert job.stage.levels["journal_bytes"].now == job.journal_bytes
            job.receive(4, first=4 * k)
        assert [cut.epoch for cut in log.cuts.values() if cut.marker] == [5, 10, 15, 20], stopped_after
        assert job.stage.levels["waiting_events"].peak == 4, "what was replayed did not wait"


def test_what_waits_to_be_sealed_is_counted() -> None:
    job = Job(CutLog())
    events, held = job.stage.levels["waiting_events"], job.stage.levels["waiting_bytes"]
    job.receive(3)
    assert (events.now, held.now) == (3, len(edges(3)))
    job.receive(3, first=3)
    assert (events.now, held.now) == (2, len(edges(3, 3))), "a block that is sealed in part is held whole"
    assert (events.peak, events.bound) == (6, 4 + 3)
    job.keep(job.stage.finish())
    assert (events.now, held.now) == (0, 0)


def test_the_journal_is_cut_at_the_marker_before_the_last() -> None:
    job = Job(CutLog(), marker_interval_ms=10**9, marker_epochs_max=2)
    kept = {}
    for first in range(0, 28, 4):
        job.receive(4, first=first)
        kept[first + 4] = job.journal[0]
    # markers after 8, 16 and 24 events; a restore begins at the one before the last
    assert kept == {4: 0, 8: 0, 12: 0, 16: 8, 20: 8, 24: 16, 28: 16}


def test_a_restart_does_not_put_off_where_the_journal_is_cut() -> None:
    log = CutLog()
    job = Job(log, marker_interval_ms=10**9, marker_epochs_max=2)
    for first in range(0, 20, 4):
        job.receive(4, first=first)
    again = Job(log, job.entries, marker_interval_ms=10**9, marker_epochs_max=2)
    again.receive(4, first=20)
    assert (again.journal[0], again.journal_bytes) == (16, again.stage.levels["journal_bytes"].now)


def test_a_block_that_reaches_over_the_marker_is_kept_whole() -> None:
    job = Job(CutLog(), marker_interval_ms=10**9, marker_epochs_max=2)
    job.receive(10)
    job.receive(10, first=10)
    assert job.journal == [0, 10], "the marker before last is at event 8, within the first block"
    job.receive(10, first=20)
    assert job.journal == [10, 20]


def test_markers_come_also_to_a_job_that_is_killed_before_each() -> None:
    log = CutLog()
    entries: dict[str, bytes] = {}
    for attempt in range(5):  # each lives for 4 ms, a marker comes every 10
        job = Job(log, entries)
        for k in range(2):
            job.receive(4, now_ms=1e6 * (attempt + 1) + 4 * k, first=8 * attempt + 4 * k)
        entries = job.entries
    assert [cut.epoch for cut in log.cuts.values() if cut.marker] == [6]


def test_epochs_that_the_log_decides_do_not_put_off_the_next_marker() -> None:
    """The state is saved before the last epoch that was cut; the next attempt seals that one first."""
    log, entries = CutLog(), dict[str, bytes]()
    for attempt in range(5):  # each lives for 8 ms, of which the state tells 4; a marker comes every 10
        job = Job(log, entries)
        for k in range(3):
            entries = dict(job.entries)
            job.receive(4, now_ms=1e6 * (attempt + 1) + 4 * k, first=8 * attempt + 4 * k)
    assert [cut.epoch for cut in log.cuts.values() if cut.marker] == [5, 9]
