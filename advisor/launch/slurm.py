"""Plans as scripts that submit jobs to Slurm, for one GPU or several of any models and hosts.

Jobs that share a GPU or a MIG instance run in one allocation of it: Slurm 22.05 spreads gres/shard
over all GPUs of a node, and gres/mps runs CUDA without MPS if no prolog starts its daemon.
"""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, inf, isfinite

from advisor.errors import InvalidInput, counted
from advisor.hardware.gpus import Gpu, MigProfile, gpu_meant
from advisor.hardware.mig import profile_of
from advisor.launch import shell
from advisor.launch.launch_plan import HOST_MARGIN, NOT_RUN, Allocation, LaunchPlan, allocations
from advisor.simulation.turns import line_s

_QUARTER_MIN = 15
_TIME_FACTOR = 2  # the predicted time is of steps alone, on a host without other load
_MIB_IN_GIB = 1024

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
_TYPES_VARY = """\
# `sudo slurmd -G` on the node lists Slurm's types, slices and GiB, which vary between
# drivers and releases, and any other type drains the node."""
_OPTIONS = """\
# --time is twice the upper end of the predicted time; Slurm ends a job then.
# sbatch reads further options from SBATCH_PARTITION, SBATCH_ACCOUNT, ... in the environment."""


def slurm_text(plans: Sequence[LaunchPlan], gres_name: str | None = None) -> str:
    """Return a script that submits a job of Slurm for each allocation of `plans`.

    Comments list what the nodes need. MIG instances are for a single GPU.

    Args:
        plans: The plan of each GPU.
        gres_name: Slurm's name of the GPUs, as ``gpu:tesla``, or by model, as
            ``a100-40gb=gpu:a100,h100-sxm-80gb=gpu:h100``; None: any GPU if the cluster has one
            model, else ``gpu:a100``, ``gpu:h100``, ...

    Raises:
        InvalidInput: Slurm would have to make MIG instances, or cannot tell them apart; or
            `gres_name` is malformed, or does not tell several models apart.
    """
    cut = next((plan for plan in plans if plan.on_mig), None)
    if cut and len(plans) > 1:
        raise InvalidInput(
            f"GPU {cut.number}, {cut.sharing}: Slurm makes no MIG instances. Export the plan as "
            f"commands or json, or plan without MIG: --no-root."
        )
    if cut and gres_name:
        raise InvalidInput(
            f"{cut.sharing}: Slurm's types of MIG instances follow from the plan. Leave "
            f"--gres-name out."
        )
    names = gres_names(plans[0].models or [plans[0].gpu.key], gres_name)
    own = allocations(plans, "Slurm")
    unknown_types = []
    if cut:
        _check_types(cut)
        for profile in _profiles(cut):
            if slurm_type(cut.gpu, profile) is None:
                remedy = f"set it to the type of {profile} that slurmd -G lists"
                unknown_types.append(f': "${{{_variable(profile)}:?{remedy}}}"')
    lines = [
        "#!/usr/bin/env bash",
        *_head(plans, own, names),
        *dict.fromkeys(line for plan in plans for line in shell.own_commands_wanted(plan)),
        *_BEGINNING.split("\n"),
        *unknown_types,
        *shell.secrets(start for plan in plans for start in plan.starts),
    ]
    starts = [start for each in own for start in each.starts]
    for number in sorted({start.number for start in starts if start.cores is None}):
        remedy = f"set it to the host cores of job {number}, which its profile lacks"
        lines.append(f': "${{CORES_{number}:?{remedy}}}"')
    with_functions = [each.plan for each in own if not _is_alone(each)]
    shared = list(shell.functions(with_functions)) if with_functions else []
    shared += ['begin whole; plan; exit "$failed"'] if shared else []
    scripts = {each.name: "\n".join(_script(each)) for each in own}
    end = "END"
    while any(end in text for text in (*shared, *scripts.values())):
        end += "_"
    if shared:
        lines.append("script() {  # prints the one on stdin, with the functions that it calls")
        lines += [f"  cat; cat <<'{end}'", *shared, end, "}"]
    for each in own:
        into = f"<<'{end}'" if _is_alone(each) else f"< <(script <<'{end}'"
        lines += [f"submit {_words(each, names)} {into}", scripts[each.name], end]
        lines += [] if _is_alone(each) else [")"]
    return "\n".join([*lines, 'echo "Submitted: ${ids[*]}"', ""])


def _is_alone(own: Allocation) -> bool:
    """Return whether `own` is one job without MPS, which needs no functions."""
    return len(own.starts) == 1 and not own.plan.under_mps


def _script(own: Allocation) -> list[str]:
    """A script of `own`, which the functions have to follow unless it is alone."""
    if _is_alone(own):
        return ["#!/bin/sh", shell.without_mps(own.starts[0])]
    plan = ["plan() {", *(f"  {line}" for line in shell.plan_lines(own.plan)), "}"]
    return ["#!/usr/bin/env bash", "GPU=${CUDA_VISIBLE_DEVICES:-0}", *plan]


def _minutes(own: Allocation) -> int | None:
    """Time limit, in whole quarters of an hour; None: the length of a job is unknown."""
    most_s = 0.0
    for stage in own.plan.stages:
        in_order = [start.most_s for part in stage.partitions for start in part.starts]
        most_s += line_s([inf if each is None else each for each in in_order], stage.at_once)
    quarters = ceil(_TIME_FACTOR * most_s / 60 / _QUARTER_MIN) if isfinite(most_s) else 0
    return quarters * _QUARTER_MIN or None


def _head(
    plans: Sequence[LaunchPlan], own: Sequence[Allocation], names: Mapping[str, str]
) -> Iterator[str]:
    """Comments on how to set up the nodes, and on what the script asks of them."""
    models = Counter(plan.gpu.key for plan in plans)
    gpus = " and ".join(f"{count} {key}" for key, count in models.items())
    if len(plans) > 1:
        yield f"# {counted(len({s.number for p in plans for s in p.starts}), 'job')} on {gpus}."
    else:
        yield f"# {plans[0].sharing} on a GPU of a node, one {plans[0].gpu.key}."
    yield _TESTED
    on_mig = plans[0].on_mig
    yield from _instances_wanted(plans[0]) if on_mig else ()
    for cap_w in sorted({plan.power_cap_w for plan in plans if plan.power_cap_w is not None}):
        yield f"# As root on each node: nvidia-smi --power-limit={cap_w:g}"
    yield "# gres.conf of the nodes:"
    yield "#   AutoDetect=nvml"
    yield "# slurm.conf, with the select/cons_tres plugin:"
    yield "#   GresTypes=gpu"
    counts = Counter(_gres(each, names) for each in own)
    keep = "Keep what else that line lists: other GPUs of the node are lost without it."
    if on_mig:
        types = ",".join(f"{name}:{count}" for name, count in counts.items())
        yield from (f"#   NodeName=NODE Gres={types}", f"# {keep}")
        yield from _TYPES_VARY.split("\n")
        for profile in _profiles(plans[0]):
            if other := other_type(plans[0].gpu, profile):
                yield f"# {profile}: {other} where half a GiB is rounded up."
    else:
        yield from (f"#   NodeName=NODE Gres={name}:N" for name in counts)
        yield f"# N: all GPUs that the node has. {keep}"
        yield "# Switch MIG mode off on the node: Slurm would give each job one instance of a GPU."
    if names and not on_mig:
        yield "# If `scontrol show nodes` lists other types, export with --gres-name."
    if any(plan.under_mps for plan in plans):
        yield "# Jobs under MPS start its daemon and stop it again: do not start one on the node."
    yield from _OPTIONS.split("\n")
    if any(each.host_mib for each in own):
        yield f"# --mem is the measured host memory and {HOST_MARGIN * 100:g} %."
    lacking = dict.fromkeys(
        start.job.name
        for each in own
        for start in each.starts
        if start.job.profile.host_memory_mib is None
    )
    if lacking:
        yield f"# Set SBATCH_MEM_PER_NODE: profiles lack host memory: {', '.join(lacking)}."


def _gres(own: Allocation, names: Mapping[str, str]) -> str:
    """Slurm's name of what `own` runs on."""
    gpu, profile = own.plan.gpu, own.profile
    if profile is None:
        return names.get(gpu.key, "gpu")
    return f"gpu:{slurm_type(gpu, profile) or f'${_variable(profile)}'}"


def _words(own: Allocation, names: Mapping[str, str]) -> str:
    """Name and options of the job of Slurm that runs `own`.

    It asks for the most cores that are used at once, with variables for unknown numbers.
    """
    cores, words = str(own.cores), [own.name]
    if unknown := [start.number for start in own.starts if start.cores is None]:
        times = f"{own.gpus} * " if own.gpus > 1 else ""
        variables = [f"{times}CORES_{number}" for number in unknown]
        cores = f"$(({' + '.join([cores, *variables])}))"
    if len(own.starts) == 1:
        words.append(f"--job-name={shlex.quote(own.starts[0].job.name)}")
    words += [f"--gres={_gres(own, names)}:{own.gpus}", f"--cpus-per-task={cores}"]
    if own.gpus > 1:
        words.append("--nodes=1")
    if (minutes := _minutes(own)) is not None:
        words.append(f"--time={minutes}")
    if own.host_mib is not None:
        words.append(f"--mem={ceil(own.host_mib / _MIB_IN_GIB)}G")
    if own.after:
        after = ":".join(f"${{id[{name}]}}" for name in own.after)
        words.append(f'--dependency="afterany:{after}"')
    return " ".join(words)


_GRES = re.compile(r"[A-Za-z][\w.-]*(:[\w.-]+)?")


def gres_names(keys: Sequence[str], words: str | None) -> dict[str, str]:
    """Return Slurm's name of each GPU by model, as `slurm_text` has it; without one: any GPU.

    Slurm accepts any part of the driver's name of a GPU as its type.

    Raises:
        InvalidInput: `words` are malformed, or do not tell several models apart.
    """
    first_words = [key.partition("-")[0] for key in keys]
    types = first_words if len({*first_words}) == len(keys) else keys
    defaults = dict(zip(keys, [f"gpu:{each}" for each in types], strict=True))
    names = defaults if len(keys) > 1 else {}
    for word in filter(None, (words or "").replace(" ", "").split(",")):
        model, _, name = word.rpartition("=")
        if not _GRES.fullmatch(name) or (not model and len(keys) > 1):
            raise InvalidInput(
                f"--gres-name {words!r:.60}: expected Slurm's name of each GPU, without a count, "
                f"as {','.join(f'{key}={default}' for key, default in defaults.items())}."
            )
        names[gpu_meant(model).key if model else keys[0]] = name
    return names


def slurm_type(gpu: Gpu, profile: str) -> str | None:
    """Return Slurm's type of a GPU instance; None if no driver reported its memory yet."""
    row = profile_of(gpu, profile)
    if row.memory_estimated:
        return None
    return _named(row, round((row.newest_mib or row.memory_mib) / _MIB_IN_GIB))


def other_type(gpu: Gpu, profile: str) -> str | None:
    """Return the type if Slurm rounds half a GiB up; None if it is the same."""
    row = profile_of(gpu, profile)
    up = _named(row, ((row.newest_mib or row.memory_mib) + _MIB_IN_GIB // 2) // _MIB_IN_GIB)
    return up if slurm_type(gpu, profile) not in (None, up) else None


def _named(row: MigProfile, memory_gib: int) -> str:
    return f"{row.compute_slices}g.{memory_gib}gb"


def _variable(profile: str) -> str:
    return "TYPE_" + re.sub(r"\W", "_", profile)


def _check_types(plan: LaunchPlan) -> None:
    """Check that Slurm can tell the instances of `plan` apart."""
    kinds_of_type = defaultdict(set)
    for part in plan.partitions:
        if part.instance:
            name = slurm_type(plan.gpu, part.instance.profile) or part.instance.profile
            kinds_of_type[name].add((part.slices, part.slices and part.instance))
    for name, kinds in kinds_of_type.items():
        if len(kinds) > 1:
            raise InvalidInput(
                f"{plan.sharing}: Slurm has one type, {name}, for different compute instances. "
                f"Export the plan as commands instead."
            )


def _instances_wanted(plan: LaunchPlan) -> Iterator[str]:
    """Yield comments on the instances that `plan` needs on the node."""
    yield f"# {NOT_RUN}"
    yield "# Before Slurm starts, as root on the node:"
    mig = "#   sudo nvidia-smi mig -i 0"
    whole, divided = shell.cut_instances(plan.stages[0], plan.gpu)
    yield "#   sudo nvidia-smi -i 0 -mig 1"
    if whole:
        yield f"{mig} -cgi {','.join(whole)} -C"
    for place, names in divided.items():
        yield f"{mig} -cgi {place}"
        yield f"{mig} -cci {','.join(names)} -gi ID  # of the line before"


def _profiles(plan: LaunchPlan) -> list[str]:
    return list(dict.fromkeys(part.instance.profile for part in plan.partitions if part.instance))
