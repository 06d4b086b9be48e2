"""A made-up campaign that evaluation can be run on; never shown to a user as measured."""

from dataclasses import replace

from tests import synthetic

# Of three families: whichever is left out, the others' runs are just enough to fit each mode.
NAMES = (
    "resnet50-imagenet64-bs128",
    "resnet26-cifar10-bs128",
    "cait_xxs24_224-cifar10-bs32",
    "gpt2-small-finetune-bs4",
    "gpt2-medium-pretrain-bs4",
)


def profile(place):
    """A profile that differs from the others in everything that a model may look at."""
    alone = synthetic.profile(
        NAMES[place],
        host_s=0.002,
        gpu_s=0.0004 * (1 + place),
        kernels=6 + place,
        blocks=100 + 40 * place,
    )
    counters = replace(
        alone.counters,
        dram_active=0.05 + 0.11 * ((3 * place) % 7),
        sm_occupancy=0.04 + 0.07 * ((5 * place) % 7),
    )
    return replace(alone, counters=counters)


PROFILES = {name: profile(place) for place, name in enumerate(NAMES)}


def campaign(slow_family=None):
    """Runs of pairs in each mode; each tenant of `slow_family` makes a run five times slower."""
    runs = []
    for mode in ("naive", "mps", "mps=50,50"):
        for place, name in enumerate(NAMES):
            other = NAMES[(place + 1) % len(NAMES)]
            for kind, names in (("mixed", (name, other)), ("same", (name, name))):
                pair = [PROFILES[each] for each in names]
                factor = 1.1 + 0.1 * place
                for each in pair:
                    factor *= 5.0 if each.workload.family == slow_family else 1.0
                runs.append(synthetic.run(pair, mode, factor, f"{mode}-{place}-{kind}"))
    return runs


def advised_campaign():
    """One job set under two plans, as following advice leaves them."""
    pair = [PROFILES[NAMES[0]], PROFILES[NAMES[3]]]
    return [
        replace(synthetic.run(pair, mode, factor, f"advice-{mode}"), purpose="validation")
        for mode, factor in (("naive", 1.9), ("mps", 1.4))
    ]
