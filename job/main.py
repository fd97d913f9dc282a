"""The job as a program: `flink run -py job/main.py --spec job.json`, or here `python -m freshet.job.main`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# `flink run -py` starts this file, not a module: its folder would come first, and has packages named as libraries are.
# The package lies beside it in a checkout, and above it where it is installed; a copy finds what is installed.
_HERE = Path(__file__).resolve().parent
_ROOT = [str(folder) for folder in _HERE.parents if (folder / "freshet" / "job").is_dir()][:1]
sys.path[:] = [*_ROOT, *(path for path in sys.path if Path(path).resolve() != _HERE)]

from freshet.errors import FreshetError  # noqa: E402
from freshet.files.owner_only import write_for_owner_only  # noqa: E402
from freshet.job.errors import exit_code  # noqa: E402
from freshet.job.flink.job_spec import JobSpec  # noqa: E402
from freshet.kernels.processor import choose_blas, core_of  # noqa: E402

# Set by Flink's own client, which has started Java already and submits what we draw to the cluster it was told.
_FLINK_CLIENT = "PYFLINK_GATEWAY_PORT"


def submit(spec: JobSpec) -> None:
    """Draw and submit the job from inside `flink run`."""
    from freshet.job.flink.dataflow import build
    from freshet.job.flink.options import environment, job_options

    # Where the job runs is the client's affair: only what belongs to the job itself is set here.
    theirs = ("taskmanager.", "rest.", "execution.target", "io.tmp.dirs")
    options = {key: value for key, value in job_options(spec).items() if not key.startswith(theirs)}
    env = environment(options)
    build(env, spec)
    env.execute(spec.name)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a spec file; exit 0 done, 2 wrong spec, 3 failed (root cause last on stderr), 128+n by signal."""
    parser = argparse.ArgumentParser(prog="freshet.job.main", description=__doc__)
    parser.add_argument("--spec", type=Path, required=True, help="the job's JSON file")
    write_for_owner_only()
    given = parser.parse_args(argv).spec
    try:
        return _run(JobSpec.load(given))
    except FreshetError as error:
        print(error, file=sys.stderr)
        return exit_code(error)


def _run(spec: JobSpec) -> int:
    if _FLINK_CLIENT in os.environ:
        submit(spec)
        return 0
    from freshet.job.flink.runtime import run_job
    from freshet.job.folder.lock import taken

    choose_blas(core_of(spec.stage.get("processor", {})))  # for the workers: they inherit this environment

    with taken(spec.out_path, "freshet.job.main"):
        result = run_job(spec, restarted=lambda cause: print(f"restarted after: {cause}", file=sys.stderr))
    return 128 + result.signal if result.signal else 0


if __name__ == "__main__":
    sys.exit(main())
