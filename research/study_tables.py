"""The numbers of three studies of an A100-40GB beside our predictions: rows, files and charts.

    python -m research.study_tables

writes ``notebooks/*.csv``, which the notebooks draw. No row was measured by us on an A100: its
profiles are of an H200 and an H100, and converted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import altair as alt

from advisor.api import Advisor
from advisor.files.writing import write_whole
from advisor.plan.objectives import joint_ratio
from advisor.plan.values import equal_work
from advisor.prediction.prediction import LEVELS, Interval, all_known, mean_interval
from advisor.report.format import csv_text, in_order
from advisor.workload.store import NO_CALIBRATION
from research.files import ROOT, rounded
from research.score_tables import markdown
from research.studies import (
    GPU,
    Claim,
    Question,
    Questions,
    claims,
    hosts_of_studies,
    notation_of,
    pairs,
    studies,
    words_of,
)

FOLDER = ROOT / "notebooks"
OUR_HOST, STUDY_HOST = "host of the profiles", "host of the study"
_GB = 2**20 / 1e9
_WAYS = "naive", "mps", "slices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A number of a study and our prediction for the same jobs and sharing.

    Attributes:
        ids: Rows of the study; empty: it has no number for this.
        compared_with: Jobs and sharing, if the number is a ratio.
        host: The host for which we predict; a job that waits for its CPU leaves more of the GPU.
        low: Least number of the study, without our tolerance; None: it states no such bound.
        p05: Lower end of the 90 % interval; None: we predict a number without one.
        agrees: Whether the median lies between the bounds with their tolerance; None: no bounds.
    """

    ids: str
    says: str
    jobs: str
    sharing: str
    power_cap_w: float | None
    compared_with: str
    metric: str
    unit: str
    host: str
    study_low: float | None
    study_high: float | None
    p05: float | None
    p50: float
    p95: float | None
    agrees: bool | None
    converted_from: str | None


def interval(questions: Questions, question: Question) -> Interval | None:
    """Return the interval around `Questions.value`; None: the advisor predicts none.

    ``provider_s`` and ``provider_j`` are time and energy of an example over all jobs of the GPU,
    ``client_s`` and ``client_j`` those of one job.
    """
    planned = questions.forecast(question)
    shared, metric = planned.prediction, question.metric
    job = shared.jobs[question.job - 1]
    batches = [questions.profile(word).workload.batch for word in words_of(question.mix)]
    paces = [batch / each.step_s.p50 for batch, each in zip(batches, shared.jobs, strict=True)]
    together = Interval(
        *(
            1 / sum(b / each.step_s.at(level) for b, each in zip(batches, shared.jobs, strict=True))
            for level in LEVELS
        )
    )
    energy_j = mean_interval([each.energy_example_j for each in shared.jobs], paces)
    held_mib = [each.memory_interval_mib for each in shared.jobs]
    values: Mapping[str, Interval | None] = {
        "step": job.step_s,
        "slowdown": Interval(*map(job.slowdown_at, LEVELS)),
        "throughput": equal_work(shared).rate(1.0),
        "makespan": planned.makespan_interval_s,
        "epoch_h": job.epoch_s and job.epoch_s.scaled(1 / 3600),
        "examples_per_s": together.rate(1.0),
        "examples_per_j": energy_j and energy_j.rate(1.0),
        "memory_gb": Interval(*(_GB * sum(e.at(level) for e in held_mib) for level in LEVELS)),
        "provider_s": together,
        "provider_j": energy_j,
        "client_s": job.step_s.scaled(1 / batches[question.job - 1]),
        "client_j": job.energy_example_j,
    }
    return values.get(metric)


def _row(
    questions: Questions, host: str, claim: Claim, one: Question, other: Question | None
) -> Row:
    first = interval(questions, one)
    second = None if other is None else interval(questions, other)
    if other is not None and first is not None and second is not None:
        own, across = (each._replace(cap_w=None) for each in (one, other))
        first = joint_ratio(first, second, same_way=own == across)
    if first is None:
        p50 = questions.value(one) / (1 if other is None else questions.value(other))
    else:
        p50 = first.p50
    bounded = claim.low is not None or claim.high is not None
    return Row(
        ids=" ".join(claim.ids),
        says=claim.says,
        jobs=_jobs(one.mix),
        sharing=notation_of(one.mix, one.sharing),
        power_cap_w=one.cap_w,
        compared_with="" if other is None else _compared(one, other),
        metric=claim.metric,
        unit=claim.unit,
        host=host,
        study_low=claim.low,
        study_high=claim.high,
        p05=None if first is None else first.p05,
        p50=p50,
        p95=None if first is None else first.p95,
        agrees=claim.agrees([p50]) if bounded else None,
        converted_from=questions.forecast(one).prediction.estimated_from,
    )


def _jobs(mix: str) -> str:
    return in_order([studies()["workloads"].get(word, word) for word in words_of(mix)])


def _compared(one: Question, other: Question) -> str:
    jobs = "" if one.mix == other.mix else f"{_jobs(other.mix)} "
    cap = "" if one.cap_w == other.cap_w else f" at {other.cap_w:g} W"
    return f"{jobs}{notation_of(other.mix, other.sharing)}{cap}"


def study_rows(
    advisor: Advisor, some: Iterable[Claim], hosts: Sequence[str] = (OUR_HOST, STUDY_HOST)
) -> Iterator[Row]:
    """Yield the rows of each claim, on each of `hosts`; of the best partition, that one alone."""
    here, on_hosts = Questions(advisor), dict[tuple[tuple[str, float], ...], Questions]()
    for claim, host in product(some, hosts):
        questions = here
        if host == STUDY_HOST:
            slower = hosts_of_studies(here, claim)
            questions = on_hosts.setdefault(tuple(slower.items()), Questions(advisor, slower))
        rows = [_row(questions, host, claim, one, other) for one, other in pairs(claim)]
        match claim.take:
            case "each":
                yield from rows
            case "half the spread":
                values = [row.p50 for row in rows]
                half = (max(values) - min(values)) / 2
                agrees, jobs = claim.agrees(values), "; ".join(row.jobs for row in rows)
                yield replace(rows[0], jobs=jobs, p05=None, p50=half, p95=None, agrees=agrees)
            case _:
                choose = max if claim.take == "largest" else min
                yield choose(rows, key=lambda row: row.p50)


def _numbers(*beginnings: str) -> list[Claim]:
    """The claims whose rows begin so and that have a number, not an order alone."""
    return [
        claim
        for claim in claims()
        if claim.ids[0].startswith(beginnings)
        and claim.kind in ("slowdown", "energy", "memory", "utilisation")
        and not claim.contested
    ]


def _without_numbers(
    metric: str, mixes: Sequence[str], sharings: Sequence[str], **more: Any
) -> Claim:
    """Return a claim for a figure of a study whose text does not have its numbers."""
    fields: dict[str, Any] = {"kind": "slowdown", "says": "", "unit": "x", "tolerance": 0.0}
    return Claim(
        ids=(), metric=metric, mixes=tuple(mixes), sharings=tuple(sharings), **fields, **more
    )


_COPIES = [*(f"{k} {job}" for job in ("s", "S", "m", "M", "ES", "EM") for k in (2, 3, 7))]
_COPIES += [f"{k} {job}" for job in ("L", "C") for k in (2, 3)]
_MIXED = ["M+S", "M+S+S", "M+M+S", "M+S+S+S", "M+M+S+S", "M+M+M+S", "L+S", "L+M"]


def first_study(advisor: Advisor) -> list[Row]:
    """Return two, three and seven copies in three ways, and mixes over one job after another."""
    counted = [each for each in _numbers("A", "P", "D00") if "D+L" not in each.mixes]
    counted = [each for each in counted if each.metric in ("slowdown", "throughput")]
    rows = list(study_rows(advisor, counted))
    of_study = {(row.metric, row.jobs, row.sharing, row.host) for row in rows}
    others = [
        _without_numbers("slowdown", _COPIES, _WAYS),
        _without_numbers("makespan", _MIXED, _WAYS, against=("serial",)),
    ]
    return rows + [
        row
        for row in study_rows(advisor, others)
        if (row.metric, row.jobs, row.sharing, row.host) not in of_study
    ]


def second_study(advisor: Advisor) -> list[Row]:
    """Return the numbers of slices under power caps; the study has none of jobs alone."""
    return list(study_rows(advisor, _numbers("E"), (OUR_HOST,)))


# Networks of the second study by our profiles, and whether these allow to predict other batches.
_NETWORKS = {
    "tf_efficientnetv2_s-imagenet": True,
    "bert-base-finetune": True,
    "gpt2-medium-finetune-bs4-tf32": False,
    "gpt2-small-pretrain-bs8-amp": False,
}
# Its partitions, and the smallest slices: one of these is "1/7th GPU" of row E022.
_PARTITIONS = ("7g", "4g+3g", "4g+2g+1g", "3g+2g+2g", "2g+2g+2g+1g", "+".join(["1g.5gb"] * 7))
_CAPS_W = (250.0, 200.0, 150.0)
_PROVIDER = {"provider_s": "time of an example", "provider_j": "energy of an example"}
_CLIENT = {"client_s": "time of an example", "client_j": "energy of an example"}


def partitions(advisor: Advisor) -> list[Row]:
    """Return time and energy of an example over those on the whole GPU at the highest cap.

    Each slice trains with the largest batch that it holds, as in the study, if we have profiles of
    several batches. The provider counts all slices, a client the one that is its own.
    """
    questions, rows = Questions(advisor), list[Row]()
    for network, largest in _NETWORKS.items():
        names = jobs_of_slices(advisor, network, largest=largest)
        whole = f"{names['7g.40gb']}/7g"
        for partition, cap_w in product(_PARTITIONS, _CAPS_W):
            slices = [studies()["slices"]["short"].get(each, each) for each in partition.split("+")]
            if not all(each in names for each in slices):
                continue
            mix = f"{'+'.join(names[each] for each in slices)}/{partition}"
            views = [("provider", 1, _PROVIDER)]
            views += [
                (f"client of {each}", slices.index(each) + 1, _CLIENT)
                for each in dict.fromkeys(slices)
            ]
            for view, job, metrics in views:
                for metric, words in metrics.items():
                    claim = _client_claim(network, metric, slices[job - 1], cap_w)
                    one = Question(metric, mix, "slices", job, cap_w)
                    other = Question(metric, whole, "slices", 1, _CAPS_W[0])
                    row = _row(questions, OUR_HOST, claim, one, other)
                    rows.append(replace(row, says=view, metric=words))
    return rows


def jobs_of_slices(advisor: Advisor, network: str, *, largest: bool) -> dict[str, str]:
    """Return the job on each slice that holds it: with the `largest` batch, or with its own."""
    slices = advisor.batches(network).slices
    batches = {each.name: each.largest for each in slices if each.largest}
    return {name: f"{network}-bs{batch}" if largest else network for name, batch in batches.items()}


def _client_claim(network: str, metric: str, own: str, cap_w: float) -> Claim:
    """The study's words on a client's pace: in proportion to its slice, or worse, or better."""
    claim = _without_numbers(metric, (), ())
    if metric != "client_s" or cap_w != _CAPS_W[0] or own == "7g.40gb":
        return claim
    proportional = 7 / int(own[0])
    if network.startswith("gpt2-small-pretrain"):
        return replace(claim, ids=("E023",), low=proportional, tolerance=0.02)
    if network.startswith("gpt2-medium"):
        return replace(claim, ids=("E024",), high=proportional, tolerance=0.02)
    return replace(claim, ids=("E022",), low=proportional, high=proportional, tolerance=0.3)


def third_study(advisor: Advisor) -> list[Row]:
    """Return a recommender and ResNet-152, alone and together: time, SM activity and memory."""
    third = [each for each in _numbers("T", "D0") if set(each.mixes) <= {"1 D", "1 L", "D+L"}]
    return list(study_rows(advisor, third))


TABLES = {
    "first_study": first_study,
    "second_study": second_study,
    "second_study_partitions": partitions,
    "third_study": third_study,
}


def table_text(rows: Sequence[Row]) -> str:
    """Return `rows` as a CSV file, numbers with four digits."""
    return csv_text(rounded([asdict(row) for row in rows], ".4g"))


_WAY_WORDS = {"serial": "alone", "naive": "time-slicing", "mps": "MPS", "mig": "MIG"}


def drawn(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return `rows` for a chart: also with copies, and with sharing and slices in words."""
    values = []
    for row in rows:
        copies, times, job = row.jobs.partition(" x ")
        way, _, slices = row.sharing.partition("=")
        words = {"way": _WAY_WORDS[way], "slices": in_order(slices.split(","))}
        words |= {"job": job, "copies": copies} if times else {"job": row.jobs, "copies": "1"}
        values.append(asdict(row) | words)
    return values


def beside_chart(
    rows: Iterable[Mapping[str, Any]], y: str, colour: str, title: str
) -> alt.LayerChart | alt.FacetChart:
    """Draw the study's range (grey) and our converted prediction with its interval (coloured)."""
    base = alt.Chart().encode(
        y=alt.Y(f"{y}:N", sort=None, title=None, axis=alt.Axis(labelLimit=320)),
        yOffset=alt.YOffset(f"{colour}:N", sort=None),
    )
    coloured = base.encode(color=alt.Color(f"{colour}:N", sort=None, title=None))
    words = [title, "grey: the study; predicted: converted"]
    x = alt.X("study_low:Q", title=words, scale=alt.Scale(zero=False))
    study = base.mark_bar(color="#cccccc", stroke="#999999", strokeWidth=2)
    layers = [
        study.encode(x=x, x2="study_high:Q"),
        coloured.mark_rule(strokeWidth=1.5).encode(x="p05:Q", x2="p95:Q"),
        coloured.mark_point(filled=True, opacity=1, size=25).encode(x="p50:Q"),
    ]
    return alt.layer(*layers, data=alt.InlineData([*rows]), height=alt.Step(13))


def misses_text(rows: Iterable[Row]) -> str:
    """Return a Markdown table of the rows that do not agree."""
    cells = [
        (
            row.ids,
            row.says,
            row.jobs,
            row.sharing,
            _range(row.study_low, row.study_high),
            f"{row.p50:.2f}" + ("" if row.p05 is None else f" ({row.p05:.2f}-{row.p95:.2f})"),
        )
        for row in rows
        if row.agrees is False
    ]
    return markdown(("row", "claim", "jobs", "sharing", "the study", "predicted, converted"), cells)


def _range(low: float | None, high: float | None) -> str:
    ends = all_known([low, high])
    if ends is None:
        return f"at most {high:g}" if low is None else f"at least {low:g}"
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"


if __name__ == "__main__":
    a100 = Advisor(GPU, calibration=NO_CALIBRATION)
    for name, table in TABLES.items():
        write_whole(FOLDER / f"{name}.csv", table_text(table(a100)))
