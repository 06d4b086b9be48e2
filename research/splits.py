"""The benchmark's fixed splits as a document: what is scored, and what each fold may not see."""

import json

from research.evaluate import SPLIT, Selection, families_of

_RULE = (
    "For each family: fit, tune and calibrate on runs without any tenant of it; then predict its "
    "jobs in every run named in its fold."
)


def splits_text(gpu: str, chosen: Selection) -> str:
    """The document ``runs/splits.json`` of `gpu`, the same for the same runs."""
    runs = chosen.predicted
    families = families_of(runs)
    document = {
        "schema": 1,
        "gpu": gpu,
        "split": SPLIT,
        "rule": _RULE,
        "scored": [run.id for run in chosen.scored],
        "panels": [run.id for run in chosen.advice],
        "families": list(families),
        "folds": [
            {"family": each, "predict": [run.id for run in runs if each in families_of([run])]}
            for each in families
        ],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"
