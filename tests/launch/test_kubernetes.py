"""Plans as Kubernetes objects, against the schemas of Kubernetes and the fields of others."""

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from heapq import nlargest

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware.gpus import catalogue, gpu
from advisor.launch.commands import commands_text, side_by_side
from advisor.launch.exports import EXPORTS, WHOLE
from advisor.launch.kubernetes import job_name, product_labels
from advisor.launch.launch_plan import launch_plan
from advisor.workload.job import Job
from advisor.workload.spec import Script
from tests.handed import BERT, H200, JOBS, RESNET, handed, predicted
from tests.launch.golden_exports import GOLDEN, PLANS
from tests.launch.kubernetes_fields import check_dra, check_mig_parted, check_plugin

FORMS = ("kubernetes", "kubernetes-script", "kubernetes-dra", "kai", "hami")
# It reads a file of 2 MB for each object.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)
EARLIEST, LATEST = "1.34", "1.37"  # resource.k8s.io/v1 came with 1.34


@cache
def text_of(form, name):
    """The file of a plan; None if the format cannot express it."""
    try:
        return EXPORTS[form](PLANS[name])
    except InvalidInput:
        return None


EXPRESSIBLE = [(form, name) for form in FORMS for name in PLANS if text_of(form, name)]


def objects(text, kind=None):
    return [each for each in yaml.safe_load_all(text) if kind in (None, each["kind"])]


def container(job):
    (own,) = job["spec"]["template"]["spec"]["containers"]
    return own


def variables(job):
    return {each["name"]: each.get("value") for each in container(job).get("env", [])}


def numbers(text):
    """The numbers of the trainings that a file starts, each by a Job or by a line of a script."""
    own = [variables(job).get("ADVISOR_JOB") for job in objects(text, "Job")]
    lines = re.findall(r"^  .*\bjob (\d+) ", "\n".join(scripts(text)), re.MULTILINE)
    return [int(number) for number in (*filter(None, own), *lines)]


def scripts(text):
    """The scripts that the pods of a file run."""
    data = [each["data"] for each in objects(text, "ConfigMap")]
    return [each["plan.sh"].partition("set -euo")[0] for each in data if "plan.sh" in each]


def check_objects(text):
    """Check every object, and the documents of other tools inside."""
    documents = objects(text)
    for document in documents:
        kubernetes_validate.validate(document, EARLIEST, strict=True)
        kubernetes_validate.validate(document, LATEST, strict=True)
        name = document["metadata"]["name"]
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name), name
        for key, content in document.get("data", {}).items():
            if document["metadata"]["name"] == "advisor-mig":
                check_mig_parted(yaml.safe_load(content))
            elif document["metadata"]["name"] == "advisor-device-plugin":
                assert re.fullmatch(r"[-._a-zA-Z0-9]+", key)
                check_plugin(yaml.safe_load(content))
        spec = document.get("spec", {})
        for config in spec.get("spec", spec).get("devices", {}).get("config", []):
            check_dra(config["opaque"]["parameters"])
    names = [(each["kind"], each["metadata"]["name"]) for each in documents]
    assert len(set(names)) == len(names)


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


@pytest.mark.parametrize("replicas", [2, 3])
def test_the_device_plugin_gives_a_gpu_as_many_places_as_jobs_run_at_once(replicas):
    text = EXPORTS["kubernetes"](handed(f"naive/{replicas}", (*JOBS, RESNET, BERT)))
    (config,) = [each for each in objects(text, "ConfigMap")]
    assert set(config["data"]) == {"default", "h200-141gb"}
    assert yaml.safe_load(config["data"]["default"]) == {"version": "v1"}
    sharing = yaml.safe_load(config["data"]["h200-141gb"])["sharing"]["timeSlicing"]
    assert sharing["resources"] == [{"name": "nvidia.com/gpu", "replicas": replicas}]
    for job in objects(text, "Job"):
        assert container(job)["resources"]["limits"] == {"nvidia.com/gpu.shared": 1}
    assert "device-plugin.config=h200-141gb" in text


def test_one_after_another_is_a_whole_gpu_for_each_and_no_sharing():
    text = text_of("kubernetes", "serial")
    assert not objects(text, "ConfigMap")
    for job in objects(text, "Job"):
        assert container(job)["resources"]["limits"] == {"nvidia.com/gpu": 1}


def test_each_mig_instance_is_requested_by_its_jobs_and_made_by_the_operator():
    text = text_of("kubernetes", "equal-instances")
    (config,) = objects(text, "ConfigMap")
    made = yaml.safe_load(config["data"]["config.yaml"])["mig-configs"]
    assert made["advisor"][0]["mig-devices"] == {"1g.18gb": 2, "1g.35gb": 1}
    assert made["all-disabled"] == [{"devices": "all", "mig-enabled": False}]
    limits = [dict(container(job)["resources"]["limits"]) for job in objects(text, "Job")]
    requested = Counter(name for each in limits for name in each)
    assert requested == {"nvidia.com/mig-1g.18gb": 2, "nvidia.com/mig-1g.35gb": 1}
    assert "nvidia.com/mig.config=advisor" in text


def test_jobs_in_turns_on_an_instance_share_its_resource():
    text = EXPORTS["kubernetes"](handed("mig=4g.71gb[1]+3g.71gb[2,3]", JOBS))
    plugin, _ = objects(text, "ConfigMap")
    sharing = yaml.safe_load(plugin["data"]["h200-141gb"])["sharing"]
    assert sharing["timeSlicing"]["resources"] == [
        {"name": "nvidia.com/mig-3g.71gb", "replicas": 2}
    ]
    limits = [container(job)["resources"]["limits"] for job in objects(text, "Job")]
    shared = {"nvidia.com/mig-3g.71gb.shared": 1}
    assert limits == [{"nvidia.com/mig-4g.71gb": 1}, shared, shared]


def holding(plan, *memory_mib):
    """`plan` with jobs that reserve so much memory."""

    def start(own):
        return replace(own, memory_mib=memory_mib[own.number - 1])

    return plan.with_partitions(lambda part: part.with_starts(start))


UNEVEN = holding(handed("mps=50,50"), 100_000, 1000)


@pytest.mark.parametrize(
    ("form", "plan", "lacking", "other"),
    [
        ("kubernetes", handed("mps"), "other limits", "kubernetes-script"),
        ("kubernetes", handed("mps=40,60"), "other limits", "kubernetes-script"),
        ("kubernetes", UNEVEN, "1/2 of the memory", "kubernetes-script"),
        ("kubernetes", PLANS["phases"], "groups of jobs in turn", "kubernetes-script"),
        ("kubernetes", PLANS["compute-instances"], "compute instances", "commands"),
        ("kubernetes-script", PLANS["compute-instances"], "compute instances", "commands"),
        ("kubernetes-dra", PLANS["queue"], "a queue to 2 jobs at once", "kubernetes-script"),
        ("kubernetes-dra", PLANS["phases"], "groups of jobs in turn", "kubernetes-script"),
        ("kubernetes-dra", PLANS["compute-beside-whole"], "compute instances", "commands"),
        ("kai", PLANS["phases"], "groups of jobs in turn", "kubernetes-script"),
        ("kai", PLANS["mig"], "MIG instances", "kubernetes"),
        ("hami", PLANS["mps"], "under MPS", "kai"),
        ("hami", PLANS["phases"], "groups of jobs in turn", "kubernetes-script"),
        ("hami", handed("mig=4g.71gb[1]+3g.71gb[2,3]", JOBS), "share a MIG", "kubernetes"),
        ("hami", PLANS["mig"], "profiles of equal memory", "kubernetes"),
        ("kubernetes-script", PLANS["phases-of-mig"], "change MIG instances", "commands"),
        (
            "kubernetes", PLANS["several-on-an-instance"], "MIG instance by MPS",
            "kubernetes-script",
        ),
    ],
)  # fmt: skip
def test_what_a_format_cannot_express_is_refused_with_the_format_that_can(
    form, plan, lacking, other
):
    with pytest.raises(InvalidInput, match=f"{lacking}.* Export it by --format {other}\\."):
        EXPORTS[form](plan)


@pytest.mark.parametrize("name", ["serial", "mps", "limits", "phases", "queue", "queue-in-phases"])
def test_a_pod_with_a_whole_gpu_runs_the_script_of_the_plan(name):
    text = text_of("kubernetes-script", name)
    (config,), (job,) = objects(text, "ConfigMap"), objects(text, "Job")
    assert config["data"]["plan.sh"] == commands_text(PLANS[name], "0")
    assert container(job)["command"] == ["bash", "/advisor/plan.sh"]
    assert container(job)["resources"]["limits"] == {"nvidia.com/gpu": 1}
    (volume,) = [each for each in container(job)["volumeMounts"] if "advisor" in each["name"]]
    assert volume["mountPath"] == "/advisor"


def test_each_mig_instance_has_a_pod_that_runs_its_jobs_under_their_own_daemon():
    text = text_of("kubernetes-script", "several-on-an-instance")
    limits = [container(job)["resources"]["limits"] for job in objects(text, "Job")]
    assert limits == [{"nvidia.com/mig-4g.71gb": 1}, {"nvidia.com/mig-3g.71gb": 1}]
    first, second = scripts(text)
    assert "use_mps" not in first
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60" in second
    assert all("GPU=$(nvidia-smi -L" in script for script in (first, second))


def test_a_pod_of_several_jobs_requests_what_those_at_once_use():
    measured = [Job(replace(job.profile, host_memory_mib=1000.0)) for job in (*JOBS, RESNET)]
    text = EXPORTS["kubernetes-script"](handed("mps/2[3,1,2,4]", measured))
    (job,) = objects(text, "Job")
    assert container(job)["resources"]["requests"] == {"cpu": "4", "memory": "2500Mi"}
    in_turn = EXPORTS["kubernetes-script"](handed("mps[1,3];mps[2,4]", measured))
    (job,) = objects(in_turn, "Job")
    assert container(job)["resources"]["requests"] == {"cpu": "4", "memory": "2500Mi"}


def test_pods_that_share_a_gpu_name_one_common_claim_with_the_limits_of_each():
    text = text_of("kubernetes-dra", "limits")
    (claim,) = objects(text, "ResourceClaim")
    jobs = objects(text, "Job")
    for job in jobs:
        (reference,) = job["spec"]["template"]["spec"]["resourceClaims"]
        assert reference["resourceClaimName"] == claim["metadata"]["name"]
        assert container(job)["resources"]["claims"] == [{"name": reference["name"]}]
    limits = [variables(job)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for job in jobs]
    assert limits == ["43", "57.5"]
    (config,) = claim["spec"]["devices"]["config"]
    assert config["opaque"]["parameters"]["sharing"] == {"strategy": "MPS", "mpsConfig": {}}
    assert "featureGates.MPSSupport=true" in text


def test_a_claim_has_the_limit_that_all_of_its_jobs_have():
    text = EXPORTS["kubernetes-dra"](handed("mps=50,50"))
    (claim,) = objects(text, "ResourceClaim")
    (config,) = claim["spec"]["devices"]["config"]
    sharing = config["opaque"]["parameters"]["sharing"]
    assert sharing["mpsConfig"] == {"defaultActiveThreadPercentage": 50}
    names = [set(variables(job)) for job in objects(text, "Job")]
    assert names == [{"ADVISOR_JOB", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"}] * 2


def test_pods_alone_have_claims_of_one_template_and_time_slicing_needs_no_gate():
    text = text_of("kubernetes-dra", "serial")
    (template,) = objects(text, "ResourceClaimTemplate")
    for job in objects(text, "Job"):
        (reference,) = job["spec"]["template"]["spec"]["resourceClaims"]
        assert reference["resourceClaimTemplateName"] == template["metadata"]["name"]
    for name in ("serial", "naive"):
        assert "featureGates" not in text_of("kubernetes-dra", name)
        assert "config:" not in text_of("kubernetes-dra", name)


def test_a_claim_selects_the_profile_of_its_mig_instance_and_the_model():
    text = text_of("kubernetes-dra", "several-on-an-instance")
    (template,), (claim,) = objects(text, "ResourceClaimTemplate"), objects(text, "ResourceClaim")
    for spec, profile in ((template["spec"]["spec"], "4g.71gb"), (claim["spec"], "3g.71gb")):
        (request,) = spec["devices"]["requests"]
        assert request["exactly"]["deviceClassName"] == "mig.nvidia.com"
        (selector,) = request["exactly"]["selectors"]
        assert f".profile == '{profile}'" in selector["cel"]["expression"]
        assert ".productName in ['NVIDIA H200']" in selector["cel"]["expression"]
    (config,) = claim["spec"]["devices"]["config"]
    assert config["opaque"]["parameters"]["kind"] == "MigDeviceConfig"
    assert "DynamicMIG" in text


@pytest.mark.parametrize("places", [2, 3, 7, 13, 32, 48])
def test_fractions_of_a_gpu_are_for_as_many_pods_as_planned_and_no_more(places):
    text = EXPORTS["kai"](handed(f"naive/{places}", [RESNET] * (places + 1), held_mib=100))
    fraction = float(re.search("gpu-fraction: '(.*)'", text)[1])
    assert places * fraction <= 1 < (places + 1) * fraction


def test_kai_schedules_each_pod_in_a_queue_under_the_daemon_of_its_node():
    for job in objects(text_of("kai", "limits"), "Job"):
        assert job["metadata"]["labels"]["kai.scheduler/queue"] == "default-queue"
        template = job["spec"]["template"]
        assert template["metadata"]["labels"]["kai.scheduler/queue"] == "default-queue"
        assert template["spec"]["schedulerName"] == "kai-scheduler"
        paths = [mount["mountPath"] for mount in container(job)["volumeMounts"]]
        assert variables(job)["CUDA_MPS_PIPE_DIRECTORY"] in paths
        assert "limits" not in container(job)["resources"]
    for job in objects(text_of("kai", "serial"), "Job"):
        assert "gpu-fraction" not in job["spec"]["template"]["metadata"]["annotations"]
        assert container(job)["resources"]["limits"] == {"nvidia.com/gpu": 1}


@pytest.mark.parametrize("name", ["naive", "serial"])
def test_hami_gives_memory_and_places_that_fit_the_gpu(name):
    limits = [
        container(job)["resources"]["limits"] for job in objects(text_of("hami", name), "Job")
    ]
    places = 1 if name == "serial" else 2
    assert {each["nvidia.com/gpucores"] for each in limits} == {100 // places}
    assert sum(each.get("nvidia.com/gpumem", 0) for each in limits) <= H200.usable_mib
    assert all(("nvidia.com/gpumem" in each) == (places > 1) for each in limits)


def test_hami_chooses_the_planned_mig_profile_by_its_memory():
    text = text_of("hami", "equal-instances")
    memory_mib = {row.name: row.memory_mib for row in H200.mig}
    planned = ["1g.18gb", "1g.18gb", "1g.35gb"]
    for job, profile in zip(objects(text, "Job"), planned, strict=True):
        annotations = job["spec"]["template"]["metadata"]["annotations"]
        assert annotations["nvidia.com/vgpu-mode"] == "mig"
        request = container(job)["resources"]["limits"]["nvidia.com/gpumem"]
        enough = [name for name in dict.fromkeys(planned) if memory_mib[name] >= request]
        assert min(enough, key=memory_mib.get) == profile
    assert "migProfileAllowlist for h200-141gb list 1g.18gb, 1g.35gb alone" in text


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


def with_script(job, **fields):
    script = Script(**{"command": ("python", "train.py"), "folder": "/code"} | fields)
    workload = replace(job.profile.workload, script=script)
    return Job(replace(job.profile, workload=workload))


def test_a_job_of_a_script_runs_its_command_in_its_folder_with_its_variables():
    own = with_script(RESNET, command=("python", "train.py", "--out", "$(date) $HOME"),
                      environment={"LR": "a$b", "HF_TOKEN": "hidden"})  # fmt: skip
    text = EXPORTS["kubernetes"](handed("naive", [own, BERT]))
    first, second = objects(text, "Job")
    assert container(first)["workingDir"] == "/code"
    # Kubernetes replaces $$ by $, and $(NAME) by a variable.
    assert container(first)["command"] == ["python", "train.py", "--out", "$$(date) $$HOME"]
    assert variables(first)["LR"] == "a$$b"
    assert "hidden" not in text
    (secret,) = [each for each in container(first)["env"] if each["name"] == "HF_TOKEN"]
    assert secret["valueFrom"]["secretKeyRef"] == {"name": "advisor-secrets", "key": "HF_TOKEN"}
    assert "kubectl create secret generic advisor-secrets --from-literal=HF_TOKEN=..." in text
    assert container(second)["command"] == [f"./{BERT.name}.sh"]


def test_a_job_requests_its_cores_and_its_measured_host_memory_with_a_margin():
    measured = Job(replace(RESNET.profile, host_memory_mib=8000.0))
    text = EXPORTS["kubernetes"](handed("naive", [measured, BERT]))
    first, second = map(container, objects(text, "Job"))
    assert first["resources"]["requests"] == {"cpu": "1", "memory": "10000Mi"}
    assert first["resources"]["limits"]["memory"] == "10000Mi"
    assert second["resources"]["requests"] == {"cpu": "3"}  # with two loader workers
    assert "# The host memory of job 2 was not measured" in text


def test_loader_workers_have_shared_memory():
    first, second = objects(text_of("kubernetes", "naive"), "Job")
    assert "volumes" not in first["spec"]["template"]["spec"]
    assert container(second)["volumeMounts"] == [{"name": "dev-shm", "mountPath": "/dev/shm"}]


def test_a_label_of_a_node_is_the_name_of_its_gpu_without_blanks():
    assert product_labels(gpu("a100-80gb")) == ["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"]
    for model in catalogue().values():
        for label in product_labels(model):
            assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", label)


def test_a_long_name_of_a_job_is_cut_to_a_label():
    assert job_name("12-" + "X._+" * 40) == ("advisor-12-" + "x-" * 26).strip("-")
    assert len(job_name("1-" + "a" * 100)) == 63


def on_gpus(*plans, kinds=("h200-141gb",), host_gpus=8):
    """The plans of GPUs, on hosts of these kinds in turn, with all jobs numbered in order."""
    launched, numbers, count = {}, {}, 0
    for number, (sharing, jobs) in enumerate(plans):
        kind = kinds[number // host_gpus % len(kinds)]
        launched[number] = launch_plan(jobs, gpu(kind), predicted(sharing, jobs))
        numbers[number] = range(count + 1, count + len(jobs) + 1)
        count += len(jobs)
    return [
        replace(plan, host=plan.number // host_gpus, device=plan.number % host_gpus)
        for plan in side_by_side(launched, numbers)
    ]


def test_gpus_that_share_in_one_way_are_one_configuration_and_each_job_is_there_once():
    plans = on_gpus(("naive", JOBS[:2]), ("naive/2", JOBS))
    text = WHOLE["kubernetes"](plans)
    check_objects(text)
    assert sorted(numbers(text)) == [1, 2, 3, 4, 5]


def test_gpus_of_a_node_that_would_share_in_several_ways_are_refused():
    with pytest.raises(InvalidInput, match="2 at once by time-slicing, and 3 at once"):
        WHOLE["kubernetes"](on_gpus(("naive", JOBS[:2]), ("naive", JOBS)))


def test_instances_of_several_gpus_are_one_configuration():
    plans = on_gpus(
        ("mig=3g.71gb,4g.71gb", JOBS[:2]), ("serial", JOBS), ("mig=3g.71gb,4g.71gb", JOBS[:2])
    )
    for text in (WHOLE["mig-parted"](plans), WHOLE["kubernetes"](plans)):
        assert "devices:" in text
    document = yaml.safe_load(WHOLE["mig-parted"](plans))
    check_mig_parted(document)
    first, second = document["mig-configs"]["advisor"]
    assert (first["devices"], second["devices"]) == ([0, 2], [1])
    assert first["mig-devices"] == {"3g.71gb": 1, "4g.71gb": 1}
    assert not second["mig-enabled"]


def test_hosts_with_other_instances_have_other_configurations():
    cut, other = ("mig=3g.71gb,4g.71gb", JOBS[:2]), ("mig=7g.141gb", JOBS[:1])
    equal = yaml.safe_load(WHOLE["mig-parted"](on_gpus(cut, cut, host_gpus=1)))
    assert list(equal["mig-configs"]) == ["advisor"]
    text = WHOLE["kubernetes"](on_gpus(cut, other, host_gpus=1))
    check_objects(text)
    assert re.findall(r"mig.config=(\S+)", text) == ["advisor-host-1", "advisor-host-2"]


WIDE = Job(BERT.profile, gpus=2)
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
