"""Plans as Kubernetes objects in every format: valid, whole, or refused."""

from dataclasses import replace
from heapq import nlargest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.launch.commands import side_by_side
from advisor.launch.exports import EXPORTS, WHOLE
from tests.handed import BERT, H200, JOBS, RESNET, handed
from tests.launch.golden_exports import GOLDEN, PLANS
from tests.launch.kubernetes_objects import (
    FORMS,
    WIDE,
    check_objects,
    container,
    numbers,
    objects,
    on_gpus,
    text_of,
)

EXPRESSIBLE = [(form, name) for form in FORMS for name in PLANS if text_of(form, name)]


@pytest.mark.parametrize(("form", "name"), EXPRESSIBLE)
def test_kubernetes_knows_every_field_of_a_file(form, name):
    check_objects(text_of(form, name))


@pytest.mark.parametrize(("form", "name"), EXPRESSIBLE)
def test_a_file_starts_each_job_once(form, name):
    assert sorted(numbers(text_of(form, name))) == [each.number for each in PLANS[name].starts]


@pytest.mark.parametrize(("form", "name"), EXPRESSIBLE)
def test_a_file_says_that_no_cluster_ran_it_and_needs_an_image(form, name):
    text = text_of(form, name)
    assert "# No cluster has run this file yet." in text
    assert {container(job)["image"] for job in objects(text, "Job")} == {"IMAGE"}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_says_which_other_gpu_its_memory_is_estimated_from(form):
    plan = replace(handed("naive"), estimated_from="h100-sxm-80gb")
    assert "# Its memory is estimated from h100-sxm-80gb, not measured" in EXPORTS[form](plan)
    assert "estimated" not in EXPORTS[form](handed("naive"))


@pytest.mark.parametrize("name", PLANS)
def test_memory_to_reserve_fits_the_gpu_whatever_jobs_meet(name):
    plan = PLANS[name]
    for stage in plan.stages:
        for instance in {part.instance for part in stage.partitions}:
            parts = [part for part in stage.partitions if part.instance == instance]
            starts = [start.memory_mib for part in parts for start in part.starts]
            at_once = 1 if stage.one_by_one else parts[0].at_once or len(starts)
            assert sum(nlargest(at_once, starts)) <= H200.usable_mib
            assert min(starts) > 0


def test_jobs_reserve_the_upper_end_of_their_memory_where_there_is_room():
    assert [start.memory_mib for start in handed("naive", held_mib=5000.0).starts] == [5000, 5000]
    tight = handed("naive", held_mib=90_000, least_mib=60_000).starts
    assert sum(start.memory_mib for start in tight) <= H200.usable_mib
    assert all(start.memory_mib > 60_000 for start in tight)


def holding(plan, *memory_mib):
    """`plan` with jobs that reserve so much memory."""

    def start(own):
        return replace(own, memory_mib=memory_mib[own.number - 1])

    return plan.with_partitions(lambda part: part.with_starts(start))


UNEVEN = holding(handed("mps=50,50"), 100_000, 1000)


@pytest.mark.parametrize(
    ("form", "plan", "lacking", "other"),
    [
        ("kubernetes", handed("mps"), "other limits than 50% each", "kubernetes-script"),
        ("kubernetes", handed("mps=40,60"), "other limits than 50% each", "kubernetes-script"),
        ("kubernetes", UNEVEN, "1/2 of the memory", "kubernetes-script"),
        ("kubernetes", PLANS["phases"], "groups of jobs in turn", "kubernetes-script"),
        ("kubernetes", PLANS["compute-instances"], "compute instances", "commands"),
        ("kubernetes-script", PLANS["compute-instances"], "compute instances", "commands"),
        ("kubernetes-script", PLANS["phases-of-mig"], "change MIG instances", "commands"),
        (
            "kubernetes",
            PLANS["several-on-an-instance"],
            "by MPS on nodes with MIG instances",
            "kubernetes-script",
        ),
    ],
)
def test_what_a_format_cannot_express_is_refused_with_the_format_that_can(
    form, plan, lacking, other
):
    with pytest.raises(InvalidInput, match=f"{lacking}.* Export it by --format {other}\\."):
        EXPORTS[form](plan)


SHARED_BY = ["serial", "naive", "mps", "mps=50,50", "naive/2", "mps/2"]


@given(
    st.lists(st.tuples(st.sampled_from(SHARED_BY), st.integers(1, 4)), min_size=1, max_size=5),
    st.sampled_from(FORMS),
    st.integers(1, 3),
)
def test_every_plan_that_a_format_accepts_is_whole_and_valid(gpus, form, host_gpus):
    chosen = []
    for sharing, count in gpus:
        places = 2 if "=" in sharing else count
        chosen.append((sharing if places > 1 else "serial", [JOBS[0]] * places))
    plans = on_gpus(*chosen, kinds=("h200-141gb", "a100-80gb"), host_gpus=host_gpus)
    if form == "kubernetes-script":
        text = WHOLE[form](plans)  # which expresses all of them
    else:
        try:
            text = WHOLE[form](plans)
        except InvalidInput:
            return
    check_objects(text)
    total = sum(len(jobs) for _, jobs in chosen)
    assert sorted(numbers(text)) == list(range(1, total + 1))


def test_jobs_that_a_scheduler_may_put_together_fit_together():
    memory_mib = (100_000, 20_000, 90_000, 20_000)
    plans = [holding(plan, *memory_mib) for plan in on_gpus(*[("naive", JOBS[:2])] * 2)]
    with pytest.raises(InvalidInput, match="which 2 jobs meet on a GPU, and some do not fit"):
        WHOLE["kubernetes"](plans)
    fits = [holding(plan, 70_000, 20_000, 70_000, 20_000) for plan in plans]
    assert numbers(WHOLE["kubernetes"](fits)) == [1, 2, 3, 4]


def with_wide_job():
    """Two GPUs that both run job 2 first, and then a job or two of their own."""
    plans = [handed("serial[1];mps[2,3]", [WIDE, *JOBS[:2]]), handed("serial", [WIDE, RESNET])]
    return side_by_side(dict(enumerate(plans)), {0: [2, 1, 3], 1: [2, 4]})


def test_a_job_of_several_gpus_is_a_pod_with_all_of_them_before_what_they_run_next():
    text = WHOLE["kubernetes-script"](with_wide_job())
    check_objects(text)
    assert sorted(numbers(text)) == [1, 2, 3, 4]
    jobs = objects(text, "Job")
    gpus = [container(job)["resources"]["limits"]["nvidia.com/gpu"] for job in jobs]
    assert gpus == [2, 1, 1]
    assert container(jobs[0])["resources"]["requests"]["cpu"] == "6"  # 3 for each process
    assert "/dev/shm" in [each["mountPath"] for each in container(jobs[0])["volumeMounts"]]


def test_a_job_of_several_gpus_that_nothing_shares_requests_all_of_them():
    plans = [handed("serial", [WIDE, RESNET]), handed("serial", [WIDE, BERT])]
    write = WHOLE["kubernetes"]
    text = write(side_by_side(dict(enumerate(plans)), {0: [1, 2], 1: [1, 3]}))
    check_objects(text)
    assert sorted(numbers(text)) == [1, 2, 3]
    wide = objects(text, "Job")[0]
    assert container(wide)["resources"]["limits"]["nvidia.com/gpu"] == 2
    shared = [handed("naive", [WIDE, RESNET])]
    with pytest.raises(InvalidInput, match="several GPUs that others share"):
        write(shared)


ROWS = {
    "one job after another": handed("serial", JOBS),
    "time-slicing": handed("naive"),
    "MPS without limits": handed("mps"),
    "MPS, each of N jobs 100/N %": handed("mps=50,50"),
    "MPS, other limits": handed("mps=40,60"),
    "a queue, at most N at once": handed("naive/2", JOBS),
    "groups of jobs in turn": handed("mps[1,2];naive[3]", JOBS),
    "MIG, one job an instance": handed("mig=1g.18gb,2g.35gb"),
    "MPS on a MIG instance": handed("mig=3g.71gb[1,2]/mps"),
    "different sharing on the GPUs of a model": (("naive", JOBS[:2]), ("naive", JOBS)),
    "a job that takes several GPUs": handed("serial", [RESNET, WIDE]),
}


def test_the_table_of_formats_in_the_documents_is_what_they_accept():
    page = (GOLDEN.parents[2] / "docs" / "kubernetes.md").read_text()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in page.splitlines()]
    (head,) = [row for row in rows if row[0] == "a plan with"]
    table = {row[0]: row[1:] for row in rows if row[0] in ROWS and len(row) == len(head)}
    assert table.keys() == ROWS.keys()
    for name, plan in ROWS.items():
        plans = on_gpus(*plan) if isinstance(plan, tuple) else [plan]
        for form, cell in zip(head[1:], table[name], strict=True):
            try:
                WHOLE[form](plans)
            except InvalidInput:
                assert cell == "no", (form, name)
            else:
                assert cell.startswith("yes"), (form, name)
