"""Rows of numbers from what the command line printed: one for each plan, or for the whole answer.

A row holds a plan's notation and coarse kind, numbers, and lists of numbers; an interval is a list
of its 5 %, 50 % and 95 % points. Words for people are left out.
"""

import json
import re

_LINES = {  # of exported files
    "jobs": r"^(.*\bsrun\b|.*ADVISOR_JOB=\d|  .*\bjob \d)",
    "limits": r"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=\d",
    "instances": r"^ *MIG_\d+=",
    "submissions": r"\nsubmit ",
}


def rows_of(question, printed):
    """The rows of an answer; of a refusal, its exit code."""
    if printed.code:
        return [{"exit": printed.code}]
    command = question.split()[0]
    if command == "export":
        return [_exported(printed.out)]
    document = json.loads(printed.out)
    return _READERS[command](document)


def kind_of(notation):
    """The coarse kind of a way to share."""
    if "|" in notation:
        return "groups"
    if ";" in notation:
        return "phases"
    if "/ci=" in notation:
        return "compute instances"
    if notation.startswith("mig="):
        return "hybrid" if "[" in notation and "," in notation.split("[", 1)[1] else "mig"
    if "/" in notation:
        return "queue"
    return "limits" if notation.startswith("mps=") else notation.split("[")[0]


def _plan(plan, *, exact=False):
    """The numbers of a plan; with whole intervals of each job where it is `exact`."""
    steps = [job["step_s"] for job in plan["jobs"]]
    searched = "search" in plan  # for which jobs share a GPU, so that equal plans may differ there
    row = _notation(plan["sharing"]) | {
        "makespan_s": _interval(plan["makespan_interval_s"]),
        "energy_j": _interval(plan["energy_j"]),
        "power_w": _interval(plan.get("power_w")),
        "memory_mib": plan.get("memory_total_mib"),
        "oom": plan.get("oom_probability"),
        "speedup": plan.get("weighted_speedup"),
        "vs_serial": plan["speedup_vs_serial"],
        "cap_w": plan.get("power_cap_w"),
        "late": len(plan.get("late") or plan.get("late_jobs") or ()),
        "mean_completion_s": plan.get("mean_completion_s"),
        "step_s": None if searched else [step["p50"] for step in steps],
    }
    if exact:
        row |= {f"step_{n}_s": _interval(step) for n, step in enumerate(steps, 1)}
        row["job_memory_mib"] = [job["memory_mib"] for job in plan["jobs"]]
        row |= {"gract": plan["gract"], "smact": plan["smact"]}
    return _known(row)


def _recommended(document):
    return [_plan(plan) for plan in document["plans"]]


def _predicted(document):
    return [_plan(document, exact=True)]


def _added(document):
    return [
        _known(
            _notation(plan["sharing"])
            | {
                "added": len(plan["added"]),
                "work_added": plan["work_added"],
                "slowed_by": plan["slowed_by"],
                "memory_mib": plan["memory_total_mib"],
                "oom": plan["oom_probability"],
                "step_s": [job["step_s"]["p50"] for job in plan["jobs"]],
            }
        )
        for plan in document["plans"]
    ]


def _compared(document):
    return [
        _known(
            _notation(plan["sharing"])
            | {
                "cost": _interval(plan["cost"]),
                "serial_cost": _interval((document["serial"] or {}).get("cost")),
                "power_w": _interval(plan["power_w"]),
                **{
                    name: [_middle(job[name]) for job in plan["jobs"] if job[name]]
                    for name in ("step_s", "memory_mib")
                },
                "ends_s": [_middle(end_s) for end_s in plan["ends_s"] or ()],
            }
        )
        for plan in document["plans"]
    ]


def _simulated(document):
    numbers = (
        "jobs_per_hour",
        "mean_completion_s",
        "mean_wait_s",
        "mean_gract",
        "peak_memory_mib",
        "idle_power_w",
        "cost_eur",
    )
    row = _notation(document["sharing"]) | {
        "makespan_s": _interval(document["makespan_s"]),
        "energy_j": _interval(document["energy_j"]),
        **{name: _middle(document[name]) for name in numbers},
        "start_s": [job["start_s"] for job in document["jobs"]],
        "end_s": [job["end_s"]["p50"] for job in document["jobs"]],
        "on_gpu": [job["gpu"] for job in document["jobs"]],
        "stages": len(document["usage"]),
    }
    return [_known(row)]


def _trials(document):
    """The whole search, then the trials on each model of GPU."""
    whole = {
        "all_per_hour": _interval(document["trials_per_hour"]),
        **{name: _interval(document[name]) for name in ("wall_s", "one_by_one_s")},
    }
    rows = [_known(whole)]
    for hosts in document["hosts"]:
        fit, *copies = _copies(hosts)
        rows.append(_known({"gpu": hosts["gpu"], "trials": hosts["count"]} | fit))
        rows += copies if len(document["hosts"]) == 1 else copies[-1:]
    return rows


def _copies(document):
    """Rows of trials or copies on a GPU: the answer, then one, two, and those worthwhile."""
    whole = {name: document.get(name) for name in ("fit", "worthwhile", "at_once", "mps_clients")}
    shown = {1, 2, document["worthwhile"], document.get("at_once")}
    rows = [each for each in document["rows"] if each["copies"] in shown]
    return [_known(whole)] + [
        _known(
            _notation(each["sharing"])
            | {
                "copies": each["copies"],
                "throughput": each["throughput"],
                "step_s": _interval(each["step_s"]),
                "memory_mib": each["memory_total_mib"],
                "oom": each["oom_probability"],
                "trials_per_hour": _interval(each.get("trials_per_hour")),
            }
        )
        for each in rows
    ]


def _exported(text):
    """How many lines of each kind there are; the rest of a script may change."""
    found = {kind: len(re.findall(regex, text, re.M)) for kind, regex in _LINES.items()}
    devices = re.findall(r'^\s*"?([1-7]g\.\d+gb[^"\s:]*)"?:\s*(\d+)', text, re.M)
    return found | {name: int(count) for name, count in devices}


_READERS = {
    "recommend": _recommended,
    "predict": _predicted,
    "admit": _added,
    "compare": _compared,
    "simulate": _simulated,
    "trials": _trials,
    "copies": _copies,
}


def _notation(sharing):
    return {"kind": kind_of(sharing), "plan": sharing}


def _interval(found):
    return None if found is None else [found["p05"], found["p50"], found["p95"]]


def _middle(found):
    return found["p50"] if isinstance(found, dict) else found


def _known(row):
    """`row` without what is not known, rounded to six digits."""
    return {name: _rounded(value) for name, value in row.items() if value is not None}


def _rounded(value):
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
