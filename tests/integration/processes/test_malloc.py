import os
import subprocess
import sys

from freshet.job.local.malloc import reserve_little

_ADDRESSED = """
import sys
from freshet.job.local.malloc import reserve_little
if sys.argv[1:]:
    reserve_little()
import numpy as np, pyarrow as pa
from freshet.gnn.numerics.dense import matmul
matmul(np.ones((300, 128), np.float32), np.ones((128, 128), np.float32))
status = open("/proc/self/status").read()
print(pa.default_memory_pool().backend_name, status.split("VmData:")[1].split()[0])
"""


def test_what_the_environment_says_holds() -> None:
    environ = {"OPENBLAS_NUM_THREADS": "3"}
    reserve_little(environ)
    assert environ["OPENBLAS_NUM_THREADS"] == "3"
    assert environ["ARROW_DEFAULT_MEMORY_POOL"] == "system"


def test_libraries_map_less_ahead() -> None:
    # other tests may have set what a Java process is started with
    env = {k: v for k, v in os.environ.items() if not k.endswith("_THREADS") and k != "ARROW_DEFAULT_MEMORY_POOL"}
    found = []
    for arguments in ([], ["little"]):
        command = [sys.executable, "-c", _ADDRESSED, *arguments]
        pool, kib = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout.split()
        found.append(int(kib))
        assert (pool == "system") == bool(arguments)
    more = 32 << 10 if len(os.sched_getaffinity(0)) > 1 else 0
    assert found[1] <= found[0] - more
