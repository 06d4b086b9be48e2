"""JSON Schemas of files and answers, from the types that read and build them."""

from typing import Any

from advisor.errors import UnknownName
from advisor.workload.records import json_schema

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Fields of a campaign that its file need not have: by default they are its name.
_FROM_FILE = ("name", "prefix")


def _types() -> dict[str, Any]:
    """Types by name; imported only here, because other answers need few of them."""
    from advisor.doctor import FindingsDocument
    from advisor.learn.scores import Scores
    from advisor.measure.planned_runs import Campaign
    from advisor.report import documents, record_documents
    from advisor.workload.arrivals import TraceRow
    from advisor.workload.calibration import Calibration
    from advisor.workload.job import JobFile
    from advisor.workload.minimal_profile import MinimalProfile
    from advisor.workload.plan_document import PlanDocument
    from advisor.workload.profile import Profile
    from advisor.workload.run import Run

    return {
        "profile": Profile,
        "numbers": MinimalProfile,
        "jobs": JobFile,
        "campaign": Campaign,
        "trace": TraceRow,
        "plan": PlanDocument,
        "run": Run,
        "calibration": Calibration,
        "prediction": documents.PredictionDocument,
        "recommendation": documents.RecommendationDocument,
        "fleet": documents.FleetDocument,
        "copies": documents.CopiesDocument,
        "additions": documents.AdditionsDocument,
        "comparison": documents.ComparisonDocument,
        "simulation": documents.SimulationDocument,
        "trials": documents.TrialsDocument,
        "batch": documents.BatchesDocument,
        "validation": record_documents.ValidationDocument,
        "evaluation": Scores,
        "fit": record_documents.FitDocument,
        "measured": record_documents.MeasuredDocument,
        "runs": record_documents.RunsDocument,
        "findings": FindingsDocument,
        "gpus": record_documents.GpusDocument,
        "layouts": record_documents.LayoutsDocument,
        "workloads": record_documents.WorkloadsDocument,
        "profiles": record_documents.ProfilesDocument,
    }


def schema_names() -> tuple[str, ...]:
    """Return the names for `schema_document`."""
    return tuple(_types())


def schema_document(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file, or of an answer.

    Raises:
        UnknownName: There is no such kind.
    """
    types = _types()
    if name not in types:
        raise UnknownName("JSON Schema", name, types, f"Write one of {', '.join(types)}.")
    document = json_schema(types[name])
    if name == "campaign":
        document["required"] = [each for each in document["required"] if each not in _FROM_FILE]
    return {"$schema": _DIALECT, **document}
