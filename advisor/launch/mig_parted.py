"""Files that set up a GPU for jobs that something else starts: MPS daemons, or mig-parted's YAML.

mig-parted's format is v1, as its documentation and examples have it: by configuration, the devices,
whether MIG is on, and how many of each profile; ``3c.7g.141gb`` is a compute instance. It has no
word for a place: mig-parted tries the orders in turn until one fits.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from advisor.errors import InvalidInput
from advisor.launch import shell
from advisor.launch.launch_plan import NOT_RUN, LaunchPartition, LaunchPlan
from advisor.launch.shell import which_gpu, whole_wanted
from advisor.launch.shell_state import MPS_WORDS

_HEAD = """\
#!/usr/bin/env bash
# MPS for {sharing} on one {gpu}.
#   bash FILE start            starts the daemons
#   bash FILE run JOB COMMAND  runs COMMAND as the job of that number, with its limits and cores
#   bash FILE stop             ends the daemons; the jobs must have ended
"""


def mps_text(plan: LaunchPlan) -> str:
    """A script that starts and stops the plan's MPS daemons, and runs commands as its jobs.

    Raises:
        InvalidInput: No job of `plan` shares by MPS.
    """
    partitions = [part for part in plan.partitions if part.under_mps]
    if not partitions:
        raise InvalidInput(
            f"{plan.sharing}: no job of it shares by MPS. Export it as commands instead."
        )
    head = _HEAD.format(sharing=plan.sharing, gpu=plan.gpu.key)
    script = [*_cap_wanted(plan), *_places(partitions), *_verbs(partitions), ""]
    return head + "\n".join(script)


def _cap_wanted(plan: LaunchPlan) -> Iterator[str]:
    """A comment, where somebody else has to set the power cap of `plan`."""
    if plan.power_cap_w is not None:
        cap = f"nvidia-smi -i 0 --power-limit={plan.power_cap_w:g}"
        yield f"# It does not set the plan's power cap. As root: {cap}"


def _places(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    if any(part.instance for part in partitions):
        yield f"# {NOT_RUN}"
    yield "set -euo pipefail"
    yield shell.NOBODYS_MPS
    yield from which_gpu(None)
    yield from shell.core_words(partitions, by_scheduler=False)
    for part in partitions:
        if part.instance:
            yield f': "${{MIG_{part.number}:?set it to the UUID of {part}: nvidia-smi -L}}"'
    # A short path, since pipes are Unix sockets.
    yield "folder=${XDG_RUNTIME_DIR:-/tmp/advisor-$UID}/advisor-mps"
    for part in partitions:
        yield f"{shell.folder(part)}=$folder/{part.number}"


def _verbs(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    yield from MPS_WORDS
    yield "stop() {"
    yield from (f"  {shell.daemon_stopped(part)}" for part in partitions)
    yield "}"
    yield 'usage() { echo "usage: $0 start | run JOB COMMAND... | stop" >&2; exit 2; }'
    yield "case ${1:-} in"
    yield "start)"
    yield from (f"  {line}" for line in _start(partitions))
    yield "  ;;"
    yield "stop)"
    yield from ("  stop", "  ;;", "run)", "  [ $# -gt 2 ] || usage", "  job=$2", "  shift 2")
    yield from _jobs(partitions)
    yield from ("  ;;", "*) usage ;;", "esac")


def _start(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    """Starts all daemons or none; daemons that run already, maybe with jobs, are left alone."""
    if not any(part.instance for part in partitions):
        yield from whole_wanted()
    for part in partitions:
        said = f'echo "MPS runs already, in ${shell.folder(part)}: bash $0 stop" >&2'
        yield f"! {shell.daemon_answers(part)} || {{ {said}; exit 1; }}"
    for part in partitions:
        yield f'mkdir -p "${shell.folder(part)}"'
        yield f"{shell.device(part)} {shell.daemon_started(part)} || {{ stop; exit 1; }}"


def _jobs(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    yield "  case $job in"
    for part in partitions:
        off = '{ echo "MPS is off: bash $0 start" >&2; exit 1; }'
        for start in part.starts:
            given = [shell.numbered(start), shell.device_of_job(part), *shell.client(part, start)]
            yield f"  {start.number})  # {start.job.name}"
            yield f"    {shell.daemon_answers(part)} || {off}"
            yield f'    exec env {" ".join([*given, *shell.pinned(start)])} "$@" ;;'
    yield '  *) echo "no job of this plan under MPS: $job" >&2; exit 2 ;;'
    yield "  esac"


def mig_parted_text(plan: LaunchPlan) -> str:
    """One configuration of GPU 0 for each stage of `plan`: ``advisor``, or ``advisor-1``, ..."""
    return "\n".join([*_configurations(plan), ""])


def _configurations(plan: LaunchPlan) -> Iterator[str]:
    several = len(plan.stages) > 1
    yield f"# {plan.sharing} on one {plan.gpu.key}."
    if plan.on_mig:
        yield f"# {NOT_RUN}"
        yield "# Places are left to mig-parted: the file has no word for them."
    if any(part.under_mps for part in plan.partitions):
        yield "# It does not start MPS: the script of `advisor export --format mps` does."
    yield from _cap_wanted(plan)
    yield "# Apply: nvidia-mig-parted apply -f FILE -c " + ("advisor-1" if several else "advisor")
    yield "version: v1"
    yield "mig-configs:"
    for number, stage in enumerate(plan.stages, start=1):
        yield f"  advisor-{number}:" if several else "  advisor:"
        yield "    - devices: [0]"
        yield f"      mig-enabled: {'true' if stage.on_mig else 'false'}"
        if stage.on_mig:
            yield "      mig-devices:"
            counts = Counter(str(part.profile) for part in stage.partitions)
            yield from (f'        "{profile}": {count}' for profile, count in counts.items())
