"""A follower of other servers' tables alone, as one is that no tail reaches."""

from __future__ import annotations

from collections.abc import Callable

from freshet.job.serving.feeds.change_stream import ended_of
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.feeds.merging_follower import MergingFollower
from freshet.job.serving.feeds.table_flow import TableChange
from freshet.state.served.writer import TableWriter


class FedFollower(MergingFollower):
    """Takes the change of one server after the other, and says of the job what they say."""

    _failures = 0

    def start(self, until: Callable[[], bool] = lambda: False) -> None:
        """Begin with all rows of the first server that has them."""
        Follower.start(self, until)

    def run(self, until: Callable[[], bool]) -> None:
        """Follow until told to end."""
        while not until():
            self.step()

    def step(self) -> bool:
        """Take in the next piece."""
        before = self.table.epoch
        self._flow_from(None)
        return self.table.epoch > before

    def _load(self) -> None:
        floor = max(0, self._floor)
        self.table = self._table_for(0, 0)
        self._flow.stop()
        while self.table.epoch < floor and not self._until():
            self.step()

    def _take(self, change: TableChange) -> None:
        self._failures, self.ended = change.metadata["tail_failures"], ended_of(change.metadata)
        super()._take(change)

    def _beat_of(self, table: TableWriter, now: float) -> None:
        self._beat_at = now
        table.beat(self._source_us, self._failures, self.ended)

    def _is_of_former_job(self) -> bool:
        return False
