"""Names of kinds as names of folders, tables and topics: plain ones as they are, all others reversibly."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.gnn.kinds.names import check_kinds, check_type
from freshet.job.serving.feeds.checked import job_fields
from freshet.kind_names import read_kind, topic_end, written_kind
from freshet.operators.output_folders import LogFolders, kind_of_log, log_id

NAMES = [
    "Biological Process",
    "Blue Hammer",
    "a/b",
    "..",
    ".",
    ".hidden",
    "_unfinished",
    "-x",
    "100%",
    "a%20b",
    "биологический процесс",
    "生物过程",
    "می\u200cخواهم",
    "%-0123456789abcdef",
    "a" * 65,
    "Ж" * 200,
    "tab le\u00a0",
]
PLAIN = ["user", "User", "a.b", "a_b", "a-b", "1", "u" * 64]


def is_legal(name: str) -> bool:
    """Return whether folders, files beside unfinished ones, and parts of topics' names may have this name."""
    return 0 < len(name.encode()) <= 128 and "/" not in name and name[0] not in "._"


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_names_stay_as_they_are(kind: str) -> None:
    assert written_kind(kind) == topic_end(kind) == read_kind(kind) == kind


def test_all_names_are_apart_and_legal() -> None:
    check_kinds(NAMES)
    for kind in NAMES:
        check_type(kind)
    for names in ([written_kind(kind) for kind in NAMES + PLAIN], [topic_end(kind) for kind in NAMES + PLAIN]):
        assert len(set(names)) == len(names)
        assert all(map(is_legal, names))
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", topic_end(kind)) for kind in NAMES)
    assert [written_kind(kind) for kind in NAMES[1:4]] == ["Blue%20Hammer", "a%2Fb", "%2E."]
    assert topic_end("Blue Hammer") == "-Blue-20Hammer"
    assert "%-" in written_kind("Ж" * 200), "cut, with a hash"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=12))
def test_a_folders_name_says_the_kind(kind: str) -> None:
    written = written_kind(kind)
    assert read_kind(written) == unquote(written) == kind
    assert is_legal(written)
    assert unquote(topic_end(kind)[1:].replace("-", "%")) == kind or topic_end(kind) == kind


@pytest.mark.parametrize("kind", NAMES + PLAIN)
def test_folders_and_logs_know_their_kind(tmp_path: Path, kind: str) -> None:
    log = LogFolders(tmp_path, kind)
    assert log.embeddings.parent == tmp_path / "embeddings"
    assert log.tables.parent == tmp_path / "tables"
    assert LogFolders.of_tables(log.tables).tables == log.tables
    identity = log_id("0123456789abcdef", kind)
    assert kind_of_log(identity, kind) == kind
    told = {"job_id": identity, "strings": False, "width": 2, "sources": ["e"], "kind_name": kind}
    assert job_fields(told)["kind_name"] == kind


def test_the_log_of_an_only_kind_has_no_kind() -> None:
    assert kind_of_log(log_id("j", ""), "user") == ""
    assert kind_of_log("j.user", "") == "user", "of a server that does not say the name"
