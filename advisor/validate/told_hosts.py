"""How slow the studies' host is, by what they measured of jobs alone."""

from statistics import median

from advisor.prediction.host_transfer import host_slowdown_at
from advisor.validate.study_claims import Claim
from advisor.validate.study_questions import StudyQuestions


def told_hosts(asked: StudyQuestions, claim: Claim) -> dict[str, float]:
    """How many times as slow each job's host is as that of its profile, by the job's word.

    A job without a number runs on the host that those tell of whose pace the host sets; what made
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
