"""A Flink from the installed PyFlink package: its scripts run with a configuration folder and a library folder of ours.

`python -m freshet.job.dev.flink_home FOLDER KEY=VALUE…` makes both folders, for the container image.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from freshet.job.machine.artifacts import CONNECTOR, PLUGINS, S3, cached_jars, make_plugins
from freshet.job.machine.java import flink_home, java_options_of_flink
from freshet.job.machine.python_path import own_folders

_LOGGING = ("log4j-console.properties", "log4j-cli.properties", "log4j-session.properties")
# As the embedded cluster has it: the quick compiler starts sooner, and our own work is not in Java.
_QUICK = "-XX:TieredStopAtLevel=1"


def make_folders(folder: Path, options: Mapping[str, str]) -> dict[str, str]:
    """Make Flink's folders in a new one, and return what its scripts need in the environment.

    Options are added to what every cluster of Freshet wants: Python in thread mode, one slot per TaskManager,
    checkpoints that outlive their job.
    """
    home, conf, lib = flink_home(), folder / "conf", folder / "lib"
    for path in (conf, lib, folder / "log", folder / "tmp"):
        path.mkdir(parents=True)
    config = yaml.safe_dump(_common(folder) | dict(options), width=10_000)
    (conf / "config.yaml").write_text(config, encoding="utf-8")
    for name in _LOGGING:
        (conf / name).symlink_to(home / "conf" / name)
    # Python operators need this jar beside Flink's own, Kafka's tables the connector (a job brings it, too).
    jars = [*(home / "lib").glob("*.jar"), *(home / "opt").glob("flink-python*.jar")]
    for jar in [*jars, *cached_jars(CONNECTOR)]:
        (lib / jar.name).symlink_to(jar)
    make_plugins(folder / "plugins", cached_jars(S3))
    return {
        "FLINK_HOME": str(home),
        "FLINK_CONF_DIR": str(conf),
        "FLINK_LIB_DIR": str(lib),
        PLUGINS: str(folder / "plugins"),
        "FLINK_LOG_DIR": str(folder / "log"),
        "FLINK_PID_DIR": str(folder),
    }


def _common(folder: Path) -> dict[str, str]:
    return {
        "jobmanager.memory.process.size": "1000m",
        "taskmanager.numberOfTaskSlots": "1",
        "taskmanager.memory.process.size": "1800m",
        "taskmanager.memory.managed.size": "128m",
        # Little on the way between operators: what one is ahead of another waits in their inboxes.
        "taskmanager.network.memory.buffer-debloat.enabled": "true",
        "taskmanager.network.memory.buffer-debloat.target": "50 ms",
        **dict.fromkeys(("io.tmp.dirs", "web.tmpdir"), str(folder / "tmp")),
        "env.java.opts.all": f"{java_options_of_flink()} {_QUICK}{_scratch(folder / 'tmp')}",
        "python.execution-mode": "thread",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.pythonpath": ":".join(own_folders()),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.num-retained": "3",
        "metrics.fetcher.update-interval": "1000",
    }


def _scratch(folder: Path) -> str:
    """Return the option by which Java has its temporary files in a folder, such as those that Flink's client copies.

    A process that is killed leaves them behind. Not for a path with spaces, at which Flink's scripts split options.
    """
    return f" -Djava.io.tmpdir={folder}" if shlex.quote(str(folder)) == str(folder) else ""


if __name__ == "__main__":
    make_folders(Path(sys.argv[1]), dict(option.split("=", 1) for option in sys.argv[2:]))
