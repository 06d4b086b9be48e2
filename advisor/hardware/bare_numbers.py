"""What a person wrote down of a job: on which GPU it ran, and which power that drew."""

from advisor.english import with_article
from advisor.errors import InvalidInput, UnknownName
from advisor.hardware.catalogue import Gpu, gpu_meant, known_gpus
from advisor.workload.profile import Profile

# Boards may be set a little above the limit of their model, and their sensors are some per cent
# off; a larger number is of another unit, or of another GPU.
_MOST_ABOVE_LIMIT = 1.15
# Of the limit: half of what an H200 or H100 draws while nothing runs, since sensors are off and
# other models idle at less. A smaller number is of another unit, or of another GPU.
_LEAST_OF_LIMIT = 0.05


def check_key(profile: Profile, where: str) -> Profile:
    """`profile`, whose GPU is a key of the catalogue, or one that nobody here knows.

    Raises:
        InvalidInput: It is another name of a GPU that is known, or may mean several. The message
            calls the file `where`, and names the keys.
    """
    if profile.gpu in known_gpus():
        return profile
    try:
        said = f"Write {gpu_meant(profile.gpu).key} there"
    except UnknownName:
        return profile
    except InvalidInput as error:
        said = str(error).removesuffix(".")
    raise InvalidInput(f"{where}: its gpu, {profile.gpu}, is no key of `advisor gpus`. {said}.")


def check_power(profile: Profile, gpu: Gpu) -> Profile:
    """`profile`, which was taken on `gpu`; what was measured is as its sensor said.

    Raises:
        InvalidInput: It is bare numbers, and its power is more than `gpu` draws, or less.
    """
    limit_w, power_w = gpu.power_limit_w, profile.power_w
    bare = profile.workload.source == "numbers" and not profile.is_estimate
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
