"""A Slurm of one's own: munge, the controller and two nodes on this machine, in a folder, as any user."""

import contextlib
import os
import pathlib
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples/programs"))
from minigpt_program import RANKS_SHARING_CORES

PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol"]
SECONDS_TO_END = 5  # between SIGTERM and SIGKILL

# Two minutes pass before a job that was put back may start: cred_expire, shortened to what Slurm allows.
# Both nodes are this machine: PMIx needs a folder for each (TmpFS), and so does Open MPI's shared memory.
PROLOG = """#!/bin/sh
echo "export OMPI_MCA_btl_vader_backing_directory={folder}/$SLURMD_NODENAME/tmp"
"""
CONFIGURATION = """
ClusterName=triax
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/%n
TmpFS={folder}/%n/tmp
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/prolog
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
KillWait={kill_wait}
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def obstacle():
    """Why there can be no cluster; empty if there can."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # where daemons are
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"no {', '.join(missing)}; Debian's packages: slurmctld slurmd slurm-client munge"
    return ""


def free_ports(count):
    with contextlib.ExitStack() as open_ones:
        found = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


class Cluster:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.configuration = self.folder / "slurm.conf"
        self.environment = dict(RANKS_SHARING_CORES, SLURM_CONF=str(self.configuration))
        self.daemons = []

    def __enter__(self):
        for name in "munge", "state", "n1/tmp", "n2/tmp":
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        key = self.folder / "munge/key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        self.configuration.write_text(CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], ports=free_ports(3), folder=self.folder,
            user=pwd.getpwuid(os.getuid()).pw_name, kill_wait=SECONDS_TO_END))
        prolog = self.folder / "prolog"
        prolog.write_text(PROLOG.format(folder=self.folder))
        prolog.chmod(0o755)
        try:
            self.start_daemons()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_daemons(self):
        files = [f"--{name}-file={self.folder}/munge/{name.split('-')[0]}" for name in ("key", "pid", "log", "seed")]
        self.daemon("munged", "-F", "--force", f"--socket={self.folder}/munge/socket", *files)
        self.wait(lambda: (self.folder / "munge/socket").exists(), "munged")
        self.daemon("slurmctld", "-D")
        self.daemon("slurmd", "-D", "-N", "n1")
        self.daemon("slurmd", "-D", "-N", "n2")
        self.wait(lambda: self.run("sinfo", "-h", "-o", "%D %t").stdout == "2 idle\n", "two idle nodes")

    def daemon(self, *command):
        """Ends with this process, however that ends."""
        with open(self.folder / f"{command[0]}{len(self.daemons)}.out", "wb") as out:
            self.daemons.append(subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command], stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, env=self.environment, start_new_session=True))

    def wait(self, condition, what, seconds=30):
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit, f"waited {seconds} s for {what}\n{self.logs()}"
            time.sleep(0.1)

    def logs(self):
        """The ends of what the daemons wrote."""
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')[-1500:]}"
                         for path in sorted(self.folder.glob("*.log")) + sorted(self.folder.glob("*.out")))

    def run(self, *command, seconds=120, **environment):
        return subprocess.run([str(word) for word in command], env=self.environment | environment,
                              capture_output=True, text=True, timeout=seconds)

    def processes(self):
        """All that belongs to the cluster and its jobs, by the name of the configuration in the environment."""
        mark, found = f"SLURM_CONF={self.configuration}".encode(), []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(timeout=10)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for daemon in self.daemons:
            daemon.wait()
