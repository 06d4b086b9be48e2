"""Fields of documents inside Kubernetes objects, by the Go types of the projects that read them.

Each project ignores or refuses what it does not know; so an unknown field is an error here.
"""

import re

# NVIDIA/k8s-device-plugin, api/config/v1: Config, Sharing, ReplicatedResources, ReplicatedResource.
_PLUGIN = {"version", "flags", "resources", "sharing", "imex"}
_SHARING = {"timeSlicing", "mps"}
_REPLICATED = {"renameByDefault", "failRequestsGreaterThanOne", "resources"}
_RESOURCE = {"name", "rename", "devices", "replicas"}

# NVIDIA/mig-parted, api/spec/v1: Spec, MigConfigSpec.
_PARTED = {"version", "mig-configs"}
_ENTRY = {"device-filter", "devices", "mig-enabled", "mig-devices"}


def check_plugin(config):
    """Check a configuration of the device plugin, as its types and its `UnmarshalJSON` do."""
    assert set(config) <= _PLUGIN
    assert config["version"] == "v1"
    sharing = config.get("sharing", {})
    assert set(sharing) <= _SHARING
    assert len(sharing) <= 1, "time-slicing and MPS exclude each other"
    for strategy, replicated in sharing.items():
        assert set(replicated) <= _REPLICATED
        assert replicated["resources"]
        for resource in replicated["resources"]:
            assert set(resource) <= _RESOURCE
            assert re.fullmatch(r"nvidia\.com/[a-z0-9.-]+", resource["name"])
            assert resource["replicas"] >= 2
            assert strategy == "timeSlicing" or resource["name"] == "nvidia.com/gpu"


def check_mig_parted(document):
    """Check a configuration of mig-parted, as its `UnmarshalJSON` does."""
    assert set(document) == _PARTED
    assert document["version"] == "v1"
    for entries in document["mig-configs"].values():
        assert entries
        for entry in entries:
            assert set(entry) <= _ENTRY
            assert entry["devices"] == "all" or all(isinstance(n, int) for n in entry["devices"])
            assert entry["mig-enabled"] == bool(entry.get("mig-devices"))
            for profile, count in entry.get("mig-devices", {}).items():
                assert re.fullmatch(r"(\d+c\.)?\d+g\.\d+gb(\+\w+)?", profile)
                assert count >= 1
