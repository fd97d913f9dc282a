"""First events of a new job's sources, which decide what options leave open: the kinds of ids and of keys of edges."""

from __future__ import annotations

import re
import time

from freshet.job.console import say
from freshet.job.run.sources import Sources
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.files import ChunkReader
from freshet.operators.parser.formats import TEXTS
from freshet.operators.parser.messages import RawMessage
from freshet.partitioner.ids import INT

_EDGE_S = 5.0  # how long a first edge is waited for, once the messages that were there are read
_SAY_S = 10.0  # between two lines while messages are read
_FILES = 8  # whose first rows are looked at
_OTHER_ID = re.compile(r"(id|src|dst): expected an integer like the job's other ids, got the string")


def decide_kinds(sources: Sources, parser: Parser) -> None:
    """Read the first events, those of files first, until they have decided the kinds of ids and of keys of edges.

    In a topic, the first accepted event is waited for, and with --edge-key the first edge with a key. Without it, the
    first edge among the messages that are there decides whether edges have keys; where there is none, one that comes
    within a few seconds.

    Raises: EventFileError; JobFailed when the brokers can't be reached.
    """
    for file in sources.files:
        for _ in file.events(0, parser) if parser.is_open else ():
            if not parser.is_open:
                break
    if sources.topics and parser.is_open:
        _read_topics(sources, parser)


def tell_other_ids(sources: Sources, parser: Parser) -> None:
    """Say of files of text that their first rows have ids that are no integers, where the first event's were.

    `parser` has decided the kind of ids.
    """
    files = [file for file in sources.files if file.chunks and file.chunks[0].format in TEXTS]
    for file in files[:_FILES] if parser.id_kind == INT else ():
        chunk = file.chunks[0]
        reader = ChunkReader(every_column=parser.is_mapped, fields=parser.fields)
        _, letters = parser.parse_chunk(chunk, reader.read(chunk))
        odd = [letter for letter in letters if _OTHER_ID.match(letter.error)]
        if odd:
            say(
                f"{file.name}: {len(odd):,} of its first {chunk.count:,} rows will be rejected, as row "
                f"{odd[0].offset}: {odd[0].error}; --id-type string takes numbers and texts"
            )


def _read_topics(sources: Sources, parser: Parser) -> None:
    from freshet.job.kafka.read_topics import first_messages

    keys, messages = parser.keys, 0
    behind = {topic.index: topic.ends_now() != topic.start for topic in sources.topics}
    if parser.id_kind is not None and not keys.is_given and not any(behind.values()):
        say("no messages yet: edges of this job have no keys without --edge-key")
        return  # the kind of ids is not waited for, and nothing else is open
    said, said_s, edge_s = set[str](), time.monotonic(), None
    for topic, found, is_behind in first_messages(sources.topic_specs, sources.topics[0].properties):
        parser.parse_messages([RawMessage(*one[1:]) for one in found], Origin(topic.source, str(topic.address)))
        if not parser.is_open:
            return
        behind[topic.source], messages, now = is_behind, messages + len(found), time.monotonic()
        if parser.id_kind is None:
            line = "waiting for the first event, which decides the kind of ids; --id-type int or string saves the wait"
        elif keys.is_given:
            line = "waiting for the first edge with a key, which decides the kind of keys"
        elif any(behind.values()):
            if now - said_s >= _SAY_S:
                said_s = now
                say(f"looking for the first edge, which decides whether edges have keys: none in {messages:,} messages")
            continue
        else:
            line = f"waiting for the first edge, which decides whether edges have keys, for {_EDGE_S:g} s"
            edge_s = edge_s or now
            if now - edge_s >= _EDGE_S:
                say(f"no edge in the first {messages:,} messages: edges of this job have no keys without --edge-key")
                return
        if line not in said and not found:
            said.add(line)
            say(line)
