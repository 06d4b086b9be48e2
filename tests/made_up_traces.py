"""Small public traces of clusters in the forms of their owners, with values made up here."""

import csv
import json


def attempt(start, end, **machines):
    detail = [{"ip": name, "gpus": [f"gpu{at}" for at in gpus]} for name, gpus in machines.items()]
    return {"start_time": start, "end_time": end, "detail": detail}


def philly_job(name, submitted, *attempts, status="Pass"):
    return {
        "status": status,
        "vc": "v",
        "jobid": name,
        "user": "u",
        "submitted_time": submitted,
        "attempts": attempts,
    }


PHILLY = [
    philly_job(
        "late",
        "2017-11-02 08:00:00",
        attempt("2017-11-02 08:01:00", "2017-11-02 08:11:00", m1=[2], m2=[0, 1]),
    ),
    philly_job(
        "tried-twice",
        "2017-11-01 23:50:00",
        attempt("2017-11-01 23:51:00", "2017-11-01 23:52:00", m1=[0]),
        attempt("2017-11-01 23:58:00", "2017-11-02 00:03:00", m1=[1]),
        status="Failed",
    ),
    philly_job("never-started", "2017-11-02 09:00:00"),
    philly_job("still-runs", "2017-11-02 10:00:00", attempt("2017-11-02 10:00:05", None, m1=[0])),
    philly_job(
        "without", "2017-11-02 10:00:00", attempt("2017-11-02 10:00:05", "2017-11-02 10:30:00")
    ),
    {"jobid": "broken", "submitted_time": "yesterday", "attempts": []},
]
UTILIZATION = """time,machineId,gpu0_util,gpu1_util,gpu2_util,gpu3_util
2017-11-01 23:51:00 PDT,m1,40.0,99.0,0.0,
2017-11-02 00:01:00 PDT,m1,99.0,80.0,0.0,
2017-11-02 08:05:00 PDT,m1,99.0,99.0,10.0,
2017-11-02 08:05:00 PDT,m2,20.0,NA,0.0,
"""


def write_philly(folder):
    folder.mkdir(exist_ok=True)
    (folder / "cluster_job_log").write_text(json.dumps(PHILLY))
    (folder / "cluster_gpu_util").write_text(UTILIZATION)


HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration
7,ua,vb,1,4,1,COMPLETED,2020-05-01 10:00:00,2020-05-01 10:00:09,2020-05-01 11:00:09,3600
8,ua,vb,0,4,1,COMPLETED,2020-05-01 10:00:00,2020-05-01 10:00:09,2020-05-01 11:00:09,3600
9,ua,vb,8,4,1,CANCELLED,2020-05-01 11:00:00,2020-05-01 11:00:09,2020-05-01 11:00:39,30
10,ua,vb,2,4,1,FAILED,2020-05-01 12:00:00,2020-05-01 11:00:09,2020-05-01 11:00:09,0
11,ua,vb,many,4,1,FAILED,2020-05-01 12:00:00,2020-05-01 11:00:09,2020-05-01 11:00:09,7
12,ua,vb
"""


def write_helios(folder):
    folder.mkdir(exist_ok=True)
    (folder / "cluster_log.csv").write_text(HELIOS)


def write(path, *rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_pai(folder):
    folder.mkdir(exist_ok=True)
    write(
        folder / "pai_job_table.csv",
        ["half", "i1", "u", "Terminated", "1000.0", "1900.0"],
        ["wide", "i2", "u", "Failed", "1600.0", "5000.0"],
        ["cpu", "i3", "u", "Terminated", "1700.0", "5000.0"],
        ["waits", "i4", "u", "Waiting", "1800.0", ""],
    )
    write(
        folder / "pai_task_table.csv",
        ["half", "tf", "1.0", "Terminated", "1100.0", "1900.0", "600.0", "29.3", "50.0", "T4"],
        ["wide", "ps", "2.0", "Failed", "1600.0", "5000.0", "600.0", "29.3", "0.0", ""],
        ["wide", "worker", "2.0", "Failed", "2000.0", "4000.0", "600.0", "29.3", "200.0", "V100"],
        ["cpu", "tf", "1.0", "Terminated", "1700.0", "5000.0", "600.0", "29.3", "", ""],
        ["waits", "tf", "1.0", "Waiting", "", "", "600.0", "29.3", "100.0", "P100"],
    )
    write(
        folder / "pai_sensor_table.csv",
        ["half", "tf", "w0", "i1", "m", "g", "140.0", "25.0", "1", "2", "1.0", "2.5", *"0000"],
        ["wide", "worker", "w1", "i2", "m", "g", "1.0", "150.0", "1", "2", "1.0", "8.0", *"0000"],
        ["wide", "worker", "w2", "i2", "m", "g", "1.0", "50.0", "1", "2", "1.0", "16.0", *"0000"],
        ["wide", "ps", "w3", "i2", "m", "g", "1.0", "0.0", "1", "2", "1.0", "0.0", *"0000"],
        ["cpu", "tf", "w4", "i3", "m"],
    )
