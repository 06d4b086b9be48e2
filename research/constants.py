"""Constants of the prediction that people chose while they saw errors of the scored runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module

from advisor.report.format import percent
from advisor.sharing import Mode
from research.score_tables import MODE_HEADINGS, markdown
from research.scoreboard import ALL, Scores
from research.steps import joined

# Module, name, meaning. A constant that was measured, or is fitted without the family, is not here.
CHOSEN = (
    ("advisor.prediction.replay", "PHYSICS.packing", "how closely jobs' blocks share an SM"),
    ("advisor.prediction.replay", "PHYSICS.ceded", "slots that a kernel leaves to later ones"),
    ("advisor.prediction.replay", "PHYSICS.bandwidth", "bandwidth that limited jobs keep"),
    ("advisor.prediction.replay", "PHYSICS.slicing.switch_s", "a change of the owner, seconds"),
    ("advisor.prediction.correction", "KERNEL.length", "regression: length"),
    ("advisor.prediction.correction", "KERNEL.signal", "regression: variance"),
    ("advisor.prediction.correction", "KERNEL.noise", "regression: variance between runs"),
    ("advisor.learn.regression", "_KERNEL.length", "regression without a trace: length"),
    ("advisor.learn.regression", "_KERNEL.signal", "regression without a trace: variance"),
    ("advisor.learn.regression", "_KERNEL.noise", "regression without a trace: of a run"),
    ("advisor.prediction.capacity", "NAIVE_CAPACITY", "time of the GPU that slices share"),
    ("advisor.prediction.capacity", "MPS_CAPACITY", "time of the GPU that MPS clients share"),
    ("advisor.prediction.capacity", "_WAIT", "wait for a time slice, without a trace"),
    ("advisor.prediction.mix_steps", "_WITHOUT_PROBE", "growth of intervals without a probe"),
    ("advisor.learn.regression", "_NAIVE_BY_OTHERS", "growth of intervals by others' hosts"),
    ("advisor.learn.regression", "_LOWER_OVER_UPPER", "least lower end, of the upper one"),
    ("advisor.learn.regression", "_SLOWER_HOSTS", "factor on upper ends of host-bound jobs"),
    ("advisor.learn.regression", "_NAIVE_GPU_BOUND", "least end, time-slicing, GPU-bound"),
    ("advisor.learn.regression", "_NAIVE_CHECKED", "least end, time-slicing, host checked"),
    ("advisor.learn.regression", "_ALONE_CHECKED", "least end, alone, host checked"),
    ("advisor.prediction.correction", "_FOLLOWS", "log beyond the host where a job leaves it"),
    ("advisor.prediction.host", "_GPU_BOUND", "busy share from which the GPU sets the pace"),
    ("advisor.prediction.host", "_FAR", "how far a core may be off in a run that is fitted"),
    ("advisor.prediction.host", "_TRUST", "how far a check of the host is trusted"),
    ("advisor.prediction.engine", "STILL_HELD", "block slots that a last wave holds"),
    ("advisor.prediction.replay", "_BRIEF_S", "shortest last wave that is replayed, seconds"),
    ("advisor.prediction.replay", "_NAIVE_EFFORT", "length of a replay of time slices, of MPS's"),
    ("advisor.prediction.correction", "_PACKING", "packing of the column of SMs in demand"),
    ("advisor.prediction.trace", "_PACKING", "kernel curve: packing"),
    ("advisor.prediction.trace", "_QUARTER", "kernel curve: part of the SMs that defines it"),
    ("advisor.prediction.trace", "_POWER", "kernel curve: how it flattens with fewer SMs"),
    ("advisor.prediction.trace", "_LEAST", "kernel curve: least exponent"),
    ("advisor.prediction.trace", "_USUAL_EXPONENT", "kernel curve: exponent without a probe"),
    ("advisor.prediction.trace", "_FIRMNESS", "kernel curve: how near to that a probe's is"),
    ("advisor.plan.objectives", "HANDICAPS[mps]", "lead that MPS must have"),
    ("advisor.plan.objectives", "HANDICAPS[queue]", "lead that a queue must have"),
    ("advisor.plan.objectives", "HANDICAPS[mps-limits]", "lead that equal limits must have"),
    ("advisor.plan.objectives", "HANDICAPS[naive]", "lead that time-slicing must have"),
    ("advisor.plan.objectives", "HANDICAPS[phases]", "lead that phases must have"),
    ("advisor.plan.objectives", "HANDICAPS[mig]", "lead that MIG must have"),
    (
        "advisor.plan.objectives",
        "HANDICAPS[hybrid]",
        "lead that jobs sharing instances must have",
    ),
    ("advisor.plan.objectives", "_DIFFERENT", "further lead that different limits must have"),
    ("advisor.plan.objectives", "_CAP", "further lead that a power cap must have"),
    ("advisor.prediction.parts", "_SHARPNESS", "slices without a trace: how host and work add up"),
    ("advisor.prediction.parts", "_BY_BANDWIDTH", "slices: power of more bandwidth"),
    ("advisor.prediction.parts", "_SURPLUS", "slices: most bandwidth of use"),
    ("advisor.prediction.parts", "_OWN_DOUBT", "slices: doubt of the law"),
    ("advisor.prediction.parts", "_BEYOND", "slices: upper end over the least share"),
    ("advisor.prediction.parts", "_APART", "slices: when power outweighs memory utilisation"),
    ("advisor.prediction.correction", "_HARDLY", "busy share of a job hardly GPU-bound"),
    ("advisor.prediction.correction", "_SURELY", "busy share of a job surely GPU-bound"),
    ("advisor.prediction.predictor", "_MOMENT", "ends of a step alone by the user's numbers"),
)


# MAPE of the drawn runs when the constants of replay, the kernel and its lengths were searched anew
# without each family, for 4,108 steps: the last evaluation before they were committed.
SEARCHED: Mapping[Mode, float] = {"naive": 0.0313, "mps": 0.0627, "mps-limits": 0.0840}


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant with its value and the file that holds it."""

    name: str
    value: float
    meaning: str
    file: str


def chosen_constants() -> tuple[Constant, ...]:
    """Return every constant of `CHOSEN` with today's value."""
    return tuple(
        Constant(
            name=name,
            value=float(f"{{0.{name}}}".format(import_module(module))),
            meaning=meaning,
            file=f"{module.replace('.', '/')}.py",
        )
        for module, name, meaning in CHOSEN
    )


def constants_section(constants: Iterable[Constant], scores: Scores) -> str:
    """Return the list in Markdown, and what searching within the folds had given."""
    now = [row.mape for row in scores.pooled() if row.bound == ALL]
    rows = [
        (f"`{each.name}`", f"{each.value:.4g}", each.meaning, f"`{each.file}`")
        for each in constants
    ]
    return joined(
        "## Constants chosen with all data in view",
        "The regression, and the interval ends and their level, are fitted without the family that "
        "is scored. We chose these constants, the columns of the model and the length of the "
        "replay while we saw the errors of all families, so expect slightly larger errors "
        "elsewhere.",
        markdown(("constant", "value", "meaning", "file"), rows),
        "For the model before this one, constants of replay and lengths of the regression were "
        f"searched without each family that is scored: its drawn runs were "
        f"{_by_mode(SEARCHED.values())} off. This model, with constants for all folds, is "
        f"{_by_mode(now)} off. The search was not repeated for it.",
    )


def _by_mode(shares: Iterable[float | None]) -> str:
    """Return shares of time-slicing, MPS and SM limits in words."""
    words = zip(map(percent, shares), MODE_HEADINGS.values(), strict=False)
    return ", ".join(f"{share} ({word})" for share, word in words)
