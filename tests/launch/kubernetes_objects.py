"""Objects in files for Kubernetes, and their check against schemas."""

import re
from dataclasses import replace
from functools import cache

import kubernetes_validate
import yaml

from advisor.errors import InvalidInput
from advisor.hardware.gpus import gpu
from advisor.launch.commands import side_by_side
from advisor.launch.exports import EXPORTS
from advisor.launch.launch_plan import launch_plan
from advisor.workload.job import Job
from tests.handed import BERT, predicted
from tests.launch.golden_exports import PLANS
from tests.launch.kubernetes_fields import check_mig_parted, check_plugin

WIDE = Job(BERT.profile, gpus=2)
FORMS = ("kubernetes", "kubernetes-script")
# It reads a file of 2 MB for each object.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)
EARLIEST, LATEST = "1.34", "1.37"


@cache
def text_of(form, name):
    """The file of a plan; None if the format cannot express it."""
    try:
        return EXPORTS[form](PLANS[name])
    except InvalidInput:
        return None


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
    names = [(each["kind"], each["metadata"]["name"]) for each in documents]
    assert len(set(names)) == len(names)


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
