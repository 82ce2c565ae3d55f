"""torchrun jobs on this machine."""

import os
import subprocess
import sys

LIMIT = 300  # seconds


def start(ranks, *command, folder):
    """Start a script or `-m module` with this number of ranks."""
    environment = {
        "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return subprocess.Popen(
        [*launcher, *map(str, command)], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | environment,
    )  # fmt: skip


def finish(job):
    """Wait for a job. Returns a CompletedProcess."""
    stdout, stderr = job.communicate(timeout=LIMIT)
    return subprocess.CompletedProcess(job.args, job.returncode, stdout, stderr)
