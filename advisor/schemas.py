"""JSON Schemas of files and answers, from the types of the records that hold them."""

from typing import Any

from advisor.documents import document_type
from advisor.errors import check_choice
from advisor.files.records import json_schema

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Fields of a campaign that its file need not have: by default they are its name.
_FROM_FILE = ("name", "prefix")


def _files() -> dict[str, type]:
    """Types of files by name; imported only here, because answers need few of them."""
    from advisor.hardware.machine import Calibration
    from advisor.measure.planned_runs import Campaign
    from advisor.workload.arrivals import TraceRow
    from advisor.workload.job import JobFile
    from advisor.workload.minimal_profile import MinimalProfile
    from advisor.workload.profile import Profile
    from advisor.workload.run import PlanDocument, Run

    return {
        "profile": Profile,
        "numbers": MinimalProfile,
        "jobs": JobFile,
        "campaign": Campaign,
        "trace": TraceRow,
        "plan": PlanDocument,
        "run": Run,
        "calibration": Calibration,
    }


def _answers() -> dict[str, type]:
    """Types of answers by name."""
    from advisor.learn.scores import Scores
    from advisor.plan.admission import Additions
    from advisor.plan.copies import Copies
    from advisor.plan.forecast import OverTime
    from advisor.plan.reasons import Comparison
    from advisor.plan.slices import SlicesForJob
    from advisor.plan.trials import Search
    from advisor.plan.values import Forecast
    from advisor.report.lists import (
        FittedModel,
        GpuList,
        Layouts,
        MeasuredProfiles,
        ProfileList,
        WorkloadList,
    )
    from advisor.report.plans import Advice
    from advisor.run.doctor import Findings
    from advisor.run.validate import Validation
    from advisor.run.watch import ListedRuns

    return {
        "prediction": Forecast,
        "recommendation": Advice,
        "copies": Copies,
        "additions": Additions,
        "comparison": Comparison,
        "simulation": OverTime,
        "trials": Search,
        "batch": SlicesForJob,
        "validation": Validation,
        "evaluation": Scores,
        "fit": FittedModel,
        "measured": MeasuredProfiles,
        "runs": ListedRuns,
        "findings": Findings,
        "gpus": GpuList,
        "layouts": Layouts,
        "workloads": WorkloadList,
        "profiles": ProfileList,
    }


def schema_names() -> tuple[str, ...]:
    """Return the names for `schema_document`."""
    return (*_files(), *_answers())


def schema_document(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file, or of an answer.

    Raises:
        UnknownName: There is no such kind.
    """
    files, answers = _files(), _answers()
    check_choice("JSON Schema", name, schema_names())
    kind = files.get(name) or document_type(answers[name], top=True)
    document = json_schema(kind)
    if name == "campaign":
        document["required"] = [each for each in document["required"] if each not in _FROM_FILE]
    return {"$schema": _DIALECT, **document}
