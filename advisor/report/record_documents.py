"""Types of lists, runs and fits as JSON; `advisor.schemas` makes JSON Schemas of them."""

from typing import Annotated, Any

from typing_extensions import TypedDict  # pydantic refuses the other on Python 3.11

from advisor.hardware.gpus import Gpu
from advisor.hardware.machine import BrokenGpu, LiveGpu
from advisor.report.documents import IntervalFields, WorkloadFields
from advisor.workload.profile import EpochEnd, Memory, Provenance
from advisor.workload.records import AsDict


class GpusDocument(TypedDict):
    """GPU models, and the GPUs in this machine; `problem` is why these could not be read."""

    schema: int
    catalogue: list[Annotated[dict[str, Any], AsDict(Gpu)]]
    profiled: list[str]
    in_machine: list[
        Annotated[dict[str, Any], AsDict(LiveGpu)] | Annotated[dict[str, Any], AsDict(BrokenGpu)]
    ]
    problem: str | None


class PlacedInstance(TypedDict):
    """A MIG instance; start and size in memory slices."""

    profile: str
    start: int | None
    size: int


class LayoutsDocument(TypedDict):
    """MIG profiles of a GPU, the number of valid placements, and the layouts that are full."""

    schema: int
    gpu: str
    profiles: list[str]
    valid_placement_sets: int
    maximal: list[list[PlacedInstance]]


class WorkloadsDocument(TypedDict):
    """The workloads that can be measured by name."""

    schema: int
    workloads: list[WorkloadFields]


class ProfileFields(TypedDict):
    """A profile without its kernel trace; `unsteady` is the share by which its steps varied.

    Steps are null if only the duration of the job is known.
    """

    step_s: float | None
    fastest_step_s: float | None
    unsteady: float | None
    epoch_s: float | None
    gpu_busy: float | None
    steps_of_round: int | None
    epoch_end: Annotated[dict[str, Any], AsDict(EpochEnd)] | None
    memory: Annotated[dict[str, Any], AsDict(Memory)]
    provenance: Annotated[dict[str, Any], AsDict(Provenance)] | None
    estimated_from: str | None


class ListedProfile(ProfileFields):
    """A profile of the list."""

    name: str


class ProfilesDocument(TypedDict):
    """The profiles for a GPU."""

    schema: int
    gpu: str
    profiles: list[ListedProfile]


class WrittenProfile(ListedProfile):
    """A profile that was measured now, and its file."""

    file: str
    gpu: str


class MeasuredDocument(TypedDict):
    """The profiles that `advisor profile` measured."""

    schema: int
    profiles: list[WrittenProfile]


class ListedJob(TypedDict):
    """A job of a run, and the steps that it has done."""

    number: int
    job: str
    state: str
    detail: str
    steps_done: int | None
    steps: int | None


class ListedRunFields(TypedDict):
    """A run of a plan; without GPU and start if its file is unreadable."""

    run: str
    state: str
    gpu: str | None
    since: str | None
    jobs: list[ListedJob]


class RunsDocument(TypedDict):
    """The runs of this user."""

    schema: int
    runs: list[ListedRunFields]


class ValidatedSpeedup(TypedDict):
    """The sum of steps alone over steps together."""

    predicted: float | None
    measured: float | None


class ValidatedJob(TypedDict):
    """A predicted step and the measured one; `rest`: the windows after the first of the run."""

    job: str
    step_s: IntervalFields
    measured_step_s: float
    error: float
    inside: bool
    memory_mib: float | None
    measured_memory_mib: float | None
    rest_step_s: IntervalFields | None
    measured_rest_step_s: float | None
    step_s_by_host: IntervalFields | None


class ValidatedRun(TypedDict):
    """A real run of a plan, and its prediction."""

    id: str
    sharing: str
    weighted_speedup: ValidatedSpeedup
    host_factor: float | None
    jobs: list[ValidatedJob]


class ValidationDocument(TypedDict):
    """Real runs of the best plans."""

    schema: int
    gpu: str
    host: str | None
    estimated_from: str | None
    estimated_profiles: dict[str, str]
    runs: list[ValidatedRun]
    left_out: list[str]


class FittedData(TypedDict):
    """Runs and profiles that a model was fitted to."""

    runs: int
    profiles: int


class UsedRuns(TypedDict):
    """All runs of a GPU and those used, and the same of the user's own."""

    runs: int
    used: int
    own: int
    own_used: int


class FitDocument(TypedDict):
    """A fit of the model."""

    schema: int
    gpu: str
    file: str
    fitted_to: dict[str, FittedData]
    used: dict[str, UsedRuns]
    runs_differ: str | None
    own_paces_of: list[str]
