"""The part of MLflow's client that logging uses, keeping what MLflow 3.17 would, by its rules."""

import re
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

# From MLflow's messages: what names may hold, and how long values may be.
NAME = re.compile(r"[/\w.\- :]+")
LONGEST_PARAM, MOST_METRICS = 6000, 1000


class Store:
    """What was logged, by the number of the run."""

    def __init__(self):
        self.experiments, self.runs = {}, []


class Client:
    def __init__(self, store, tracking_uri):
        if tracking_uri.startswith("http://down"):
            raise ConnectionError("Max retries exceeded\nwith url")
        self.store = store

    def get_experiment_by_name(self, name):
        found = self.store.experiments.get(name)
        return None if found is None else SimpleNamespace(experiment_id=found)

    def create_experiment(self, name):
        return self.store.experiments.setdefault(name, str(len(self.store.experiments) + 1))

    def create_run(self, experiment, run_name, tags):
        assert experiment in self.store.experiments.values()
        self.store.runs.append(
            SimpleNamespace(name=run_name, tags=tags, params={}, metrics={}, files={}, ended=False)
        )
        about = SimpleNamespace(run_id=len(self.store.runs) - 1, start_time=1_795_400_000_000)
        return SimpleNamespace(info=about)

    def log_batch(self, run, metrics=(), params=()):
        assert len(metrics) <= MOST_METRICS
        for each in (*metrics, *params):
            assert NAME.fullmatch(each.key), each.key
        for each in params:
            assert each.key not in self.store.runs[run].params
            assert len(each.value) <= LONGEST_PARAM
            self.store.runs[run].params[each.key] = each.value
        self.store.runs[run].metrics.update({each.key: each.value for each in metrics})

    def log_dict(self, run, document, file):
        self.store.runs[run].files[file] = document

    def set_terminated(self, run):
        self.store.runs[run].ended = True


def entity(key, value, *_when):
    return SimpleNamespace(key=key, value=value)


def install(monkeypatch):
    """Put the stand-in in place of the package; returns what is logged through it."""
    store = Store()
    package, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    package.__spec__ = ModuleSpec("mlflow", None)
    package.MlflowClient = partial(Client, store)
    entities.Metric = entities.Param = entity
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return store
