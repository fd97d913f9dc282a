"""What waits in a job, as an onlooker sees it."""

from __future__ import annotations

from pathlib import Path

from freshet.job.run.watching import IN_FLIGHT, LOOK_S, LevelWatch, in_flight_bytes, operator_levels
from freshet.operators.telemetry.level import Level
from freshet.operators.telemetry.profile import Profile, read_profiles


def tell(out: Path, operator: str, given: int, taken: int, away: int = 0, waiting: int = 0) -> None:
    profile = Profile(out, operator, 0)
    profile.bytes_out, profile.bytes_in, profile.bytes_away = given, taken, away
    profile.levels["outbox_bytes"] = level = Level(bound=50)
    level.add(waiting)
    profile.write()


def test_what_nobody_has_taken_is_in_flight(tmp_path: Path) -> None:
    assert in_flight_bytes(read_profiles(tmp_path)) == 0
    tell(tmp_path, "partitioner", 100, 0)
    tell(tmp_path, "storage0", 300, 60)
    tell(tmp_path, "sink", 900, 200, away=900)
    assert in_flight_bytes(read_profiles(tmp_path)) == 40 + 100, "what went to a topic does not count"
    tell(tmp_path, "sink", 900, 700, away=900)
    assert in_flight_bytes(read_profiles(tmp_path)) == 0, "told later than what the others had sent by then"


def test_a_watch_keeps_the_peak_and_asks_for_the_bound_until_it_knows(tmp_path: Path) -> None:
    now, answers = [0.0], [None, 1000]
    watch = LevelWatch(tmp_path, lambda: now[0])
    watch.network_bytes = lambda: answers.pop(0)
    for sent in (70, 90, 20):
        tell(tmp_path, "storage0", sent, 0, waiting=sent // 10)
        now[0] += LOOK_S / 3  # not each time
        watch.look()
        if sent == 90:
            now[0] += LOOK_S
            watch.look()
    told = watch.as_dict()
    assert told[IN_FLIGHT] == {"now": 20, "peak": 90, "bound": 1000}
    assert told["storage0.outbox_bytes"] == {"now": 2, "peak": 2, "bound": 50}
    assert operator_levels(read_profiles(tmp_path)) == {"storage0.outbox_bytes": told["storage0.outbox_bytes"]}
    assert not answers
