"""Stores as MLflow writes them: one that was recorded from it, and folders with runs of a test."""

import json
import sqlite3
from pathlib import Path

RECORDED = json.loads(Path(__file__).with_name("recorded").joinpath("mlflow.json").read_text())
BEGAN_S = 1_795_400_000


def recorded_folder(folder):
    """What MLflow 3.17 wrote of two runs, of which one was deleted, as files."""
    for name, text in RECORDED["folder"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def recorded_database(path):
    """The same as its SQLite database, as far as these tables go."""
    with sqlite3.connect(path) as database:
        for each in RECORDED["database"]:
            columns = ", ".join(each["columns"])
            database.execute(f"CREATE TABLE {each['table']} ({columns})")
            places = ", ".join("?" * len(each["columns"]))
            database.executemany(f"INSERT INTO {each['table']} VALUES ({places})", each["rows"])
    database.close()
    return path


def put_run(store, name, params, metrics, *, after_s=0.0, lasts_s=60.0, experiment="7"):
    """A run in the folder `store`; `metrics` list (seconds after its start, value, step)."""
    start_ms = round(1000 * (BEGAN_S + after_s))
    folder = store / experiment
    run = folder / f"{name}-id"
    for part in ("metrics", "params", "tags"):
        (run / part).mkdir(parents=True, exist_ok=True)
    (folder / "meta.yaml").write_text("lifecycle_stage: active\nname: cifar\n")
    (run / "meta.yaml").write_text(
        f"lifecycle_stage: active\nrun_name: {name}\nstart_time: {start_ms}\n"
        f"end_time: {round(start_ms + 1000 * lasts_s)}\n"
    )
    for key, value in params.items():
        (run / "params" / key).write_text(str(value))
    for key, points in metrics.items():
        path = run / "metrics" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(
                f"{round(start_ms + 1000 * at_s)} {value} {step}\n" for at_s, value, step in points
            )
        )
    return store


def smi(power_w=300.0, used_mib=4000.0, busy=0.5, readings=5):
    """What radT's listener logs, with a reading that failed."""
    means = {"Power Draw": power_w, "Mem Used": used_mib, "GPU Util": busy, "Mem Util": busy / 2}
    return {
        f"system/SMI - {name}": [*((at, value, 0) for at in range(readings)), (readings, -1.0, 0)]
        for name, value in means.items()
    }


def radt(letter, workload="1", file="train/cifar10.py", words="--model resnet --batch-size 64"):
    """The parameters of a run that radT started."""
    return {"letter": letter, "workload": workload, "file": file, "params": words, "batch-size": 64}
