"""Logs profiles, plans, validations and runs to MLflow: a run of the experiment ``advisor`` each.

The request becomes parameters, the answer metrics, the document an artifact. What may be secret is
left out or masked: variables of environments, shell lines, values of options with secret names.
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Literal

from advisor.errors import AdvisorError, require_extra
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.spec import masked_words

EXPERIMENT = "advisor"

Kind = Literal["profile", "plans", "validation", "run"]
_BASIS: dict[Kind, str] = {
    "profile": "measured",
    "plans": "predicted",
    "validation": "predicted and measured",
    "run": "measured",
}

# Keys of a job's environment and of commands.
_SECRET = ("environment", "commands")
_NOT_IN_NAMES = re.compile(r"[^\w./ -]+")  # MLflow's rule for parameters and metrics
_LONGEST = 500  # characters of MLflow's values of parameters


class MlflowLog:
    """The experiment at a tracking URI; connecting fails before anything long begins.

    Raises:
        AdvisorError: MLflow is not installed, or the URI cannot be reached.
    """

    def __init__(self, uri: str) -> None:
        require_extra("--mlflow", "mlflow", "mlflow")
        from mlflow import MlflowClient

        self._uri = uri
        with self._failures_explained():
            self._client = MlflowClient(tracking_uri=uri)
            old = self._client.get_experiment_by_name(EXPERIMENT)
            new = None if old else self._client.create_experiment(EXPERIMENT)
            self._experiment = old.experiment_id if old else new

    def profile(self, profile: Profile) -> None:
        """Log the numbers of a profile, without the trace."""
        request = {"gpu": profile.gpu, **asdict(profile.workload), "script": None}
        self._log("profile", profile.name, request, asdict(profile) | {"trace": None})

    def plans(self, document: Mapping[str, Any]) -> None:
        """Log what ``advisor recommend --json`` prints."""
        best = document.get("plans", [])[:1]
        jobs = ", ".join(job["job"] for plan in best for job in plan.get("jobs", ()))
        keys = [key for key in ("objective", "job", "worthwhile", "fit") if key in document]
        request = {"gpu": document["gpu"], "jobs": jobs} | {key: document[key] for key in keys}
        self._log("plans", jobs or str(request.get("job", "plans")), request, document)

    def validation(self, document: Mapping[str, Any]) -> None:
        """Log what ``advisor validate --json`` prints."""
        sharings = ", ".join(each["sharing"] for each in document["comparisons"])
        request = {"gpu": document["gpu"], "sharings": sharings}
        self._log("validation", f"validation on {document['gpu']}", request, document)

    def run(self, run: Run) -> None:
        """Log a run of jobs together."""
        jobs = ", ".join(run.names)
        request = {"gpu": run.gpu, "sharing": run.sharing, "jobs": jobs, "purpose": run.purpose}
        steps = {
            f"step_s/{number} {tenant.workload.name}": tenant.step_s
            for number, tenant in enumerate(run.tenants, start=1)
            if tenant.outcome == "ok"
        }
        self._log("run", run.id, request, asdict(run) | steps)

    def _log(
        self, kind: Kind, name: str, request: Mapping[str, Any], document: Mapping[str, Any]
    ) -> None:
        from mlflow.entities import Metric, Param

        document = _without_secrets(document)
        tags = {"advisor.kind": kind, "advisor.basis": _BASIS[kind]}
        params = [
            Param(_plain(key), str(value)[:_LONGEST])
            for key, value in request.items()
            if value is not None
        ]
        with self._failures_explained():
            run = self._client.create_run(self._experiment, run_name=name, tags=tags)
            run_id, now_ms = run.info.run_id, run.info.start_time
            metrics = [Metric(key, value, now_ms, 0) for key, value in _numbers(document)]
            for first in range(0, len(metrics), 500):  # MLflow takes 1000 a request
                self._client.log_batch(run_id, metrics=metrics[first : first + 500])
            self._client.log_batch(run_id, params=params)
            self._client.log_dict(run_id, document, f"{kind}.json")
            self._client.set_terminated(run_id)

    @contextmanager
    def _failures_explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of MLflow, of its store, or of the network
            first = (str(error).splitlines() or [""])[0]
            raise AdvisorError(
                f"--mlflow {self._uri}: {type(error).__name__}: {first[:300]} Name a server "
                f"(http://...) or a database (sqlite:///mlflow.db)."
            ) from error


def _without_secrets(value: Any, key: str = "") -> Any:
    """The value of a key; a command is the words of a job's, or the line of a provenance."""
    if isinstance(value, Mapping):
        return {
            key: _without_secrets(each, key) for key, each in value.items() if key not in _SECRET
        }
    if key == "command" and isinstance(value, str):
        return " ".join(masked_words(value.split(" ")))
    if isinstance(value, list | tuple):
        return list(masked_words(value) if key == "command" else map(_without_secrets, value))
    return value


def _numbers(document: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """All finite numbers of `document` by path, e.g. ``plans/1/jobs/1/step_s/p50``.

    Lists of numbers, such as windows or cores, are left to the artifact.
    """
    for key, value in document.items():
        name = f"{path}{_plain(str(key))}"
        if isinstance(value, int | float) and math.isfinite(value):
            yield name, float(value)
        elif isinstance(value, Mapping):
            yield from _numbers(value, f"{name}/")
        elif isinstance(value, list | tuple):
            for number, each in enumerate(value, start=1):
                if isinstance(each, Mapping):
                    yield from _numbers(each, f"{name}/{number}/")


def _plain(key: str) -> str:
    return _NOT_IN_NAMES.sub("_", key)
