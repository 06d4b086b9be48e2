"""Types of answers as JSON; `advisor.schemas` makes JSON Schemas of them."""

from typing import Annotated, Any

from typing_extensions import TypedDict  # pydantic refuses the other on Python 3.11

from advisor.plan import ObjectiveName
from advisor.plan.fleet_search import Way
from advisor.plan.reasons import HostBound, Limit, Resource
from advisor.plan.trials import Study
from advisor.plan.values import LeftOut, Precedence
from advisor.prediction.model import OwnPace
from advisor.prediction.prediction import Interval, JobPrediction
from advisor.simulation import Policy
from advisor.simulation.simulate import Usage
from advisor.workload.profile import Profile
from advisor.workload.records import AsDict
from advisor.workload.spec import Script, Workload
from advisor.workload.staleness import Stale

IntervalFields = Annotated[dict[str, float], AsDict(Interval)]
WorkloadFields = Annotated[dict[str, Any], AsDict(Workload)]


class JobFields(TypedDict):
    """The prediction of a job."""

    job: str
    step_s: IntervalFields
    epoch_s: IntervalFields | None
    slowdown: float
    memory_mib: float
    memory_min_mib: float
    memory_interval_mib: IntervalFields
    oom_probability: float
    with_ends_s: IntervalFields | None
    energy_step_j: IntervalFields | None
    energy_epoch_j: IntervalFields | None
    energy_example_j: IntervalFields | None


class RequestFields(TypedDict):
    """The work of a job, its constraints, its script, and where its profile is in `profiles`."""

    profile: int
    epochs: float
    examples_per_epoch: int | None
    validation_s: float
    checkpoint_s: float
    user: str | None
    data_parallel: bool
    isolated: bool
    protect: float | None
    script: Annotated[dict[str, Any], AsDict(Script)] | None


class RequestedJobFields(JobFields, RequestFields):
    """The prediction of a job, and its request."""


class MixFields(TypedDict):
    """The fields that forecasts and plans share, without the jobs."""

    gpu: str
    sharing: str
    memory_total_mib: float
    memory_capacity_mib: float
    oom_probability: float
    weighted_speedup: float
    makespan_s: float | None
    makespan_interval_s: IntervalFields | None
    speedup_vs_serial: float | None
    power_w: IntervalFields | None
    energy_j: IntervalFields | None
    power_cap_w: float | None
    power_cap_note: str | None
    gract: float | None
    smact: float | None
    estimated_from: str | None
    confirmed_on_hardware: bool
    wide_because: str | None
    host_stretch: float


class PlanFields(MixFields):
    """A plan: how jobs share a GPU, its rank, and the shell lines that apply it."""

    rank: int
    ties_best: bool
    late: list[int]
    precedes_by: Precedence | None
    commands: list[str]
    why: str
    jobs: list[RequestedJobFields]


class CalibrationFields(TypedDict):
    """The calibration of this machine."""

    file: str


class BasisFields(TypedDict):
    """The basis of an answer besides profiles and model."""

    calibrated: CalibrationFields | None
    host: str
    host_factor: float | None
    host_from: str | None
    own_paces: dict[str, Annotated[dict[str, Any], AsDict(OwnPace)]]
    stale: list[Annotated[dict[str, Any], AsDict(Stale)]]
    unsteady: list[str]
    preallocated: list[str]
    estimated_profiles: dict[str, str | None]
    estimated_batches: dict[str, list[int]]


class StandingFields(BasisFields):
    """The basis of an answer on one GPU."""

    power_cap_w: float | None
    estimated_from: str | None


class BindingFields(TypedDict):
    """The limits of the jobs of a plan; shares are 0 to 1."""

    limit: Limit | None
    of_each_job: list[Limit | None]
    host_shares: list[float | None]
    uses: dict[Resource, float]
    memory: float


class RunnerUp(TypedDict):
    """The second plan, and the share by which it is behind the best."""

    rank: int
    sharing: str
    behind: float | None
    within_error: bool


class VerdictFields(TypedDict):
    """The recommendation in words, and what limits the best plan."""

    answers: list[str]
    text: str
    binding: BindingFields
    runner_up: RunnerUp | None
    host_bound: list[Annotated[dict[str, Any], AsDict(HostBound)]]


class PredictionDocument(MixFields, BasisFields):
    """The answer of `advisor predict --json`."""

    schema: int
    jobs: list[JobFields]


class RecommendationDocument(StandingFields):
    """The answer of `advisor recommend --json` for jobs that start together on one GPU."""

    schema: int
    gpu: str
    objective: ObjectiveName
    ranked_by: ObjectiveName
    note: str | None
    verdict: VerdictFields
    workloads: dict[str, WorkloadFields]
    profiles: list[Annotated[dict[str, Any], AsDict(Profile)]]
    epochs: list[float]
    serial: PlanFields
    plans: list[PlanFields]
    left_out: list[Annotated[dict[str, Any], AsDict(LeftOut)]]
    searched: str | None
    another_layout: PlanFields | None


class ComparedJob(JobFields):
    """A job under one of the compared plans."""

    ends_s: IntervalFields | None
    step_ties_first: bool


class ComparedPlan(MixFields):
    """One of the compared plans; "first" is the first of them."""

    plan: str
    cost: IntervalFields
    gain_over_first: IntervalFields
    ties_first: bool
    ties_best: bool
    forbidden: str | None
    binding: BindingFields
    jobs: list[ComparedJob]


class SerialFields(TypedDict):
    """All jobs one after another."""

    sharing: str
    cost: IntervalFields


class ComparisonDocument(StandingFields):
    """The answer of `advisor compare --json`."""

    schema: int
    gpu: str
    compared_by: ObjectiveName
    note: str | None
    text: str
    best: str
    serial: SerialFields | None
    plans: list[ComparedPlan]


class HostsFields(TypedDict):
    """Equal hosts, and the GPUs of each."""

    gpu: str
    hosts: int
    host_gpus: int


class SimulatedJobFields(TypedDict):
    """A job of a simulation; times in seconds from the start."""

    job: str
    epochs: float
    gpu: int
    gpus: list[int]
    place: int
    arrival_s: float
    start_s: float
    end_s: float
    unfairness: float
    end_interval_s: IntervalFields


class UnsharedFields(TypedDict):
    """The same jobs and policy with one job a GPU."""

    makespan_s: float
    makespan_interval_s: IntervalFields
    mean_completion_s: float
    mean_wait_s: float
    energy_j: IntervalFields | None


class SimulationDocument(StandingFields):
    """The answer of `advisor simulate --json`; times in seconds from the start."""

    schema: int
    gpu: str
    gpus: int
    hosts: list[HostsFields]
    sharing: str
    policy: Policy
    at_once: int | None
    confirmed_on_hardware: bool
    makespan_s: float
    makespan_interval_s: IntervalFields
    jobs_per_hour: float
    mean_completion_s: float
    p95_completion_s: float
    p99_completion_s: float
    mean_wait_s: float
    mean_unfairness: float
    worst_unfairness: float
    utilisation: float
    preemptions: int
    layout_changes: int
    late: list[int]
    gract: float | None
    peak_memory_mib: float
    energy_j: IntervalFields | None
    idle_power_w: float | None
    gpu_hours: IntervalFields
    occupied_gpu_hours: float
    price_eur_per_gpu_hour: float | None
    cost_eur: IntervalFields | None
    unshared: UnsharedFields | None
    jobs: list[SimulatedJobFields]
    over_time: list[Annotated[dict[str, Any], AsDict(Usage)]]


class MemoryFields(TypedDict):
    """The memory that the jobs of a mix hold, and whether it fits."""

    memory_total_mib: float
    memory_capacity_mib: float
    oom_probability: float
    confirmed_on_hardware: bool


class CopiesRowFields(MemoryFields):
    """So many copies of a job at once."""

    copies: int
    sharing: str
    throughput: float
    gain: float | None
    step_s: IntervalFields


class FitFields(TypedDict):
    """How many copies of a job fit, and how many are worthwhile."""

    fit: int
    limited_by: str
    worthwhile: int
    mps_clients: int


class CopiesDocument(StandingFields, FitFields):
    """The answer of `advisor copies JOB --json`."""

    schema: int
    gpu: str
    job: str
    rows: list[CopiesRowFields]


class TrialRates(TypedDict):
    """The pace of trials on one GPU, their start included."""

    trial_s: IntervalFields
    trials_per_hour: IntervalFields
    trained_per_hour: IntervalFields


class TrialsRowFields(CopiesRowFields, TrialRates):
    """So many trials at once."""


class TrialsOnHosts(HostsFields, FitFields, TrialRates):
    """The trials of equal hosts; `environment` are variables of each trial's process.

    `at_once`, the rates, `study` and `rows` are of one GPU.
    """

    trials: int | None
    at_once: int
    sharing: str
    environment: dict[str, str]
    study: Annotated[dict[str, Any], AsDict(Study)] | None
    rows: list[TrialsRowFields]


class StudyFields(TypedDict):
    """All trials of a search, on all GPUs."""

    trials: int
    wall_s: IntervalFields
    one_by_one_s: IntervalFields


class TrialsDocument(StandingFields):
    """The answer of `advisor trials --json`; `at_once` and `trials_per_hour` are of all GPUs."""

    schema: int
    gpu: str
    job: str
    steps: float
    start_s: float
    start_cpu_s: float
    at_once: int
    trials_per_hour: IntervalFields
    study: StudyFields | None
    idle: dict[str, int]
    hosts: list[TrialsOnHosts]


class RunningFields(TypedDict):
    """The jobs that run already."""

    jobs: list[Annotated[dict[str, Any], AsDict(JobPrediction)]]
    sharing: str
    free_mib: float | None


class AdditionFields(MemoryFields):
    """Jobs that may be added, and the running job that this slows most."""

    rank: int
    added: list[str]
    sharing: str
    work_added: float
    slowed_by: float
    slowed_job: str
    late: list[str] | None
    jobs: list[Annotated[dict[str, Any], AsDict(JobPrediction)]]


class AdditionsDocument(StandingFields):
    """The answer of `advisor admit JOBS --json`."""

    schema: int
    gpu: str
    running: RunningFields
    max_slowdown: float
    plans: list[AdditionFields]
    left_out: list[Annotated[dict[str, Any], AsDict(LeftOut)]]


class SliceFields(TypedDict):
    """The largest batch of a job in a MIG slice; null: the whole GPU."""

    slice: str | None
    instances: int
    memory_capacity_mib: float
    largest_batch: int | None
    larger_may_fit: bool
    memory_mib: IntervalFields | None


class BatchesDocument(StandingFields):
    """The answer of `advisor batch --json`."""

    schema: int
    gpu: str
    job: str
    measured_batches: list[int]
    confirmed_on_hardware: bool
    slices: list[SliceFields]


class FleetSerial(TypedDict):
    """All jobs one after another on one GPU."""

    sharing: str
    makespan_s: float | None


class FleetJob(RequestedJobFields):
    """A job of a plan for several GPUs; GPUs are counted from 0."""

    slowdown_error: IntervalFields | None
    on_gpu: int
    on_gpus: list[int]
    end_s: IntervalFields | None


class FleetGpu(PredictionDocument):
    """One GPU of a plan; jobs are counted from 1 in the order of the request."""

    number: int
    job_numbers: list[int]
    waits_s: list[float]
    commands: list[str]


class SearchFields(TypedDict):
    """The search for a plan, and its way to group the jobs."""

    cost: float
    way: Way
    exact: bool
    compared: int
    predicted: int
    cut_short: bool


class FleetPlanFields(MemoryFields):
    """A plan for many jobs, or for several GPUs."""

    rank: int
    ties_best: bool
    sharing: str
    commands: list[str]
    why: str
    jobs: list[FleetJob]
    makespan_s: float | None
    makespan_interval_s: IntervalFields | None
    mean_completion_s: float | None
    speedup_vs_serial: float | None
    gain: IntervalFields | None
    energy_j: IntervalFields | None
    power_cap_w: float | None
    late: list[int]
    gpus: list[FleetGpu]
    search: SearchFields


class FleetDocument(StandingFields):
    """The answer of `advisor recommend --json` for many jobs, or for several GPUs."""

    schema: int
    gpu: str
    gpus: int
    hosts: list[HostsFields]
    objective: ObjectiveName
    ranked_by: ObjectiveName
    note: str | None
    text: str
    notes: list[str]
    workloads: dict[str, WorkloadFields]
    profiles: list[Annotated[dict[str, Any], AsDict(Profile)]]
    epochs: list[float]
    serial: FleetSerial
    plans: list[FleetPlanFields]
    left_out: list[str]
