"""Objects in files for Kubernetes, and their check against schemas."""

import re
from functools import cache

import kubernetes_validate
import yaml

# It reads a file of 2 MB for each object.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)
EARLIEST, LATEST = "1.34", "1.37"


def objects(text, kind=None):
    return [each for each in yaml.safe_load_all(text) if kind in (None, each["kind"])]


def container(job):
    (own,) = job["spec"]["template"]["spec"]["containers"]
    return own


def scripts(text):
    """The scripts that the pods of a file run, without their functions."""
    data = [each["data"] for each in objects(text, "ConfigMap")]
    return [each["plan.sh"].partition("set -euo")[0] for each in data if "plan.sh" in each]


def numbers(text):
    """The numbers of the jobs that a file starts."""
    lines = re.findall(r"^.*\b(?:job |ADVISOR_JOB=)(\d+) ", "\n".join(scripts(text)), re.MULTILINE)
    return [int(number) for number in lines]


def check_objects(text):
    """Check every object as Kubernetes does, and what it cannot see across objects."""
    documents = objects(text)
    for document in documents:
        kubernetes_validate.validate(document, EARLIEST, strict=True)
        kubernetes_validate.validate(document, LATEST, strict=True)
        name = document["metadata"]["name"]
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name), name
    names = [(each["kind"], each["metadata"]["name"]) for each in documents]
    assert len(set(names)) == len(names)
    for job in objects(text, "Job"):
        (volume,) = [v for v in job["spec"]["template"]["spec"]["volumes"] if "configMap" in v]
        assert ("ConfigMap", volume["configMap"]["name"]) in names


def check_mig_parted(text):
    """Check a configuration as the `UnmarshalJSON` in mig-parted's api/spec/v1 does."""
    document = yaml.safe_load(text)
    assert set(document) == {"version", "mig-configs"}
    assert document["version"] == "v1"
    for entries in document["mig-configs"].values():
        assert entries
        for entry in entries:
            assert set(entry) <= {"device-filter", "devices", "mig-enabled", "mig-devices"}
            assert entry["devices"] == "all" or all(isinstance(n, int) for n in entry["devices"])
            assert entry["mig-enabled"] == bool(entry.get("mig-devices"))
            for profile, count in entry.get("mig-devices", {}).items():
                assert re.fullmatch(r"(\d+c\.)?\d+g\.\d+gb(\+\w+)?", profile)
                assert count >= 1
