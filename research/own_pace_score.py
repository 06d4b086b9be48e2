"""What earlier runs of a job on the same day teach of its pace.

    python -m research.own_pace_score > benchmarks/own-pace/score.json

Every shipped run is predicted twice by the shipped model, which has seen it: from the profiles
alone, and with what `advisor fit` would have learnt of each job from the runs before it that day.
Those ran on several hosts and on any of their cores, so a user with one machine gains more.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean

from advisor.hardware.catalogue import gpu
from advisor.plan.paced_predictor import PacedPredictor
from advisor.prediction.fit.own_pace_fit import Part, behind_in, pace_by
from advisor.prediction.job_features import is_gpu_bound
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.sharing import SHARED_MODES
from advisor.validate.predicted_and_measured import compare, profiles_of, sharing_of
from advisor.validate.score_tables import MODE_WORDS, markdown, percent
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import model_path
from research.files import PROFILES, measured
from research.script_table import Scores, committed

GPUS = ("h200-141gb", "h100-sxm-80gb")
_COLUMNS = ("sharing", "earlier runs of the job", "steps", "MAPE from profiles", "with these runs",
            "inside, from profiles", "with these runs")  # fmt: skip
# Jobs by how many earlier runs there are.
_CLASSES = ((1, 1, "1"), (2, 3, "2 to 3"), (4, 10**6, "4 and more"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedStep:
    """A step of a job that waits for its host, in one run.

    Attributes:
        earlier: How many runs before that day showed the pace of the job's host.
        plain: Error from the profiles alone, a share.
        paced: Error with what these runs taught.
    """

    mode: str
    earlier: int
    plain: float
    paced: float
    inside_plain: bool
    inside_paced: bool


def steps_of(key: str, profiles: Mapping[str, Profile], runs: Sequence[Run]) -> Iterator[PacedStep]:
    """Host-bound jobs in the shared `runs` on the GPU `key`, in the order in which they ran."""
    plain, day = Predictor(gpu(key), load_model(model_path(None))), ""
    shown: dict[str, dict[Part, list[float]]] = {}
    for run in sorted(_usable(runs), key=lambda run: run.provenance.date):
        if (date := run.provenance.date[:10]) != day:
            shown, day = defaultdict(lambda: defaultdict(list)), date
        paces = {name: pace_by(each, profiles[name]) for name, each in shown.items()}
        own, raw = PacedPredictor(plain, paces), profiles_of(run, profiles, "raw")
        both = [compare(run, raw, each, gpu(key), {}).jobs for each in (plain, own)]
        for profile, before, after in zip(raw, *both, strict=True):
            if not is_gpu_bound(profile):
                yield PacedStep(
                    mode=sharing_of(run).mode, earlier=len(shown[profile.name]["host"]),
                    plain=before.predicted_s.p50 / before.measured_s - 1,
                    paced=after.predicted_s.p50 / after.measured_s - 1,
                    inside_plain=before.inside, inside_paced=after.inside,
                )  # fmt: skip
        for (name, part), behind in behind_in(run, profiles, plain).items():
            shown[name][part].append(behind)


def _usable(runs: Sequence[Run]) -> Iterator[Run]:
    for run in runs:
        if run.shows_pace and len(run.tenants) > 1 and sharing_of(run).mode in SHARED_MODES:
            yield run


def rows(steps: Scores) -> Iterator[tuple[str, ...]]:
    """Each way of sharing and class of earlier runs a line."""
    for mode in dict.fromkeys(each["mode"] for each in steps):
        for least, most, words in _CLASSES:
            those = [each for each in steps
                     if each["mode"] == mode and least <= each["earlier"] <= most]  # fmt: skip
            if those:
                errors = (mean(abs(each[name]) for each in those) for name in ("plain", "paced"))
                held = (mean(each[f"inside_{name}"] for each in those)
                        for name in ("plain", "paced"))  # fmt: skip
                figures = (percent(each) for each in (*errors, *held))
                yield (MODE_WORDS[mode], words, str(len(those)), *figures)


def own_pace_table() -> str:
    """The table of docs/accuracy.md."""
    return markdown(_COLUMNS, [tuple(each) for each in committed("own-pace")["rows"]])


def main() -> None:
    found = [asdict(step) for key in GPUS for step in steps_of(key, *measured(PROFILES / key))]
    print(json.dumps({"rows": list(rows(found))}, indent=1))


if __name__ == "__main__":
    main()
