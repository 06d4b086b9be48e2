"""Plans as Python files that submit jobs by submitit, to Slurm or on this host.

The parameters are those of submitit 1.5: names for any cluster, and others after ``slurm_`` or
``local_``. Its local executor gives every job the same GPUs, unless its `setup` names others.
"""

from collections.abc import Iterator, Sequence

from advisor.errors import InvalidInput, counted
from advisor.launch import shell
from advisor.launch.allocations import allocations, power_caps, shared_lines
from advisor.launch.launch_plan import LaunchPlan

_HEAD = '''\
"""Submit {jobs} for {gpus} by submitit.

    pip install submitit
    python FILE          # to Slurm
    python FILE local    # on the GPUs of this host; waits until all have ended

Time limits are twice the upper end of the predicted time, memory is what the profiles
measured and 25 %. Fill in each None. sbatch reads further options from SBATCH_PARTITION, ... in the
environment. No cluster has run such a file yet.
"""

import os
import subprocess
import sys

from submitit import AutoExecutor

ON_ONE_HOST = {on_one_host}
'''

_SUBMIT = """

def main(cluster):
    for own in ALLOCATIONS:
        for key in ("cpus", "minutes"):
            if own[key] is None:
                sys.exit(f"Set {key} of {own['name']}.")
    if cluster == "local" and not ON_ONE_HOST:
        sys.exit("The plan is for several hosts or models of GPU. Submit it to Slurm.")
    for name in [each for each in os.environ if each.startswith("CUDA_MPS_")]:
        del os.environ[name]  # limits and daemon that the environment names
    os.environ.setdefault("ADVISOR_GRACE_S", "10")  # a third of Slurm's KillWait
    jobs = {}
    for own in ALLOCATIONS:
        before = [jobs[name] for name in own["after"]]
        after = ":".join(job.job_id for job in before)
        executor = AutoExecutor(folder="submitit", cluster=cluster)
        executor.update_parameters(
            name=own["name"], cpus_per_task=own["cpus"], timeout_min=own["minutes"],
            mem_gb=own["memory_gib"], slurm_gres=own["gres"],
            slurm_dependency="afterany:" + after if after else None,
            local_setup=["export CUDA_VISIBLE_DEVICES=" + own["devices"]],
        )
        if cluster == "local":
            for job in before:
                job.wait()
        script = "\\n".join(own["script"] if own["alone"] else own["script"] + SHARED)
        command = ["bash", "-c", script]
        jobs[own["name"]] = executor.submit(subprocess.run, command, check=True)
        print(jobs[own["name"]].job_id, own["name"])
    if cluster == "local":
        failed = [name for name, job in jobs.items() if job.exception() is not None]
        sys.exit(f"Failed: {', '.join(failed)}. See submitit/." if failed else 0)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "slurm")
"""


def submitit_text(plans: Sequence[LaunchPlan]) -> str:
    """Return a Python program that submits a job for each allocation of `plans`.

    Raises:
        InvalidInput: A plan has MIG instances.
    """
    if cut := next((plan for plan in plans if plan.on_mig), None):
        raise InvalidInput(
            f"{cut.sharing}: submitit makes no MIG instances. Export the plan of a GPU as slurm or "
            f"commands, or plan without MIG: --no-root."
        )
    own = allocations(plans)
    numbers = {start.number for plan in plans for start in plan.starts}
    head = _HEAD.format(
        jobs=counted(len(numbers), "job"), gpus=counted(len(plans), "GPU"),
        on_one_host=len({(plan.host, plan.gpu) for plan in plans}) == 1,
    )  # fmt: skip
    comments = dict.fromkeys(line for plan in plans for line in shell.own_commands_wanted(plan))
    lines = [head, *power_caps(plans), *comments, "ALLOCATIONS = ["]
    for job in own:
        gpus, cores = f"{job.gres}:{job.gpus}", None if job.without_cores else job.cores
        devices = ",".join(map(str, job.devices))
        lines += [
            f'    {{"name": {job.name!r}, "gres": {gpus!r}, "devices": {devices!r},',
            f'     "cpus": {cores}, "minutes": {job.minutes}, "memory_gib": {job.memory_gib},',
            f'     "after": {list(job.after)!r}, "alone": {job.alone}, "script": [',
            *_listed(job.lines, "        "),
            "    ]},",
        ]
    lines += ["]", "SHARED = [  # the functions that scripts call"]
    if not all(each.alone for each in own):
        lines += _listed(shared_lines(own), "    ")
    return "\n".join([*lines, "]"]) + _SUBMIT


def _listed(lines: Sequence[str], indent: str) -> Iterator[str]:
    return (f"{indent}{line!r}," for each in lines for line in each.split("\n"))
