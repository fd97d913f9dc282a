"""The memory of a container, by files as the kernel shows them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from freshet.state.memory import machine_memory
from freshet.state.memory.machine_memory import available_memory, total_memory
from tests.unit.test_imports import ROOT, package_files

MIB = 1 << 20
TOTAL, FREE = 64_000 * MIB, 48_000 * MIB
UNLIMITED_V1 = "9223372036854771712"
V2_MOUNT = "24 23 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNTS = (
    "23 22 0:20 / /proc rw - proc proc rw\n"
    "31 23 0:27 {within} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 23 0:28 {within} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
)


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = SimpleNamespace(total=TOTAL, available=FREE)
    monkeypatch.setattr(machine_memory.psutil, "virtual_memory", lambda: shown)


def machine(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    """A root folder with these lines in /proc/self, and these files below /sys/fs/cgroup."""
    given = {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts}
    for name, text in (given | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def test_without_control_groups_it_is_the_machine(tmp_path: Path) -> None:
    assert (total_memory(tmp_path), available_memory(tmp_path)) == (TOTAL, FREE)


def test_a_container_of_version_2_sees_its_group_as_the_root(tmp_path: Path) -> None:
    files = {
        "memory.max": str(700 * MIB),
        "memory.high": "max",
        "memory.current": str(300 * MIB),
        "memory.stat": f"anon 1\nactive_file {40 * MIB}\ninactive_file {60 * MIB}",
    }
    root = machine(tmp_path, "0::/", V2_MOUNT, files)
    assert (total_memory(root), available_memory(root)) == (700 * MIB, 500 * MIB)


def test_of_nested_groups_the_least_limit_counts(tmp_path: Path) -> None:
    files = {
        "a/memory.max": str(2000 * MIB),
        "a/memory.current": str(1900 * MIB),
        "a/b/memory.max": str(1000 * MIB),
        "a/b/memory.current": str(500 * MIB),
        "a/b/c/memory.max": "max",
        "a/b/c/memory.current": str(200 * MIB),
    }
    root = machine(tmp_path, "0::/a/b/c", V2_MOUNT, files)
    assert total_memory(root) == 1000 * MIB
    assert available_memory(root) == 100 * MIB, "others have nearly all of the outer group's"


def test_max_is_no_limit(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/a", V2_MOUNT, {"a/memory.max": "max", "a/memory.current": str(5 * MIB)})
    assert (total_memory(root), available_memory(root)) == (TOTAL, FREE)


def test_where_a_group_is_slowed_down_counts_as_its_limit(tmp_path: Path) -> None:
    files = {"a/memory.max": "max", "a/memory.high": str(800 * MIB), "a/memory.current": str(100 * MIB)}
    root = machine(tmp_path, "0::/a", V2_MOUNT, files)
    assert (total_memory(root), available_memory(root)) == (800 * MIB, 700 * MIB)


@pytest.mark.parametrize("within", ["/", "/docker/1f", "/elsewhere"])
def test_version_1(within: str, tmp_path: Path) -> None:
    """Mounted as a whole, as the container's own group, and as one that /proc does not know."""
    group = "docker/1f/" if within == "/" else ""
    files = {
        f"memory/{group}memory.limit_in_bytes": str(700 * MIB),
        f"memory/{group}memory.usage_in_bytes": str(300 * MIB),
        f"memory/{group}memory.stat": f"total_active_file {40 * MIB}\ntotal_inactive_file {60 * MIB}",
        "cpu,cpuacct/memory.limit_in_bytes": "1",
    }
    root = machine(tmp_path, "9:cpu,cpuacct:/x\n4:memory:/docker/1f\n0::/", V1_MOUNTS.format(within=within), files)
    assert (total_memory(root), available_memory(root)) == (700 * MIB, 500 * MIB)


def test_version_1_tells_of_limits_above_what_can_be_seen(tmp_path: Path) -> None:
    files = {
        "memory/memory.limit_in_bytes": UNLIMITED_V1,
        "memory/memory.usage_in_bytes": str(100 * MIB),
        "memory/memory.stat": f"hierarchical_memory_limit {900 * MIB}",
    }
    root = machine(tmp_path, "4:memory:/docker/1f", V1_MOUNTS.format(within="/docker/1f"), files)
    assert (total_memory(root), available_memory(root)) == (900 * MIB, 800 * MIB)


def test_a_group_that_is_full_has_nothing_left(tmp_path: Path) -> None:
    files = {"memory.max": str(MIB), "memory.current": str(2 * MIB)}
    assert available_memory(machine(tmp_path, "0::/../../elsewhere", V2_MOUNT, files)) == 0


def test_memory_is_asked_for_in_one_place() -> None:
    asked = ("virtual_memory", "SC_PHYS_PAGES", "SC_AVPHYS_PAGES", "/proc/meminfo")
    files = [*package_files(), *(ROOT / "scripts").rglob("*.py")]
    found = [file for file in files if any(one in file.read_text(encoding="utf-8") for one in asked)]
    assert found == [ROOT / "state/memory/machine_memory.py"]
