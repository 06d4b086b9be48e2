"""Keeps a host's results for `research/programs.py`: without what programs printed, and its paths.

python -m benchmarks.programs.keep results.jsonl benchmarks/programs/results/h100-1.jsonl.gz
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

_PRINTED = ("tail", "command")


def kept(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without printed text; folders begin at the program's checkout."""
    result = {key: value for key, value in result.items() if key not in _PRINTED}
    if jobs := result.get("jobs"):
        result["jobs"] = [
            {key: value for key, value in job.items() if key not in _PRINTED} for job in jobs
        ]
    profile = result.get("profile")
    if profile and (script := profile["workload"]["script"]):
        name = profile["workload"]["name"]
        script["folder"] = f"/{name}" + script["folder"].partition(f"/{name}")[2]
    return result


def main(results: str, out: str) -> None:
    """Write the file of results `out`."""
    lines = Path(results).read_text().splitlines()
    text = "".join(
        json.dumps(kept(json.loads(line)), separators=(",", ":")) + "\n" for line in lines
    )
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
