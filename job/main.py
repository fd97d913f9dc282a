"""The job as a program: `flink run -py job/main.py --spec job.json`, or here `python -m freshet.job.main`.

With `--config job.yaml`, the options of `freshet run`, it is the program of a Flink application (`freshet spec`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

# `flink run -py` starts this file, not a module: its folder would come first, and has packages named as libraries are.
# The package lies beside it in a checkout, and above it where it is installed; a copy finds what is installed.
_HERE = Path(__file__).resolve().parent
_ROOT = [str(folder) for folder in _HERE.parents if (folder / "freshet" / "job").is_dir()][:1]
sys.path[:] = [*_ROOT, *(path for path in sys.path if Path(path).resolve() != _HERE)]

from freshet.errors import FreshetError  # noqa: E402
from freshet.files.owner_only import write_for_owner_only  # noqa: E402
from freshet.job.errors import exit_code  # noqa: E402

if TYPE_CHECKING:
    from freshet.job.flink.job_spec import JobSpec


def submit(spec: JobSpec) -> None:
    """Draw and submit the job from inside `flink run`."""
    from freshet.job.flink.application import environment_of_client
    from freshet.job.flink.dataflow import build

    env = environment_of_client(spec)
    build(env, spec)
    env.execute(spec.name)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a spec file; exit 0 done, 2 wrong spec, 3 failed (root cause last on stderr), 128+n by signal."""
    parser = argparse.ArgumentParser(prog="freshet.job.main", description=__doc__)
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument("--spec", type=Path, help="the job's JSON file")
    one.add_argument("--config", type=Path, help="options of freshet run, for a Flink application")
    write_for_owner_only()
    given = parser.parse_args(argv)
    try:
        return _run(given.spec) if given.config is None else _run_application(given.config)
    except FreshetError as error:
        print(error, file=sys.stderr)
        return exit_code(error)


def _run(path: Path) -> int:
    from freshet.job.flink.application import is_started_by_flink
    from freshet.job.flink.job_spec import JobSpec
    from freshet.job.flink.runtime import run_job
    from freshet.job.folder.lock import taken
    from freshet.kernels.processor import choose_blas, core_of

    spec = JobSpec.load(path)
    if is_started_by_flink():
        submit(spec)
        return 0
    choose_blas(core_of(spec.stage.get("processor", {})))  # for the workers: they inherit this environment

    with taken(spec.out_path, "freshet.job.main"):
        result = run_job(spec, restarted=lambda cause: print(f"restarted after: {cause}", file=sys.stderr))
    return 128 + result.signal if result.signal else 0


def _run_application(config: Path) -> int:
    from freshet.job.commands.run import start
    from freshet.job.machine.processes import die_with_parent

    die_with_parent()  # the JobManager: its successor runs a program of its own
    sys.path.append(str(config.parent.absolute()))  # where `freshet spec` puts the modules of --layers
    return start({}, config, in_application=True)


if __name__ == "__main__":
    sys.exit(main())
