"""Predictions of the scored runs in a file, from our models or from others', and their scores.

``python -m research.entries --out FILE`` writes ours, for model families left out of the fit;
``--predictions FILE`` scores those in a file. Without either it scores ours, which takes minutes.
The form of the file is that of `advisor.learn.scores`.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.files.writing import write_whole
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.gpus import Gpu, gpu
from advisor.hardware.machine import allowed_cores
from advisor.learn.scores import RunComparison, compare_entry, profiles_of, read_predictions
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.baselines import UNFITTED, with_baselines
from research.evaluate import Evaluation, evaluate, select
from research.files import PROFILES, measured
from research.score_tables import HEADINGS, markdown, remarks, score_cells
from research.scoreboard import PARTS, scores_of


def entries_text(evaluation: Evaluation) -> str:
    """Return the predictions of every scored run and of every run of a panel, one line each."""
    entries = [
        {"run": run.run.id, "step_s": [asdict(job.predicted_s) for job in run.jobs]}
        for run in (*evaluation.runs, *evaluation.advice)
    ]
    lines = [json.dumps(entry, separators=(",", ":"), allow_nan=False) for entry in entries]
    return "".join(f"{line}\n" for line in lines)


def score_entries(
    path: Path, profiles: Mapping[str, Profile], runs: Sequence[Run], gpu: Gpu
) -> Evaluation:
    """Score the predictions in `path` on the fixed splits, as ours are scored.

    The author of the file is responsible that each prediction came from a model that saw no run of
    the family. Baselines are those that need no fit.

    The file has every scored run, and either every run of a panel or none.

    Raises:
        InvalidInput: See `read_predictions`; or a run is missing, or is not scored.
    """
    entries = read_predictions(path)
    chosen = select(profiles, runs, gpu)
    panels = chosen.advice if any(run.id in entries for run in chosen.advice) else ()
    for complaint, ids in (
        ("these runs are not scored", entries.keys() - {run.id for run in chosen.predicted}),
        ("scored runs are missing", {run.id for run in chosen.scored} - entries.keys()),
        ("runs of panels are missing", {run.id for run in panels} - entries.keys()),
    ):
        if listed := sorted(ids):
            shown = ", ".join(listed[:5]) + (" and others" if len(listed) > 5 else "")
            raise InvalidInput(
                f"{path}: {complaint}: {shown} ({len(listed)} in all). "
                "`python -m research.entries --out FILE` writes a file with exactly these runs."
            )

    def compared(run: Run) -> RunComparison:
        entry = compare_entry(path, entries[run.id], run, profiles)
        return with_baselines(entry, profiles_of(run, profiles), gpu, UNFITTED)

    return Evaluation(
        chosen=chosen,
        runs=tuple(map(compared, chosen.scored)),
        advice=tuple(map(compared, panels)),
        intervals=any(s.p05 is not None for entry in entries.values() for s in entry.step_s),
    )


def main(words: Sequence[str] | None = None) -> None:
    """Print scores by mode and number of jobs, or write our predictions."""
    parser = argparse.ArgumentParser(prog="python -m research.entries")
    parser.add_argument("--gpu", default=DEFAULT_GPU)
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--predictions", type=Path, metavar="FILE")
    options = parser.parse_args(words)
    profiles, runs = measured(PROFILES / options.gpu)
    card = gpu(options.gpu)
    if options.predictions:
        evaluation = score_entries(options.predictions, profiles, runs, card)
    else:
        evaluation = evaluate(profiles, runs, card, len(allowed_cores()))
    if options.out:
        write_whole(options.out, entries_text(evaluation))
    scores = scores_of(evaluation)
    rows = [row for part in PARTS for row in (*scores.pooled(part=part), *scores.by_degree(part))]
    print(markdown(HEADINGS, score_cells(rows)), *remarks(scores), sep="\n\n")


if __name__ == "__main__":
    main()
