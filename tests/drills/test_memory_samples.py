"""What the pause test reads from its samples: each figure tells good from bad."""

from __future__ import annotations

from pathlib import Path

from tests.drills.memory_samples import MIB, Pause, Sample, caught_up_after_s, draw, rises, stood_after_s

PAUSE = Pause(10.0, 20.0)


def samples(read: list[int], rss: list[int]) -> list[Sample]:
    """One every two seconds; an event for each byte."""
    pairs = enumerate(zip(read, rss, strict=True))
    return [Sample(2.0 * k, {"tm": held * MIB}, seen, seen, {"sink.rows_bytes": held}) for k, (seen, held) in pairs]


def test_a_source_that_stands_and_one_that_does_not() -> None:
    stands = samples([0, 1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 7, 8], [0] * 13)
    assert stood_after_s(stands, PAUSE) == 2.0
    goes_on = samples(list(range(13)), [0] * 13)
    assert stood_after_s(goes_on, PAUSE) == 10.0


def test_memory_that_rises_in_the_pause() -> None:
    found = samples([0, 1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 7, 8], [1, 1, 9, 5, 5, 5, 7, 7, 8, 7, 7, 90, 90])
    assert rises(found, PAUSE) == {"tm": 3 * MIB}, "neither what it was long before, nor after"
    assert rises(found, PAUSE, since_s=2.0) == {"tm": 1 * MIB}
    leaks = samples([0] * 13, list(range(13)))
    assert rises(leaks, PAUSE, since_s=2.0) == {"tm": 4 * MIB}


def test_when_it_has_caught_up() -> None:
    assert caught_up_after_s(samples([0, 1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 7, 8], [0] * 13), PAUSE, 8) == 4.0


def test_a_picture(tmp_path: Path) -> None:
    draw(samples([0, 5, 5, 9], [1, 2, 2, 1]), Pause(2.0, 4.0), tmp_path / "pause.png", "a pause")
    assert (tmp_path / "pause.png").read_bytes().startswith(b"\x89PNG")
