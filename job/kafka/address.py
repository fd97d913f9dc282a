"""`kafka://HOST:PORT/TOPIC`: how an option names a Kafka topic, read in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass

SCHEME = "kafka://"
EXPECTED = "kafka://HOST:PORT/TOPIC (several brokers: kafka://HOST:PORT,HOST2:PORT2/TOPIC)"

_BROKER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][A-Za-z0-9_.-]*):(?P<port>[0-9]{1,5})", re.ASCII)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)  # what a broker accepts


class KafkaAddressError(ValueError):
    """An address of Kafka can't be understood; the message says what was got and what was expected."""


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """A topic and the brokers to ask for it; `bootstrap` is HOST:PORT, several parted by commas."""

    bootstrap: str
    topic: str

    @staticmethod
    def parse(text: str) -> KafkaAddress:
        """Read an address as it stands in an option; the inverse of `str`.

        Raises: KafkaAddressError for another scheme, a broker without a port, a topic that Kafka would refuse.
        """
        if not text.startswith(SCHEME):
            _refuse(text, "another scheme")
        brokers, slash, topic = text.removeprefix(SCHEME).partition("/")
        if not slash or not topic:
            _refuse(text, "no topic")
        for broker in brokers.split(","):
            found = _BROKER.fullmatch(broker)
            if not found or not 0 < int(found["port"]) < 65536:
                _refuse(text, f"{broker!r} is no HOST:PORT")
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            _refuse(text, f"the topic {topic!r} is not made of 1 to 249 letters, digits, dots, _ and -")
        return KafkaAddress(brokers, topic)

    def __str__(self) -> str:
        return f"{SCHEME}{self.bootstrap}/{self.topic}"


def is_kafka(text: str) -> bool:
    """Return whether an option's value means Kafka, correctly written or not, rather than a path."""
    return text.lower().startswith("kafka:")


def _refuse(text: str, why: str) -> None:
    # What stands before an @ would be a password: it is not repeated.
    shown = re.sub(r"//[^/]*@", "//…@", text)
    msg = f"got {shown!r} ({re.sub(r'^.*@', '…@', why)}), expected {EXPECTED}"
    raise KafkaAddressError(msg)
