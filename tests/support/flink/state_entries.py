"""What a savepoint or a full checkpoint of a Flink job is made of, told by the names of its entries.

Flink writes the entries of keyed state one after the other, and the names that Freshet gives them are ASCII: an entry
reaches from its name to the next one. What has no such name (metadata, timers) counts to what stands before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(
    rb"journal/\d{12}/(?P<first>\d+)|(?P<page>[a-z][a-z_.0-9]*(?:/\d+)?)@(?P<tag>\d+)|\bsealed|\bformat|\bimage"
)


@dataclass(frozen=True)
class StateBytes:
    """Bytes of a state: in all, of the journal, and of pages that a newer version of the same page stands beside.

    `journal_firsts` are the numbers of the first events of the journal's blocks, in order.
    """

    total: int
    journal: int
    older: int
    journal_firsts: tuple[int, ...]

    @property
    def graph(self) -> int:
        """All but what comes and goes between two markers."""
        return self.total - self.journal - self.older

    @property
    def journal_block(self) -> float:
        """Of each block of events."""
        return self.journal / max(1, len(self.journal_firsts))


def state_bytes(folder: Path) -> StateBytes:
    """Sum up the files of a state that shares none with others."""
    total = journal = older = 0
    firsts: list[int] = []
    for data in (file.read_bytes() for file in folder.rglob("*") if file.is_file()):
        total += len(data)
        names = list(_NAME.finditer(data))
        newest: dict[bytes, int] = {}
        for name in names:
            if name["page"]:
                newest[name["page"]] = max(newest.get(name["page"], 0), int(name["tag"]))
        for name, end in zip(names, [*(following.start() for following in names[1:]), len(data)], strict=True):
            if name["first"]:
                journal += end - name.start()
                firsts.append(int(name["first"]))
            elif name["page"] and int(name["tag"]) < newest[name["page"]]:
                older += end - name.start()
    return StateBytes(total, journal, older, tuple(sorted(firsts)))
