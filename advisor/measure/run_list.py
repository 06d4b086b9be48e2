"""Lists of planned runs: a JSON file of plans, or the advice of ``advisor recommend --json``.

E.g. this file, where a workload of the zoo may stand by its name, others with all their fields:

    {"schema": 1, "gpu": "h200-141gb", "plans": [
        {"id": "drawn-001", "sharing": "mps=43,57", "purpose": "drawn",
         "workloads": ["resnet50-imagenet64-bs128", "gpt2-small-finetune-bs2"]},
        {"id": "whole-1", "sharing": "naive[1];mps[2,3]", "purpose": "completion",
         "workloads": ["dlrm-1gb-bs128", "gru-speech-bs64", "gru-speech-bs64"],
         "steps": [1000, 100, 300]}]}
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from advisor.errors import InvalidInput
from advisor.sharing import Concurrent, Naive, parse_sharing
from advisor.sharing.groups import (
    check_count,
    mps_servers,
    restricted,
    running_together,
    together,
    with_a_queue,
)
from advisor.workload.catalogue import workload
from advisor.workload.job import MAX_JOBS
from advisor.workload.reading import located, read_json
from advisor.workload.records import OrText, check_record
from advisor.workload.run import Purpose
from advisor.workload.spec import Workload

REMEDY = "Correct the file."

NamedWorkload = Annotated[Workload, OrText(workload)]
"""A workload, or the name of one of the zoo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """Workloads to run together, as a user or a campaign asked for.

    Attributes:
        id: Becomes the run's; ``ID.1``, ``ID.2``... where a serial plan has several workloads.
        sharing: In the notation of `advisor.sharing.parse_sharing`.
        purpose: See `advisor.workload.run.Run`, of which `repeats` and `capacity_mib` are, too.
        steps: Steps of each workload, with purpose ``"completion"``: then all of them run to their
            end, also serially and in phases.
        workloads: In the order of the limits in `sharing`.
    """

    id: str
    sharing: str
    purpose: Purpose
    repeats: str | None = None
    capacity_mib: int | None = None
    steps: tuple[int, ...] | None = None
    workloads: tuple[NamedWorkload, ...]

    def __post_init__(self) -> None:
        with located(f"run {self.id!r}"):
            if not self.id:
                raise InvalidInput("a plan needs an id, for --skip-existing and for repeats")
            for field, purpose in _BELONGS_TO.items():
                if (self.purpose == purpose) != (getattr(self, field) is not None):
                    raise InvalidInput(
                        f"{field} belongs to the purpose {purpose!r}, and to no other"
                    )
            if self.capacity_mib is not None and self.capacity_mib < 1:
                raise InvalidInput(f"a card has at least 1 MiB, got {self.capacity_mib}")
            self._check_workloads()
            sharing = parse_sharing(self.sharing)
            if sharing.instances:
                raise InvalidInput(
                    "MIG plans cannot be run: instances are not created here. Run the others"
                )
            if with_a_queue(sharing, len(self.workloads)):
                raise InvalidInput(
                    f"{sharing}: no run measures a queue. Plan the jobs that run at once as one"
                )
            if sharing.mode == "phases" and self.steps is None:
                raise InvalidInput(
                    f"{sharing} is several runs: plan each group as one, or give steps"
                )
            check_count(sharing, len(self.workloads))

    def _check_workloads(self) -> None:
        count = len(self.workloads)
        if not 1 <= count <= MAX_JOBS:
            raise InvalidInput(f"a plan has 1 to {MAX_JOBS} workloads, got {count}")
        for each in self.workloads:
            each.check_startable()
            if self.steps is not None and each.script is not None and not each.script.by_steps:
                raise InvalidInput(
                    f"{each.name}: its steps are not counted, so its pace among others cannot "
                    f"be measured. Leave it out here: `advisor run` runs it"
                )
        if self.steps is not None and (len(self.steps) != count or min(self.steps) < 1):
            raise InvalidInput(
                f"steps are whole numbers from 1, one for each of the {count} workloads, got "
                f"{list(self.steps)}"
            )

    @property
    def groups(self) -> tuple[tuple[tuple[int, ...], Concurrent], ...]:
        """Positions of the workloads that run at the same time and how they share, in turn.

        In a serial plan each workload is a group.
        """
        sharing = parse_sharing(self.sharing)
        return tuple(
            (tuple(jobs), together(restricted(sharing, jobs)) or Naive())  # alone in turn is naive
            for jobs in map(sorted, running_together(sharing, len(self.workloads)))
        )


# The purpose of the runs that have a field, and that no others have.
_BELONGS_TO = {"repeats": "repeat", "capacity_mib": "memory", "steps": "completion"}


def single_runs(plan: PlannedRun) -> tuple[PlannedRun, ...]:
    """Divide `plan` into what one `Run` records: a serial plan runs each distinct workload alone.

    A plan with steps is one run.
    """
    if plan.steps is not None or together(parse_sharing(plan.sharing)) is not None:
        return (plan,)
    runs = []
    # Copies that run alone take equally long: one of them is enough.
    workloads = list(dict.fromkeys(plan.workloads))
    for number, each in enumerate(workloads, start=1):
        suffix = f".{number}" if len(workloads) > 1 else ""
        repeats = None if plan.repeats is None else plan.repeats + suffix
        alone = replace(
            plan, id=plan.id + suffix, sharing=str(Naive()), workloads=(each,), repeats=repeats
        )
        runs.append(alone)
    return tuple(runs)


@dataclass(frozen=True, slots=True)
class _RunList:
    schema: Literal[1]
    gpu: str
    plans: tuple[PlannedRun, ...]


def read_plans(path: Path, gpu: str) -> tuple[PlannedRun, ...]:
    """Read the plans in `path`, which must be for `gpu`.

    Raises:
        InvalidInput: The file is not such a file, or is for another GPU; the message names the
            entry.
    """
    document = read_json(path)
    with located(path, REMEDY):
        document = with_workloads(_plans_of_advice(document) if is_advice(document) else document)
    listed = check_record(_RunList, document, str(path), REMEDY)
    with located(path, REMEDY):
        if listed.gpu != gpu:
            raise InvalidInput(
                f"its plans are for {listed.gpu}, and this device is {gpu}. Run them on the GPU "
                f"they were made for"
            )
        check_plans(listed.plans, gpu)
    return listed.plans


def with_workloads(document: Any) -> Any:
    """Return `document` with workloads of the zoo instead of their names in its lists."""
    if isinstance(document, list):
        return [with_workloads(each) for each in document]
    if not isinstance(document, dict):
        return document
    return {
        key: [asdict(workload(each)) if isinstance(each, str) else each for each in value]
        if key in ("workloads", "small", "large") and isinstance(value, list)
        else with_workloads(value)
        for key, value in document.items()
    }


def check_plans(plans: Sequence[PlannedRun], gpu: str) -> None:
    """Check that no two runs of `plans` have one id, and that `gpu` can run them if it is a CPU."""
    for name, count in Counter(run.id for plan in plans for run in single_runs(plan)).items():
        if count > 1:
            raise InvalidInput(f"two runs would have the id {name!r}")
    for plan in plans if gpu == "cpu" else ():
        with located(f"run {plan.id!r}"):
            if plan.capacity_mib is not None:
                raise InvalidInput("a CPU's memory cannot be made to look smaller")
            if mps_servers(parse_sharing(plan.sharing), len(plan.workloads)):
                raise InvalidInput("a CPU is not shared by MPS; use naive or serial with it")


def is_advice(document: Any) -> bool:
    """Return whether `document` is advice rather than a file of plans."""
    return isinstance(document, dict) and "objective" in document


def _plans_of_advice(document: Mapping[str, Any]) -> dict[str, Any]:
    """The plans of `document` in the form of a plan file, with the purpose of validation.

    A run's id consists of its jobs and its rank, so that ``--skip-existing`` recognises it. Plans
    on MIG, in phases, in a queue and under a power cap are left out: MIG instances and caps are
    not set here, and a run has one sharing.
    """
    try:
        listed = [
            (plan, [document["workloads"][job["job"]] | _own_script(job) for job in plan["jobs"]])
            for plan in document["plans"]
        ]
        digested = json.dumps([(plan["sharing"], workloads) for plan, workloads in listed])
        digest = sha256(digested.encode()).hexdigest()[:8]
        plans = [
            {
                "id": f"advice-{digest}-plan{plan['rank']}",
                "sharing": plan["sharing"],
                "purpose": "validation",
                "workloads": workloads,
            }
            for plan, workloads in listed
            if _can_be_run(plan)
        ]
        gpu, schema = document["gpu"], document["schema"]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"it is advice, but incomplete ({error!r})") from None
    if not plans:
        raise InvalidInput(
            "all plans of this advice are on MIG, in phases, in a queue or under a power cap. Ask "
            "for more: `advisor recommend`"
        )
    return {"schema": schema, "gpu": gpu, "plans": plans}


def _own_script(job: Mapping[str, Any]) -> dict[str, Any]:
    return {"script": job["script"]} if job.get("script") else {}


def _can_be_run(plan: Mapping[str, Any]) -> bool:
    sharing = parse_sharing(plan["sharing"])
    simple = sharing.mode == "serial" or together(sharing) is not None
    return simple and plan.get("power_cap_w") is None
