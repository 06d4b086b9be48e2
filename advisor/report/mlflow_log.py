"""Logs profiles, plans, validations and runs to MLflow, which is imported only where asked for.

Each becomes a run of the experiment ``advisor``: the question as parameters, the answer as metrics,
and the document as an artifact. Variables of a job's environment, and the shell lines that set
them, are left out, since they may be secrets, and values of options that are secret by name are
hidden. The tag ``advisor.kind`` says what was logged, and
``advisor.basis`` whether its figures were measured or predicted.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from advisor.errors import AdvisorError
from advisor.workload.job import masked_line, masked_words

if TYPE_CHECKING:
    from advisor.workload.profile import Profile
    from advisor.workload.run import Run

    pass


EXPERIMENT = "advisor"

Kind = Literal["profile", "plans", "validation", "run"]
_BASIS: dict[Kind, str] = {
    "profile": "measured", "plans": "predicted", "validation": "predicted and measured",
    "run": "measured",
}  # fmt: skip

# Keys under which variables of the environment may be, and those of commands.
_SECRET = ("environment", "commands")
_COMMAND = "command"
# What MLflow does not allow in names of parameters and metrics.
_NO_NAME = re.compile(r"[^\w./ -]+")
# MLflow's longest value of a parameter.
_LONGEST = 500


class MlflowLog:
    """The experiment at a tracking URI; connecting fails before anything long begins.

    Raises:
        AdvisorError: MLflow is not installed, or there is no such place.
    """

    def __init__(self, uri: str) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError:
            raise AdvisorError(
                "--mlflow: MLflow is not installed here. Install it: pip install 'advisor[mlflow]'"
            ) from None
        self._uri = uri
        try:
            self._client = MlflowClient(tracking_uri=uri)
            known = self._client.get_experiment_by_name(EXPERIMENT)
            self._experiment = (
                known.experiment_id if known else self._client.create_experiment(EXPERIMENT)
            )
        except Exception as error:  # of MLflow, of its store, or of the network
            raise self._failed(error) from error

    def profile(self, profile: "Profile") -> None:
        """A profile: its numbers, without the trace."""
        said = {"gpu": profile.gpu, **asdict(profile.workload), "script": None}
        self._log("profile", profile.name, said, asdict(profile) | {"trace": None})

    def plans(self, document: Mapping[str, Any]) -> None:
        """What ``advisor recommend --json`` prints."""
        jobs = [
            job["job"] for plan in document.get("plans", [])[:1] for job in plan.get("jobs", ())
        ]
        said = {"gpu": document["gpu"], "jobs": ", ".join(jobs)}
        said |= {
            key: document[key] for key in ("objective", "job", "pay", "fit") if key in document
        }
        self._log("plans", said["jobs"] or str(said.get("job", "plans")), said, document)

    def validation(self, document: Mapping[str, Any]) -> None:
        """What ``advisor validate --json`` prints."""
        ways = ", ".join(each["sharing"] for each in document["runs"])
        said = {"gpu": document["gpu"], "sharings": ways}
        self._log("validation", f"validation on {document['gpu']}", said, document)

    def run(self, run: "Run") -> None:
        """A run of jobs together."""
        jobs = ", ".join(tenant.workload.name for tenant in run.tenants)
        said = {"gpu": run.gpu, "sharing": run.sharing, "jobs": jobs, "purpose": run.purpose}
        steps = {
            f"step_s/{number} {tenant.workload.name}": tenant.step_s
            for number, tenant in enumerate(run.tenants, start=1)
            if tenant.outcome == "ok"
        }
        self._log("run", run.id, said, asdict(run) | steps)

    def _log(
        self, kind: Kind, name: str, said: Mapping[str, Any], document: Mapping[str, Any]
    ) -> None:
        from mlflow.entities import Metric, Param

        document = _without_secrets(document)
        tags = {"advisor.kind": kind, "advisor.basis": _BASIS[kind]}
        params = [
            Param(_plain(key), str(value)[:_LONGEST])
            for key, value in said.items() if value is not None
        ]  # fmt: skip
        try:
            run = self._client.create_run(self._experiment, run_name=name, tags=tags)
            now_ms = run.info.start_time
            metrics = [Metric(key, value, now_ms, 0) for key, value in _numbers(document)]
            run_id = run.info.run_id
            for first in range(0, len(metrics), 500):  # MLflow takes 1000 a request
                self._client.log_batch(run_id, metrics=metrics[first : first + 500])
            self._client.log_batch(run_id, params=params)
            self._client.log_dict(run_id, document, f"{kind}.json")
            self._client.set_terminated(run_id)
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> AdvisorError:
        first = (str(error).splitlines() or [""])[0]
        return AdvisorError(
            f"--mlflow {self._uri}: {type(error).__name__}: {first[:300]} Name a server "
            f"(http://...) or a database (sqlite:///mlflow.db)."
        )


def _without_secrets(found: Any) -> Any:
    if isinstance(found, Mapping):
        kept = {key: each for key, each in found.items() if key not in _SECRET}
        return {
            key: _masked(each) if key == _COMMAND else _without_secrets(each)
            for key, each in kept.items()
        }
    if isinstance(found, list | tuple):
        return [_without_secrets(each) for each in found]
    return found


def _masked(command: Any) -> Any:
    """A job's command, which is words, or where a figure comes from, which is a line."""
    if isinstance(command, str):
        return masked_line(command)
    return list(masked_words(command)) if command else command


def _numbers(document: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """All finite numbers of `document` by path, e.g. ``plans/1/jobs/1/step_s/p50``.

    Lists of numbers, such as windows or cores, are left to the artifact.
    """
    for key, value in document.items():
        yield from _of(value, f"{path}{_plain(str(key))}")


def _of(value: Any, name: str) -> Iterator[tuple[str, float]]:
    match value:
        case bool() | int() | float():
            if math.isfinite(value):
                yield name, float(value)
        case Mapping():
            yield from _numbers(value, f"{name}/")
        case list() | tuple():
            for number, each in enumerate(value, start=1):
                if isinstance(each, Mapping):
                    yield from _numbers(each, f"{name}/{number}/")


def _plain(key: str) -> str:
    return _NO_NAME.sub("_", key)
