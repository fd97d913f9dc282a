"""Machines that share nothing, on one: processes with folders of their own, which do not see those of others.

Each process begins in a mount namespace of its own, in which the folder of all machines has its own one alone. Home,
cache and temporary files of a process are in there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from freshet.job.dev.flink_home import make_folders
from freshet.job.dev.local_cluster import TASK_MANAGER, ClusterProcess, LocalCluster
from freshet.job.flink.options import loopback_options
from freshet.job.machine.java import prepare_environment
from freshet.job.machine.processes import began_s
from freshet.job.machine.python_path import python_environ
from freshet.kernels.user_cache import CACHE_VARIABLE, user_cache

_HIDE = """
own="$1"; all="$2"; shift 2
mount --bind "$own" /mnt && mount -t tmpfs none "$all" && mkdir "$own" && mount --bind /mnt "$own" || exit 1
cd "$own" && exec "$@"
"""


def can_hide() -> bool:
    """Return whether this machine lets us have mount namespaces."""
    done = subprocess.run(["unshare", "-r", "-m", "true"], capture_output=True, check=False)
    return done.returncode == 0


class Machine:
    """A folder that only its own processes see, below one for all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("home", "tmp", "cache"):
            (folder / name).mkdir(parents=True)
        for warm in user_cache().glob("*"):  # kernels take a minute to compile; what a job fetches is not there yet
            if warm.name != "artifacts":
                copy = shutil.copytree if warm.is_dir() else shutil.copy
                copy(warm, folder / "cache" / warm.name)

    @property
    def environ(self) -> dict[str, str]:
        """What a process of this machine has in its environment."""
        own = {"HOME": "home", "XDG_CACHE_HOME": "cache", "TMPDIR": "tmp", CACHE_VARIABLE: "cache"}
        return {name: str(self.folder / folder) for name, folder in own.items()}

    def command(self, command: Iterable[object]) -> list[str]:
        """The command as a process of this machine."""
        return ["unshare", "-r", "-m", "sh", "-c", _HIDE, "sh", *map(str, (self.folder, self.folder.parent, *command))]


class ApartCluster(LocalCluster):
    """A cluster whose JobManager and TaskManagers are machines of their own."""

    def __init__(
        self, folder: Path, task_managers: int, environ: Mapping[str, str], options: Mapping[str, str]
    ) -> None:
        super().__init__(folder, task_managers, environ, options)
        self._given: dict[str, str] = {}
        self.machines: dict[str, Machine] = {}  # by the name of its process

    def _configure(self) -> None:
        prepare_environment(self.environ)
        self.environ |= python_environ(self.environ)
        self._given = loopback_options(self._rest_port) | self._options

    def logs(self) -> str:
        """Return the end of what each process said."""
        files = sorted(self.folder.glob("*/said.log"))
        return "\n".join(f"--- {path.parent.name}\n{path.read_text(errors='replace')[-2000:]}" for path in files)

    def _launch(
        self, role: str, slots: int, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> ClusterProcess:
        name = f"{role}-{self._started}"
        self._started += 1
        if role == TASK_MANAGER:
            arguments = (*arguments, "-D", f"taskmanager.resource-id={name}")
        machine = self.machines[name] = Machine(self.folder / name)
        own = make_folders(machine.folder / "flink", self._given)
        command = machine.command([self.home / "bin" / f"{role}.sh", "start-foreground", *arguments])
        with (machine.folder / "said.log").open("wb") as log:
            child = subprocess.Popen(
                command,
                cwd=machine.folder,
                env={**self.environ, **own, **machine.environ, **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children[child.pid] = child
        return ClusterProcess(child.pid, began_s(child.pid), name, slots)


def client_environ(machine: Machine, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command on a machine."""
    return {**os.environ, **environ, **machine.environ}
