"""A Slurm of one node on this machine: its programs are real, its GPUs are device files."""

import os
import re
import shutil
import socket
import subprocess
from contextlib import ExitStack, contextmanager
from getpass import getuser
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.waiting import PATIENCE_S, until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol")
MISSING = [name for name in PROGRAMS if not shutil.which(name, path="/usr/sbin:/usr/bin:/bin")]

_CONF = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
{types}
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
KillWait={patience_s}
NodeName={host} NodeAddr=127.0.0.1 CPUs=256 Gres={gres}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count):
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def configure(folder, script, counts):
    """Write the files of a node with the GPUs that `script` asks for, or `counts` for each N."""
    (types,) = re.findall("^#   (GresTypes=.*)", script, re.MULTILINE)
    lines = re.findall("^#   NodeName=NODE Gres=(.*)", script, re.MULTILINE)
    gres = ",".join(line.replace(":N", f":{n}") for line, n in zip(lines, counts, strict=True))
    text = _CONF.format(
        host=socket.gethostname().partition(".")[0],
        user=getuser(),
        folder=folder,
        ports=free_ports(2),
        types=types,
        gres=gres,
        patience_s=PATIENCE_S,
    )
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").touch()
    (folder / "state").mkdir()
    (folder / "munge.key").touch(0o600)
    (folder / "munge.key").write_bytes(os.urandom(128))
    lines = []
    for kind, count in re.findall(r"gpu:(?:([\w.]+):)?(\d+)", gres):
        for _ in range(int(count)):
            device = folder / f"nvidia{len(lines)}"
            device.symlink_to("/dev/null")
            lines.append(f"Name=gpu {f'Type={kind} ' * bool(kind)}File={device}\n")
    lines += [f"Name=shard Count={count}\n" for count in re.findall(r"shard:(\d+)", gres)]
    (folder / "gres.conf").write_text("".join(lines))


@contextmanager
def slurm_node(script, counts=(2,)):
    """A node set up as the comments of `script` ask; yields what its programs need to find it.

    It has so many GPUs as `counts` of each type that the comments list.
    """
    with TemporaryDirectory(prefix="slurm-") as path, ExitStack() as ending:
        folder = Path(path)
        folder.chmod(0o755)  # munged wants all users to reach its socket
        configure(folder, script, counts)
        own = {"SLURM_CONF": f"{folder}/slurm.conf"}
        environment = os.environ | own | {"PATH": f"/usr/sbin:{os.environ['PATH']}"}
        munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "seed", "pid", "log")]
        running = []

        def start(*command):
            out = ending.enter_context((folder / f"{command[0]}.out").open("w"))
            running.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
            ending.callback(running[-1].wait)
            ending.callback(running[-1].terminate)

        def is_idle():
            outs = [file.read_text() for file in folder.glob("*.out")]
            assert [each.poll() for each in running] == [None] * 3, outs
            asked = ["sinfo", "-h", "-o", "%T"]
            done = subprocess.run(asked, env=environment, capture_output=True, check=False)
            return done.stdout == b"idle\n"

        start("munged", "-F", f"--socket={folder}/munge.sock", *munge)
        until((folder / "munge.sock").exists)
        start("slurmctld", "-D")
        start("slurmd", "-D")
        until(is_idle)
        yield own
