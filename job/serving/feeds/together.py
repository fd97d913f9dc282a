"""Follows the kinds of vertices of one server together, epoch by epoch, so that their tables are often at one epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from freshet.job.serving.feeds.follower import Follower
from freshet.state.served.mapped import NEWEST

_POLL_S = 0.002


def follow(followers: Sequence[Follower], until: Callable[[], bool]) -> None:
    """Follow jobs until `until` returns True, or until one of them is left behind."""
    for one in followers:
        one.beside = followers
    while not (until() or any(one.is_left_behind for one in followers)):
        keep_in_step(followers)
        keep_in_step([one for one in (each.next_one for each in followers) if one is not None])
        if not any([one.turn() for one in followers]):
            time.sleep(_POLL_S)


def keep_in_step(followers: Sequence[Follower]) -> None:
    """Let those that are behind come to the epoch of the first one, which waits for them; at one epoch, let all go on.

    Tables of the change log have only some epochs of their job, and two that go on by themselves may have none in
    common.
    """
    epochs = {one.table.epoch for one in followers}
    is_apart = len(epochs) > 1 and len({one.job.base for one in followers}) == 1
    for one in followers:
        one.upto = max(epochs) if is_apart else NEWEST
