"""The stored answers: one line for each plan."""

import json
from pathlib import Path

_STORED = Path(__file__).with_name("answers.json")


def read():
    return json.loads(_STORED.read_text())


def write(answers):
    parts = [
        f"{json.dumps(question)}: [\n" + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n]"
        for question, rows in answers.items()
    ]
    _STORED.write_text("{\n" + ",\n".join(parts) + "\n}\n")
