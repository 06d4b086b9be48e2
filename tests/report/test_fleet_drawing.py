"""Jobs on several GPUs, drawn: each in the rows of its GPU, with who shares it at that time."""

import json
from dataclasses import replace

from advisor.prediction.interval import Interval
from advisor.report.charts import lanes_chart
from advisor.report.fleet_drawing import (
    gains_of,
    job_rows_of,
    jobs_of_queue,
    lanes_of,
    names_of,
)
from advisor.timeline.outcome import SimulatedJob
from tests import synthetic
from tests.report.test_simulation_drawing import IN_TURN, JOB, after


def lived(gpu, start_min, end_min, **more):
    job = replace(JOB, **more)
    return SimulatedJob(
        job=job, arrival_s=0, gpu=gpu, place=0, start_s=60 * start_min, end_s=after(end_min)
    )


def placed(*jobs):
    return jobs_of_queue(replace(IN_TURN, gpus=2, jobs=jobs))


def test_rows_go_by_gpu_and_on_each_as_jobs_start():
    jobs = placed(lived(1, 0, 10), lived(0, 10, 30), lived(0, 0, 10))
    assert [(each.gpu, each.number) for each in jobs] == [(0, 3), (0, 2), (1, 1)]
    assert [row.partition(" · ")[0] for row in lanes_of(jobs).rows] == ["GPU 0", "GPU 0", "GPU 1"]
    assert lanes_of(jobs).end == 33, "where the last may end"


def test_copies_that_run_alike_on_one_gpu_share_a_row_and_on_two_gpus_do_not():
    jobs = placed(lived(0, 0, 10), lived(1, 0, 10), lived(0, 0, 10))
    assert [row.rpartition(" ")[2] for row in lanes_of(jobs).rows] == ["x2", JOB.name]


def test_jobs_have_their_colours_by_the_order_asked_for_whichever_gpu_they_are_on():
    other = synthetic.profile("bert-base-finetune-bs16")
    jobs = placed(lived(1, 0, 10), lived(0, 0, 10, profile=other))
    assert names_of(jobs) == [JOB.name, other.name]
    scale = json.dumps([JOB.name, other.name])
    assert scale in json.dumps(lanes_chart(lanes_of(jobs), names_of(jobs)).to_dict())


def test_who_shares_a_gpu_is_who_runs_on_it_at_the_same_time():
    jobs = placed(lived(0, 0, 10), lived(0, 5, 30), lived(0, 10, 20), lived(1, 0, 30))
    shares = {row["job"][0]: row["shares with"] for row in job_rows_of(jobs)}
    assert shares == {"1": "2", "2": "1, 3", "3": "2", "4": "none"}


def test_a_job_is_late_where_its_median_end_is_after_its_deadline():
    jobs = placed(
        lived(0, 0, 10, deadline_s=599.0), lived(0, 0, 10, deadline_s=600.0), lived(1, 0, 10)
    )
    assert {row["job"][0]: row["deadline"] for row in job_rows_of(jobs)} == {
        "1": "late", "2": "holds", "3": "none",
    }  # fmt: skip


def test_what_is_gained_is_said_of_what_is_known():
    done, one, each = gains_of(Interval(54, 60, 66), 120.0, 90.0)
    assert done == ("Until all are done", "60.0 s", "from 54.0 s to 66.0 s")
    assert one == ("Gain over one GPU", "2.00x", "one GPU: 2.00 min")
    assert each == ("Gain over one job per GPU", "1.50x", "one job per GPU: 90.0 s")
    assert gains_of(Interval(54, 60, 66), None, None) == [done]
