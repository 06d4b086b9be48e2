"""Plans as scripts that submit jobs to Slurm, for one GPU or several of any models and hosts.

After Slurm's documentation, Generic Resource Scheduling: jobs that share a GPU or a MIG instance
run in one allocation of it. Its gres/shard and gres/mps are left alone. Slurm 22.05 spreads the
shards of one GPU over all GPUs of the node, so jobs that ask for one each run on different GPUs.
gres/mps sets percentages from shares, and without a daemon that a prolog starts, CUDA runs without
MPS and prints nothing. Slurm gives out cores by count.
"""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from advisor.errors import InvalidInput, counted
from advisor.launch import shell
from advisor.launch.allocations import Allocation, allocations, power_caps, shared_lines
from advisor.launch.launch_plan import LaunchPlan
from advisor.launch.slurm_mig import (
    instances_wanted,
    mig_allocations,
    types_wanted,
    unknown_types,
)

_TESTED = "# Tested with Slurm 22.05 on one node without a GPU; not yet on a cluster."
_BEGINNING = """\
set -euo pipefail
unset "${!CUDA_MPS_@}"  # limits and daemon that the environment of sbatch names
# Slurm kills a job 30 s after it asks it to end: what the job changed is undone before that.
export ADVISOR_GRACE_S=${ADVISOR_GRACE_S:-10}
declare -A id=()
ids=()
submit() {  # a job with the script on stdin, called $1; its ID becomes id[$1]
  local new
  new=$(sbatch --parsable --output=%x-%j.log --job-name="$1" "${@:2}") ||
    { [ ${#ids[@]} = 0 ] || scancel "${ids[@]}"; exit 1; }
  ids+=("${new%%;*}") id[$1]=${new%%;*}
}"""
_OPTIONS = """\
# --time is twice the upper end of the predicted time; Slurm ends a job then.
# sbatch reads further options from SBATCH_PARTITION, SBATCH_ACCOUNT, ... in the environment."""


def slurm_text_of_all(plans: Sequence[LaunchPlan]) -> str:
    """Return a script that submits a job of Slurm for each allocation of `plans`.

    Comments list what the nodes need. MIG instances are for a single GPU.

    Raises:
        InvalidInput: Slurm would have to make MIG instances, or cannot tell them apart.
    """
    cut = next((plan for plan in plans if plan.on_mig), None)
    if cut and len(plans) > 1:
        raise InvalidInput(
            f"GPU {cut.number}, {cut.sharing}: Slurm makes no MIG instances. Export the plan as "
            f"commands or json, or plan without MIG: --no-root."
        )
    own = list(mig_allocations(cut)) if cut else allocations(plans)
    starts = [start for plan in plans for start in plan.starts]
    lines = [
        "#!/usr/bin/env bash",
        *_head(plans, own),
        *dict.fromkeys(line for plan in plans for line in shell.own_commands_wanted(plan)),
        *_BEGINNING.split("\n"),
        *(unknown_types(cut) if cut else ()),
        *shell.secrets(starts),
    ]
    for number in sorted({number for each in own for number in each.without_cores}):
        remedy = f"set it to the host cores of job {number}, which its profile lacks"
        lines.append(f': "${{CORES_{number}:?{remedy}}}"')
    shared = [] if all(each.alone for each in own) else shared_lines(own)
    scripts = ["\n".join(each.lines) for each in own]
    end = "END"
    while any(end in text for text in (*shared, *scripts)):
        end += "_"
    if shared:
        lines.append("script() {  # prints the one on stdin, with the functions that it calls")
        lines += [f"  cat; cat <<'{end}'", *shared, end, "}"]
    for allocation, script in zip(own, scripts, strict=True):
        into = f"<<'{end}'" if allocation.alone else f"< <(script <<'{end}'"
        lines += [f"submit {_words(allocation)} {into}", script, end]
        lines += [] if allocation.alone else [")"]
    return "\n".join([*lines, 'echo "Submitted: ${ids[*]}"', ""])


def _head(plans: Sequence[LaunchPlan], own: Sequence[Allocation]) -> Iterator[str]:
    """Comments on how to set up the nodes, and on what the script asks of them."""
    models = Counter(plan.gpu.key for plan in plans)
    gpus = " and ".join(f"{count} {key}" for key, count in models.items())
    if len(plans) > 1:
        yield f"# {counted(len({s.number for p in plans for s in p.starts}), 'job')} on {gpus}."
    else:
        yield f"# {plans[0].sharing} on a GPU of a node, one {plans[0].gpu.key}."
    yield _TESTED
    on_mig = plans[0].on_mig
    yield from instances_wanted(plans[0]) if on_mig else ()
    yield from power_caps(plans)
    yield "# gres.conf of the nodes:"
    yield "#   AutoDetect=nvml"
    yield "# slurm.conf, with the select/cons_tres plugin:"
    yield "#   GresTypes=gpu"
    counts = Counter(each.gres for each in own)
    keep = "Keep what else that line lists: other GPUs of the node are lost without it."
    if on_mig:
        types = ",".join(f"{name}:{count}" for name, count in counts.items())
        yield from (f"#   NodeName=NODE Gres={types}", f"# {keep}", *types_wanted(plans[0]))
    else:
        yield from (f"#   NodeName=NODE Gres={name}:N" for name in counts)
        yield f"# N: all GPUs that the node has. {keep}"
        yield "# Switch MIG mode off on the node: Slurm would give each job one instance of a GPU."
    if any(plan.gres for plan in plans):
        yield "# If `scontrol show nodes` lists other types, export with --gres-name."
    if any(plan.under_mps for plan in plans):
        yield "# Jobs under MPS start its daemon and stop it again: do not start one on the node."
    yield from _OPTIONS.split("\n")
    if any(each.memory_gib for each in own):
        yield "# --mem is the measured host memory and 25 %."
    lacking = dict.fromkeys(
        start.job.name
        for each in own
        for start in each.starts
        if start.job.profile.host_memory_mib is None
    )
    if lacking:
        yield f"# Set SBATCH_MEM_PER_NODE: profiles lack host memory: {', '.join(lacking)}."


def _words(own: Allocation) -> str:
    """Name and options of the job of Slurm that runs `own`.

    It asks for the most cores that are used at once, with variables for unknown numbers.
    """
    cores, words = str(own.cores), [own.name]
    if own.without_cores:
        times = f"{own.gpus} * " if own.gpus > 1 else ""
        unknown = [f"{times}CORES_{number}" for number in own.without_cores]
        cores = f"$(({' + '.join([cores, *unknown])}))"
    if len(own.starts) == 1:
        words.append(f"--job-name={shlex.quote(own.starts[0].job.name)}")
    words += [f"--gres={own.gres}:{own.gpus}", f"--cpus-per-task={cores}"]
    if own.gpus > 1:
        words.append("--nodes=1")
    if own.minutes is not None:
        words.append(f"--time={own.minutes}")
    if own.memory_gib is not None:
        words.append(f"--mem={own.memory_gib}G")
    if own.after:
        after = ":".join(f"${{id[{name}]}}" for name in own.after)
        words.append(f'--dependency="afterany:{after}"')
    return " ".join(words)
