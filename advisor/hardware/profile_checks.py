"""Bounds of a profile on its GPU: its name, its power, and memory that the job may not need."""

from collections.abc import Iterable

from advisor.errors import InvalidInput, UnknownName, with_article
from advisor.hardware.gpus import Gpu, gpu_meant, known_gpus
from advisor.workload.profile import Profile

# Boards may be set a little above the limit of their model, and their sensors are some per cent
# off; a larger number is of another unit, or of another GPU.
_MOST_ABOVE_LIMIT = 1.15
# Of the limit: half of what an H200 or H100 draws while nothing runs, since sensors are off and
# other models idle at less. A smaller number is of another unit, or of another GPU.
_LEAST_OF_LIMIT = 0.05


def check_key(profile: Profile, where: str) -> Profile:
    """`profile`, whose GPU is a key of the catalogue, or an unknown one.

    Raises:
        InvalidInput: `where` names a known GPU by another name than its key, or means several.
    """
    if profile.gpu in known_gpus():
        return profile
    try:
        remedy = f"Write {gpu_meant(profile.gpu).key} there"
    except UnknownName:
        return profile
    except InvalidInput as error:
        remedy = str(error).removesuffix(".")
    problem = f"its gpu, {profile.gpu}, is not a key of `advisor gpus`"
    raise InvalidInput(f"{where}: {problem}. {remedy}.")


def check_power(profile: Profile, gpu: Gpu) -> Profile:
    """`profile`, which was taken on `gpu`; measured power is not checked.

    Raises:
        InvalidInput: It is bare numbers, and its power is more than `gpu` draws, or less.
    """
    limit_w, power_w = gpu.power_limit_w, profile.power_w
    bare = profile.workload.is_bare and not profile.is_estimate
    if not (limit_w and bare) or power_w is None:
        return profile
    least_w = _LEAST_OF_LIMIT * limit_w
    if least_w <= power_w <= _MOST_ABOVE_LIMIT * limit_w:
        return profile
    draws = f"more than {least_w:g} W at idle" if power_w < least_w else f"at most {limit_w:g} W"
    raise InvalidInput(
        f"{profile.name}: power_w is {power_w:g}, and {with_article(gpu.key)} draws {draws}. Give "
        f"the mean watts of that one GPU while the job runs, between idle and {limit_w:g}, as "
        f"nvidia-smi shows them; if they are not known, leave --power-w out, in a file null."
    )


# Shares of a GPU's memory that frameworks take at their start, whatever the job needs, and what
# stops that, by their documentation.
_TAKEN_AT_START = {
    (0.75, 0.75): ("JAX", "XLA_PYTHON_CLIENT_PREALLOCATE=false"),
    (0.90, 0.90): ("vLLM", "a lower --gpu-memory-utilization"),
    (0.95, 1.00): ("TensorFlow", "TF_FORCE_GPU_ALLOW_GROWTH=true"),
}
_ROUNDING, _CONTEXT_MIB = 0.01, 600


def preallocating_profiles(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """Return a line for each job whose memory may be what its framework takes at its start.

    That of a job whose allocator was seen is what the job needs.
    """
    cards, doubts = known_gpus(), dict[str, str]()
    for profile in profiles:
        card = cards.get(profile.estimated_from or profile.gpu)
        held_mib = profile.memory.device_mib
        if card is None or held_mib is None or profile.memory.allocated_mib is not None:
            continue
        share, context = held_mib / card.memory_mib, _CONTEXT_MIB / card.memory_mib
        for (least, most), (framework, setting) in _TAKEN_AT_START.items():
            if least - _ROUNDING <= share <= most + _ROUNDING + context:
                doubts[profile.name] = (
                    f"{profile.name} holds {share:.0%} of the memory of {with_article(card.key)}, "
                    f"as {framework} does from its start, needed or not. If it is {framework}, set "
                    f"{setting}, and read the memory again"
                )
    return tuple(doubts.values())
