"""Asks an `Advisor` what the studies measured: each claim as ratios of predicted numbers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product

from advisor.api import Advisor
from advisor.errors import NothingFits
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.recommendation import Forecast
from advisor.prediction.estimated_profile import names_of_jobs
from advisor.prediction.host_transfer import on_host
from advisor.sharing import parse_sharing
from advisor.validate.study_claims import Claim, Claims
from advisor.workload.job import Job
from advisor.workload.profile import Profile

GPU = "a100-40gb"
"""On which the studies measured."""

_GB = 2**20 / 1e9
_STUDYS_SLICES = "slices"


@dataclass(frozen=True, slots=True)
class StudyQuestion:
    """One number that is asked for.

    Attributes:
        metric: One of `METRICS`.
        mix: Jobs in the file's notation, e.g. ``"2 M"`` or ``"M+S/2g+1g.5gb"``.
        sharing: In the notation of `advisor.sharing.parse_sharing`, or ``"slices"``.
        job: Number of the job meant, from 1.
        cap_w: Power cap; None: the GPU's own limit.
    """

    metric: str
    mix: str
    sharing: str
    job: int
    cap_w: float | None


@dataclass(frozen=True)
class StudyQuestions:
    """Answers questions, each forecast made once.

    Attributes:
        host_slowdown: How many times as slow the host is as that of a profile.
        host_slowdowns: The same for some jobs, by their words.
    """

    advisor: Advisor
    claims: Claims
    host_slowdown: float = 1.0
    host_slowdowns: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def _known(self) -> dict[tuple[str, str, float | None], Forecast]:
        return {}

    @cached_property
    def _mixes(self) -> dict[tuple[tuple[str, ...], float | None], Mixes]:
        return {}

    def values(self, claim: Claim) -> dict[str, float]:
        """What is predicted for `claim`, by what it is of, in words."""
        return {_words(one, other): self._ratio(one, other) for one, other in _pairs(claim)}

    def substitutes(self, claim: Claim) -> dict[str, str]:
        """The workloads of `claim` without a profile, each with what stands for it."""
        asked = [mix for pair in _pairs(claim) for each in pair if each for mix in [each.mix]]
        names = {self.claims.workloads[word] for mix in asked for word in _listed(mix)}
        found = {name: self._profiled(name) for name in sorted(names)}
        return {name: instead for name, instead in found.items() if name != instead}

    def _ratio(self, one: StudyQuestion, other: StudyQuestion | None) -> float:
        return self.value(one) / (1 if other is None else self.value(other))

    def value(self, question: StudyQuestion) -> float:
        """The number that `question` asks for; nan where it is not known."""
        if question.metric.endswith("_gained"):
            plain = replace(question, metric=question.metric.removesuffix("_gained"))
            return self._ratio(plain, replace(plain, mix=_meant("1 same/7g", plain.mix)))
        if question.metric == "placed":
            return self._placed(question)
        return METRICS[question.metric](self, question)

    def _placed(self, question: StudyQuestion) -> float:
        try:
            self.forecast(question)
        except NothingFits:
            return 0.0
        return 1.0

    def forecast(self, question: StudyQuestion) -> Forecast:
        """What happens to its mix.

        Raises:
            NothingFits: The GPU does not offer these instances.
        """
        key = question.mix, question.sharing, question.cap_w
        if key not in self._known:
            sharing = parse_sharing(self._sharing(question.mix, question.sharing))
            self._known[key] = forecast(self._asked(question), sharing)
        return self._known[key]

    def alone(self, question: StudyQuestion) -> list[Forecast]:
        """The same for each of its jobs alone."""
        alone = (replace(question, mix=f"1 {word}", sharing="serial")
                 for word in _listed(question.mix))  # fmt: skip
        return [self.forecast(each) for each in alone]

    def _asked(self, question: StudyQuestion) -> Mixes:
        key = tuple(_listed(question.mix)), question.cap_w
        if key not in self._mixes:
            jobs = [Job(on_host(self.profile(word), self._slowdown(word))) for word in key[0]]
            self._mixes[key] = Mixes(jobs, self.advisor.predictor_under(question.cap_w))
        return self._mixes[key]

    def _slowdown(self, word: str) -> float:
        return self.host_slowdowns.get(word, self.host_slowdown)

    def profile(self, word: str) -> Profile:
        """That of the job called `word`, on the host of the profile."""
        return self.advisor.find_profile(self._profiled(self.claims.workloads[word]))

    def _profiled(self, name: str) -> str:
        return name if name in self._named else self.claims.nearest[name]

    @cached_property
    def _named(self) -> frozenset[str]:
        return frozenset(names_of_jobs(self.advisor.card, self.advisor.profiles))

    def _sharing(self, mix: str, sharing: str) -> str:
        if sharing != _STUDYS_SLICES:
            return sharing
        slices, words = self.claims.slices, _listed(mix)
        _, slash, partition = mix.partition("/")
        if slash:
            named = [slices["short"].get(each, each) for each in partition.split("+")]
        elif len(set(words)) == 1:
            named = [slices["copies"][str(len(words))]] * len(words)
        else:
            named = [slices["mixed"][word] for word in words]
        return "mig=" + ",".join(named)


def _listed(mix: str) -> list[str]:
    """The words of the jobs in `mix`, copies one by one."""
    jobs, _, _ = mix.partition("/")
    count, space, word = jobs.partition(" ")
    return [word] * int(count) if space else jobs.split("+")


def _pairs(claim: Claim) -> Iterator[tuple[StudyQuestion, StudyQuestion | None]]:
    """The numbers that `claim` is about, each with what it is set in relation to."""
    for cap_w, mix in product(claim.caps_w, claim.mixes):
        asked = [
            StudyQuestion(claim.metric, mix, sharing, claim.job, cap_w)
            for sharing in claim.order or claim.sharings
        ]
        if claim.order:
            yield from pairwise(asked)
        else:
            yield from ((one, other) for one in asked for other in _others(claim, one))


def _others(claim: Claim, one: StudyQuestion) -> list[StudyQuestion | None]:
    if not (claim.against or claim.against_mix or claim.against_cap_w):
        return [None]
    mix = one.mix if claim.against_mix is None else _meant(claim.against_mix, one.mix)
    cap_w = claim.against_cap_w or one.cap_w
    return [
        replace(one, mix=mix, sharing=sharing, cap_w=cap_w)
        for sharing in claim.against or (one.sharing,)
    ]


def _meant(words: str, mix: str) -> str:
    """`words` of a mix, in which "same" is `mix`, or behind a number its first job."""
    return mix if words == "same" else words.replace(" same", f" {_listed(mix)[0]}")


def _words(one: StudyQuestion, other: StudyQuestion | None) -> str:
    said = _spelt(one)
    return said if other is None else f"{said} / {_spelt(other)}"


def _spelt(question: StudyQuestion) -> str:
    cap = "" if question.cap_w is None else f" at {question.cap_w:g} W"
    return f"{question.mix} {question.sharing}{cap}"


def _examples_per_s(asked: StudyQuestions, question: StudyQuestion) -> float:
    found = asked.forecast(question).prediction
    batches = [job.batch for job in asked._asked(question).jobs]
    return sum(b / job.step_s.p50 for b, job in zip(batches, found.jobs, strict=True))


def _examples_per_j(asked: StudyQuestions, question: StudyQuestion) -> float:
    power_w = asked.forecast(question).prediction.power_w
    return _examples_per_s(asked, question) / (float("nan") if power_w is None else power_w.p50)


def _memory_gb(asked: StudyQuestions, question: StudyQuestion) -> float:
    return asked.forecast(question).prediction.memory_total_mib * _GB


def _memory_over_solos(asked: StudyQuestions, question: StudyQuestion) -> float:
    alone = [each.prediction.memory_total_mib * _GB for each in asked.alone(question)]
    return _memory_gb(asked, question) / sum(alone)


def _smact_beyond_solos(asked: StudyQuestions, question: StudyQuestion) -> float:
    alone = [_or_nan(each.prediction.smact) for each in asked.alone(question)]
    return _or_nan(asked.forecast(question).prediction.smact) - sum(alone)


def _epoch_h(asked: StudyQuestions, question: StudyQuestion) -> float:
    epoch_s = asked.forecast(question).prediction.jobs[question.job - 1].epoch_s
    return float("nan") if epoch_s is None else epoch_s.p50 / 3600


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


METRICS: dict[str, Callable[[StudyQuestions, StudyQuestion], float]] = {
    "step": lambda a, q: a.forecast(q).prediction.jobs[q.job - 1].step_s.p50,
    "slowdown": lambda a, q: a.forecast(q).prediction.jobs[q.job - 1].slowdown,
    "throughput": lambda a, q: a.forecast(q).prediction.weighted_speedup,
    "throughput_a_job": lambda a, q: (
        a.forecast(q).prediction.weighted_speedup / len(_listed(q.mix))
    ),
    "makespan": lambda a, q: _or_nan(a.forecast(q).makespan_s),
    "gain": lambda a, q: _or_nan(a.forecast(q).speedup_vs_serial),
    "epoch_h": _epoch_h,
    "examples_per_s": _examples_per_s,
    "examples_per_j": _examples_per_j,
    "memory_gb": _memory_gb,
    "memory_over_solos": _memory_over_solos,
    "oom": lambda a, q: a.forecast(q).prediction.oom_probability,
    "gract": lambda a, q: _or_nan(a.forecast(q).prediction.gract),
    "smact": lambda a, q: _or_nan(a.forecast(q).prediction.smact),
    "smact_beyond_solos": _smact_beyond_solos,
}
"""What can be asked for, by its name in the file."""
