"""`freshet` with the fence of the cut log taken out: each attempt has transactional ids of its own.

An attempt that was cut off then seals on, beside the one that has taken over: where its transaction has timed out
meanwhile, it begins another one, as nothing tells it that it should not.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.cut_channel import CarriedProperties, KafkaChannel
from freshet.job.run import settings


class UnfencedChannel(KafkaChannel):
    """The channel of an attempt that nobody fences."""

    def write(self, record: bytes) -> int:
        """Commit a record, whatever stands in the way."""
        try:
            return super().write(record)
        except OSError:
            self._id = f"unfenced-{uuid.uuid4().hex}"
            self.fence()
            return super().write(record)


def open_channel(topic: str, properties: Mapping[str, str], secrets: Mapping[str, str], job: str) -> KafkaChannel:
    """The channel of an attempt that nobody fences."""
    own = f"unfenced-{job}-{uuid.uuid4().hex}"
    return UnfencedChannel(KafkaAddress.parse(topic), CarriedProperties(properties, secrets), own)


if __name__ == "__main__":
    from freshet.job.cli import main

    settings.OPENER = "tests.drills.unfenced:open_channel"
    main()
