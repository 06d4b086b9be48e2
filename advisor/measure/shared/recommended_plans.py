"""Advice as plans to run: what ``advisor recommend --json`` printed, read where the GPU is."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from advisor.errors import InvalidInput
from advisor.sharing import Mps, Naive, Serial, parse_sharing


def is_advice(document: Any) -> bool:
    """Whether `document` is advice rather than a file of plans."""
    return isinstance(document, dict) and "objective" in document


def plans_of_advice(document: Mapping[str, Any]) -> dict[str, Any]:
    """The plans of `document` as a file of plans has them, for the purpose of validation.

    A run is called after its jobs and its rank, so that ``--resume`` knows it again. Plans on MIG,
    in phases and under a power cap are left out: nothing here makes instances or sets caps, and a
    run has one sharing.

    Raises:
        InvalidInput: Part of the advice is missing, or nothing in it can be run.
    """
    try:
        workloads = document["workloads"]
        name = sha256(json.dumps([workloads, _jobs(document)]).encode()).hexdigest()[:8]
        plans = [
            {
                "id": f"advice-{name}-plan{plan['rank']}",
                "sharing": plan["sharing"],
                "purpose": "validation",
                "workloads": [workloads[job["job"]] for job in plan["jobs"]],
            }
            for plan in document["plans"]
            if _can_be_run(plan)
        ]
        gpu, schema = document["gpu"], document["schema"]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"it is advice, but not whole ({error!r})") from None
    if not plans:
        raise InvalidInput(
            "all plans of this advice are on MIG, in phases or under a power cap. Ask for more: "
            "`advisor recommend`"
        )
    return {"schema": schema, "gpu": gpu, "plans": plans}


def _can_be_run(plan: Mapping[str, Any]) -> bool:
    simple = isinstance(parse_sharing(plan["sharing"]), Serial | Naive | Mps)
    return simple and plan.get("power_cap_w") is None


def _jobs(document: Mapping[str, Any]) -> list[list[str]]:
    return [[plan["sharing"], *(job["job"] for job in plan["jobs"])] for plan in document["plans"]]
