"""`freshet` with the fence of the cut log taken out: each attempt has a transactional id of its own.

An attempt that was cut off then seals on, beside the one that has taken over.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.cut_channel import CarriedProperties, KafkaChannel
from freshet.job.run.prepare import cut_log


def open_channel(topic: str, properties: Mapping[str, str], secrets: Mapping[str, str], job: str) -> KafkaChannel:
    """The channel of an attempt that nobody fences."""
    own = f"unfenced-{job}-{uuid.uuid4().hex}"
    return KafkaChannel(KafkaAddress.parse(topic), CarriedProperties(properties, secrets), own)


if __name__ == "__main__":
    from freshet.job.cli import main

    cut_log._OPENER = "tests.drills.unfenced:open_channel"
    main()
