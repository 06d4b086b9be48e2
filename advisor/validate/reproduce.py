"""Compares what published studies found on an A100-40GB with what is predicted for one."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from statistics import median

from advisor.api import Advisor
from advisor.prediction.host_transfer import host_slowdown_at
from advisor.validate.study_claims import Claim, Claims, Kind, study_claims
from advisor.validate.study_questions import StudyQuestions


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """One claim and its predictions.

    Attributes:
        predicted: Predicted values, by what each is of.
        from_alone: The same from what the studies measured of the jobs alone.
        slower_host: The same as on a host that is slower by `Claims.slower_host`.
        instead: Workloads without a profile, each with the one used instead.
    """

    claim: Claim
    predicted: Mapping[str, float]
    from_alone: Mapping[str, float]
    slower_host: Mapping[str, float]
    instead: Mapping[str, str]

    @property
    def agrees(self) -> bool:
        return self.claim.agrees(self.predicted.values())

    @property
    def agrees_as_told(self) -> bool:
        return self.claim.agrees(self.from_alone.values())

    @property
    def agrees_on_slower_host(self) -> bool:
        return self.claim.agrees(self.slower_host.values())


@dataclass(frozen=True, slots=True)
class Score:
    """How many claims of a kind agree; claims that the same authors contest do not count."""

    kind: Kind
    rows: int
    agree: int
    agree_as_told: int
    agree_on_slower_host: int


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Every claim, in the order of the file."""

    claims: Claims
    found: tuple[Reproduced, ...]

    @property
    def scores(self) -> tuple[Score, ...]:
        """By kind of claim, in the order in which they come first."""
        kinds = dict.fromkeys(each.claim.kind for each in self.found)
        return tuple(map(self._score, kinds))

    def cause(self, name: str) -> str | None:
        """Why the row `name` is missed; None if nobody said."""
        return self.claims.causes.get(name)

    def _score(self, kind: Kind) -> Score:
        counted = [
            each for each in self.found if each.claim.kind == kind and not each.claim.contested
        ]
        return Score(
            kind,
            sum(len(each.claim.ids) for each in counted),
            sum(len(each.claim.ids) for each in counted if each.agrees),
            sum(len(each.claim.ids) for each in counted if each.agrees_as_told),
            sum(len(each.claim.ids) for each in counted if each.agrees_on_slower_host),
        )


def reproduced(advisor: Advisor, claims: Claims | None = None) -> Reproduction:
    """What `advisor`, which answers for an A100-40GB, predicts of each claim.

    Args:
        advisor: For the GPU of the studies.
        claims: None: those that come with this package.
    """
    claims = claims or study_claims()
    here = StudyQuestions(advisor, claims)
    slower = StudyQuestions(advisor, claims, claims.slower_host)

    @cache
    def on_hosts(hosts: tuple[tuple[str, float], ...]) -> StudyQuestions:
        return StudyQuestions(advisor, claims, host_slowdowns=dict(hosts))

    return Reproduction(
        claims,
        tuple(
            Reproduced(
                claim=claim,
                predicted=here.values(claim),
                from_alone=on_hosts(tuple(hosts_of_studies(here, claim).items())).values(claim),
                slower_host=slower.values(claim),
                instead=here.substitutes(claim),
            )
            for claim in claims.claims
        ),
    )


def hosts_of_studies(asked: StudyQuestions, claim: Claim) -> dict[str, float]:
    """How many times as slow each job's host is as that of its profile, by the job's word.

    A job without a number runs on the host that of those whose pace the host sets; what made
    other jobs wait, as a loader, is theirs alone. No number of `claim` itself counts.
    """
    numbers = [each for each in asked.claims.alone if not set(each.ids) & set(claim.ids)]
    own = {each.job: host_slowdown_at(asked.profile(each.job), each.gract) for each in numbers}
    paced = [each for each in own if _paced_by_host(asked, each)]
    common = median(own[each] for each in paced) if paced else 1.0
    return dict.fromkeys(asked.claims.host_of, common) | own


def _paced_by_host(asked: StudyQuestions, word: str) -> bool:
    profile = asked.profile(word)
    return (profile.host_s or 0.0) >= (profile.gpu_s or 0.0)
