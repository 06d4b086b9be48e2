"""Which MPS limits are tried, and how much risk a plan may carry."""

from collections.abc import Sequence

from advisor.sharing import Mps
from advisor.workload.profile import Profile

# A plan whose jobs run out of memory more often than this is none.
MAX_OOM_PROBABILITY = 0.05

# Per cent, the same for every job: the compute slices of MIG, k/7. Those that leave SMs to
# nobody are passed over.
EQUAL_GRID = (14, 28, 43, 57, 71, 86)

# Unequal limits follow what each job asks of the SMs alone; together they give out this much.
PROPORTIONAL_SUMS = (100, 150, 200)
_SMALLEST, _LARGEST = 5, 100


# Limits that come to less than this together leave SMs to nobody.
_LEAST_SUM = 90


def worth_trying(limit: float, jobs: int) -> bool:
    """Whether so many jobs under one `limit`, in per cent, may use all SMs, or nearly."""
    return limit * jobs >= _LEAST_SUM


def limit_vectors(profiles: Sequence[Profile]) -> list[Mps]:
    """MPS with the limits that are tried for these jobs, each once."""
    degree = len(profiles)
    equal = {round(100 / degree), *(each for each in EQUAL_GRID if worth_trying(each, degree))}
    vectors = [(float(each),) * degree for each in sorted(equal)]
    vectors += [_proportional(profiles, total) for total in PROPORTIONAL_SUMS]
    return [Mps(vector) for vector in dict.fromkeys(vectors)]


def _proportional(profiles: Sequence[Profile], total: int) -> tuple[float, ...]:
    demands = [_demand(profile) for profile in profiles]
    shares = [total * demand / sum(demands) for demand in demands]
    return tuple(float(min(_LARGEST, max(_SMALLEST, round(share)))) for share in shares)


def _demand(profile: Profile) -> float:
    """Mean share of the SMs that a job uses alone; its busy share where no counter says."""
    counters = profile.counters
    if counters is not None and counters.sm_active:
        return counters.sm_active
    return profile.busy_share or 1.0
