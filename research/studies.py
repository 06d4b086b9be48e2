"""What three studies measured of shared A100-40GB GPUs, and what the advisor predicts for one.

    python -m research.studies

asks each claim of ``studies.toml`` and writes ``studies.json``, from which documents are rendered.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise, product
from math import isnan, nan
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from advisor.api import Advisor
from advisor.errors import NothingFits
from advisor.files.writing import write_whole
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.values import Forecast
from advisor.prediction.host import on_host
from advisor.sharing import parse_sharing
from advisor.workload.profile import Profile
from advisor.workload.store import NO_CALIBRATION
from research.files import rounded
from research.score_tables import markdown

GPU = "a100-40gb"
FILE = Path(__file__).with_suffix(".json")

_GB = 2**20 / 1e9
# The small trainings of the first study, by their words in `studies.toml`.
_SMALL = {"s": "ResNet-26, batch 32", "S": "ResNet-26, batch 128", "ES": "EfficientNetV2-S"}
_WAYS = (
    ("alone", 1, "serial"),
    *(
        (f"{copies}, {words}", copies, sharing)
        for copies, slices in ((3, "2g.10gb"), (7, "1g.5gb"))
        for words, sharing in (
            ("time-sliced", "naive"),
            ("MPS", "mps"),
            (f"a {slices} each", "slices"),
        )
    ),
)
# How many times as long as alone an epoch takes under MPS and on slices: P054 to P057.
_MEASURED = {
    ("s", 3): "1.05 to 1.12",
    ("s", 7): "1.6 to 1.8",
    ("S", 3): "1.5 to 2.6",
    ("ES", 3): "1.4 to 1.9",
}
_AGREEMENTS = ("agrees", "agrees_on_study_host", "agrees_on_slower_host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim; the head of `studies.toml` says what its fields mean."""

    ids: tuple[str, ...]
    kind: str
    says: str
    metric: str
    mixes: tuple[str, ...]
    unit: str
    tolerance: float
    low: float | None = None
    high: float | None = None
    sharings: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    against_mix: str | None = None
    caps_w: tuple[float | None, ...] = (None,)
    against_cap_w: float | None = None
    job: int = 1
    take: Literal["each", "largest", "smallest", "half the spread"] = "each"
    contested: str | None = None

    @property
    def least(self) -> float:
        """Least value that agrees, tolerance included."""
        return float("-inf") if self.low is None else self._moved(self.low, -self.tolerance)

    @property
    def most(self) -> float:
        """Largest value that agrees, tolerance included."""
        return float("inf") if self.high is None else self._moved(self.high, self.tolerance)

    def _moved(self, bound: float, by: float) -> float:
        return bound + by if self.unit in ("share", "points") else bound * (1 + by)

    def agrees(self, values: Iterable[float]) -> bool:
        """Whether the predicted `values` lie between the bounds; an unknown value does not."""
        every = tuple(values)
        if any(map(isnan, every)):
            return False
        match self.take:
            case "each":
                judged = every
            case "largest":
                judged = (max(every),)
            case "smallest":
                judged = (min(every),)
            case "half the spread":
                judged = ((max(every) - min(every)) / 2,)
        return all(self.least <= value <= self.most for value in judged)


@cache
def studies() -> dict[str, Any]:
    """Return the content of `studies.toml`."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


@cache
def claims() -> tuple[Claim, ...]:
    """Return all claims, in the order of the file."""
    return tuple(Claim(**_fields(entry)) for entry in studies()["claims"])


def _fields(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


class Question(NamedTuple):
    """One number to predict, in the words of `studies.toml`; `job` counts from 1."""

    metric: str
    mix: str
    sharing: str
    job: int = 1
    cap_w: float | None = None


def pairs(claim: Claim) -> Iterator[tuple[Question, Question | None]]:
    """Yield the questions of `claim`; each value is a ratio to the second, if there is one."""
    for cap_w, mix in product(claim.caps_w, claim.mixes):
        questions = [
            Question(claim.metric, mix, sharing, claim.job, cap_w)
            for sharing in claim.order or claim.sharings
        ]
        if claim.against or claim.against_mix or claim.against_cap_w:
            for one in questions:
                for sharing in claim.against or (one.sharing,):
                    compared = _same(claim.against_mix or "same", mix)
                    at_w = claim.against_cap_w or cap_w
                    yield one, Question(claim.metric, compared, sharing, claim.job, at_w)
        elif claim.order:
            yield from pairwise(questions)
        else:
            yield from product(questions, [None])


@dataclass(frozen=True)
class Questions:
    """The answers of an advisor for an A100-40GB; it makes each forecast once.

    Attributes:
        hosts: How many times as slow a job's host is as that of its profile, by the job's word.
        host: The same for all other jobs.
    """

    advisor: Advisor
    hosts: Mapping[str, float] = field(default_factory=dict)
    host: float = 1.0

    def values(self, claim: Claim) -> dict[str, float]:
        """Return the predicted values of `claim`, by what each is a value of."""
        values: dict[str, float] = {}
        for one, other in pairs(claim):
            words = " / ".join(_spelt(each) for each in (one, other) if each is not None)
            values[words] = self.value(one) / (1 if other is None else self.value(other))
        return values

    def value(self, question: Question) -> float:
        """Return the number that `question` asks for; nan if it is not known."""
        metric, mix, words = question.metric, question.mix, words_of(question.mix)
        if metric == "placed":
            try:
                self.forecast(question)
            except NothingFits:
                return 0.0
            return 1.0
        if metric.endswith("_gained"):
            plain = question._replace(metric=metric.removesuffix("_gained"))
            return self.value(plain) / self.value(plain._replace(mix=_same("1 same/7g", mix)))
        if metric in ("memory_over_solos", "smact_beyond_solos"):
            plain = question._replace(metric=metric.partition("_")[0])
            alone = sum(self.value(plain._replace(mix=f"1 {w}", sharing="serial")) for w in words)
            together = self.value(plain)
            return together / alone if plain.metric == "memory" else together - alone
        planned = self.forecast(question)
        shared = planned.prediction
        job = shared.jobs[question.job - 1]
        pace = sum(
            self.profile(word).workload.batch / each.step_s.p50
            for word, each in zip(words, shared.jobs, strict=True)
        )
        values: Mapping[str, float | None] = {
            "step": job.step_s.p50,
            "slowdown": job.slowdown,
            "throughput": shared.weighted_speedup,
            "throughput_a_job": shared.weighted_speedup / len(words),
            "makespan": planned.makespan_s,
            "gain": planned.speedup_vs_serial,
            "epoch_h": None if job.epoch_s is None else job.epoch_s.p50 / 3600,
            "examples_per_s": pace,
            "examples_per_j": None if shared.power_w is None else pace / shared.power_w.p50,
            "memory": shared.memory_total_mib * _GB,
            "memory_gb": shared.memory_total_mib * _GB,
            "oom": shared.oom_probability,
            "gract": shared.gract,
            "smact": shared.smact,
        }
        value = values[metric]
        return nan if value is None else value

    def forecast(self, question: Question) -> Forecast:
        """Return the forecast of the question's mix.

        Raises:
            NothingFits: The GPU does not offer these instances.
        """
        key = question.mix, question.sharing, question.cap_w
        if key not in self._forecasts:
            mixes = self._mixes_of(tuple(words_of(question.mix)), question.cap_w)
            sharing = parse_sharing(notation_of(question.mix, question.sharing))
            self._forecasts[key] = forecast(mixes, sharing)
        return self._forecasts[key]

    @cached_property
    def _forecasts(self) -> dict[tuple[str, str, float | None], Forecast]:
        return {}

    @cached_property
    def _mixes(self) -> dict[tuple[tuple[str, ...], float | None], Mixes]:
        return {}

    def _mixes_of(self, words: tuple[str, ...], cap_w: float | None) -> Mixes:
        if (words, cap_w) not in self._mixes:
            jobs = self.advisor.jobs(
                [on_host(self.profile(word), self.hosts.get(word, self.host)) for word in words]
            )
            self._mixes[words, cap_w] = Mixes(jobs, self.advisor.predictor_under(cap_w))
        return self._mixes[words, cap_w]

    def profile(self, word: str) -> Profile:
        """Return the profile of the job called `word`, in `studies.toml` or by its own name."""
        return self.advisor.find_profile(studies()["workloads"].get(word, word))


def words_of(mix: str) -> list[str]:
    """Return the words of the jobs in `mix`, copies one by one."""
    jobs = mix.partition("/")[0]
    count, space, word = jobs.partition(" ")
    return [word] * int(count) if space else jobs.split("+")


def _same(words: str, mix: str) -> str:
    """Return the mix `words`, in which "same" is `mix`, or after a number its first job."""
    return mix if words == "same" else words.replace(" same", f" {words_of(mix)[0]}")


def _spelt(question: Question) -> str:
    cap = "" if question.cap_w is None else f" at {question.cap_w:g} W"
    return f"{question.mix} {question.sharing}{cap}"


def notation_of(mix: str, sharing: str) -> str:
    """Return `sharing` as `advisor predict` takes it; "slices" are the study's own for `mix`."""
    if sharing != "slices":
        return sharing
    slices, words, partition = studies()["slices"], words_of(mix), mix.partition("/")[2]
    if partition:
        named = [slices["short"].get(each, each) for each in partition.split("+")]
    elif len(set(words)) == 1:
        named = [slices["copies"][str(len(words))]] * len(words)
    else:
        named = [slices["mixed"][word] for word in words]
    return "mig=" + ",".join(named)


def hosts_of_studies(questions: Questions, claim: Claim) -> dict[str, float]:
    """Return how many times as slow the host of each of the first study's jobs is.

    A job with a measured activity runs on a host on which it is as active. All others run on the
    host that jobs whose pace the host sets ran on. No number of `claim` itself counts.
    """
    numbers = [each for each in studies()["alone"] if not set(each["ids"]) & set(claim.ids)]
    own = {e["job"]: host_slowdown_at(questions.profile(e["job"]), e["gract"]) for e in numbers}
    profiles = {word: questions.profile(word) for word in own}
    paced = [own[word] for word, p in profiles.items() if (p.host_s or 0.0) >= (p.gpu_s or 0.0)]
    return dict.fromkeys(studies()["host_of"], median(paced) if paced else 1.0) | own


def host_slowdown_at(profile: Profile, gract: float) -> float:
    """Return how many times as slow a host is on which the job alone is active for that share.

    GPU work of a step is fixed, so a longer step is due to the host.
    """
    from scipy.optimize import brentq

    def too_active(slowdown: float) -> float:
        counters = on_host(profile, slowdown).counters
        return nan if counters is None else counters.gract - gract

    if too_active(1.0) <= 0:
        return 1.0
    most = 1.0
    while too_active(most) > 0:
        most *= 2
    return float(brentq(too_active, 1.0, most))


def rows(advisor: Advisor, some: Iterable[Claim] | None = None) -> list[dict[str, Any]]:
    """Return each row of the studies, and whether predictions agree with it.

    Predictions are made thrice: from the profiles as they are; on a host as slow as the study's, by
    its measurements of jobs alone; and on a host that is slower by `slower_host`.
    """
    here = Questions(advisor)
    slower = Questions(advisor, host=studies()["slower_host"])
    why = {name: each["why"] for each in studies()["causes"] for name in each["ids"]}

    @cache
    def on_hosts(hosts: tuple[tuple[str, float], ...]) -> Questions:
        return Questions(advisor, dict(hosts))

    judgements = []
    for claim in claims() if some is None else some:
        on_study = on_hosts(tuple(hosts_of_studies(here, claim).items()))
        judged = [claim.agrees(each.values(claim).values()) for each in (here, on_study, slower)]
        judgements += [
            {
                "id": name,
                "kind": claim.kind,
                "says": claim.says,
                "contested": claim.contested,
                **dict(zip(_AGREEMENTS, judged, strict=True)),
                "why_not": None if judged[0] and judged[1] else claim.contested or why.get(name),
            }
            for name in claim.ids
        ]
    return judgements


def counted(every: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows that count: not contested, and not of placement, which is no prediction."""
    return [row for row in every if row["contested"] is None and row["kind"] != "placement"]


def small_trainings(advisor: Advisor) -> list[dict[str, Any]]:
    """Return how many times as long as alone the small trainings take, in each of seven ways."""
    here = Questions(advisor)
    (seven,) = (claim for claim in claims() if "P057" in claim.ids)
    on_study = Questions(advisor, hosts_of_studies(here, seven))
    return [
        {
            "way": way,
            "copies": copies,
            "time_sliced": sharing == "naive",
            **{
                name: {
                    word: questions.value(Question("slowdown", f"{copies} {word}", sharing))
                    for word in _SMALL
                }
                for name, questions in (("slowdown", here), ("on_study", on_study))
            },
        }
        for way, copies, sharing in _WAYS
    ]


def document(advisor: Advisor) -> dict[str, Any]:
    """Return what `studies.json` holds: how many rows agree, by kind, and the small trainings."""
    every = counted(rows(advisor))
    kinds = {
        kind: {
            "rows": sum(row["kind"] == kind for row in every),
            **{
                name: sum(row[name] for row in every if row["kind"] == kind) for name in _AGREEMENTS
            },
        }
        for kind in dict.fromkeys(row["kind"] for row in every)
    }
    return {"kinds": kinds, "small": small_trainings(advisor)}


def studies_text() -> str:
    """Return the block of docs/other-gpus.md: the small trainings, and how many rows agree."""
    stored = json.loads(FILE.read_text())
    headings = ["copies, way", *(part for name in _SMALL.values() for part in (name, "the study"))]
    cells = [
        [
            way["way"],
            *(
                cell
                for word in _SMALL
                for cell in (
                    f"{way['on_study'][word]:.2f}x ({way['slowdown'][word]:.2f}x)",
                    _measured(way, word),
                )
            ),
        ]
        for way in stored["small"]
    ]
    of_all, agree, on_study, slower = _totals(stored)
    by_kind = (
        f"{name} {each['agrees_on_study_host']} of {each['rows']}"
        for name, each in stored["kinds"].items()
    )
    return (
        f"{markdown(headings, cells)}\n\n"
        f"Of {of_all} rows of the studies {on_study} agree with the prediction from "
        f"their numbers of jobs alone ({on_study / of_all:.0%}), {agree} with the "
        f"prediction from the shipped profiles as they are ({agree / of_all:.0%}), and {slower} as "
        f"if on a host {studies()['slower_host']:g} times as slow ({slower / of_all:.0%}); the "
        f"goal was 90 %. By kind, from numbers of jobs alone: {', '.join(by_kind)}."
    )


def _measured(way: Mapping[str, Any], word: str) -> str:
    if way["copies"] == 1:
        return "1x"
    slowdown = None if way["time_sliced"] else _MEASURED.get((word, way["copies"]))
    return "-" if slowdown is None else f"{slowdown}x"


def _totals(stored: Mapping[str, Any]) -> list[int]:
    names = ("rows", *_AGREEMENTS)
    return [sum(each[name] for each in stored["kinds"].values()) for name in names]


if __name__ == "__main__":
    studied = document(Advisor(GPU, calibration=NO_CALIBRATION))
    write_whole(FILE, json.dumps(rounded(studied, ".4g"), indent=1, allow_nan=False) + "\n")
