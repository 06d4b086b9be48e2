"""Claims for the DRA driver, and parts of a GPU for KAI and HAMi."""

import re

import pytest

from advisor.launch.exports import EXPORTS
from tests.handed import H200, RESNET, handed
from tests.launch.kubernetes_objects import (
    container,
    objects,
    text_of,
    variables,
)


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
