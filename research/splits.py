"""The benchmark's fixed splits as a document: what is scored, and what each fold may not see."""

import json
from typing import Any

from advisor.validate.selection import SPLIT, Selection, families_of


def splits_text(gpu: str, chosen: Selection) -> str:
    """The document ``runs/splits.json`` of `gpu`, the same for the same runs."""
    scored = [run.id for run in chosen.scored]
    panels = [run.id for run in chosen.advice]
    families = families_of((*chosen.scored, *chosen.advice))
    document: dict[str, Any] = {
        "schema": 1,
        "gpu": gpu,
        "split": SPLIT,
        "rule": (
            "For each family: fit, tune and calibrate on runs without any tenant of it; then "
            "predict its jobs in every run named in its fold."
        ),
        "scored": scored,
        "panels": panels,
        "families": list(families),
        "folds": [
            {
                "family": family,
                "predict": [
                    run.id
                    for run in (*chosen.scored, *chosen.advice)
                    if family in families_of([run])
                ],
            }
            for family in families
        ],
    }
    lists = json.dumps(document, indent=1, allow_nan=False)
    return lists + "\n"
