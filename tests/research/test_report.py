import shutil
from dataclasses import replace

import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.fit_model import fit
from advisor.prediction.fit.observation import MeasuredGpu
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.predictor import Predictor
from advisor.validate.predicted_and_measured import compare, profiles_of
from advisor.validate.selection import families_of, of_pace, select
from advisor.workload.files import EVALUATION
from advisor.workload.writing import append_run, profile_text, write_whole
from research import report
from research.data_card import blocks
from research.figures import figures_of
from research.figures_file import TOLERANCE, figures_text, read_figures
from research.files import measured
from research.findings import findings, of_other_sets
from research.report import GPU, ROOT, filled, rendered, report_text
from research.splits import splits_text
from research.targets import Target
from tests import synthetic
from tests.validate.campaign import PROFILES, campaign
from tests.validate.whole_jobs import whole

H200 = gpu(GPU)
FOLDER = ROOT / "profiles"
FILE = FOLDER / GPU / EVALUATION


@pytest.fixture(scope="module")
def committed():
    return read_figures(FILE)


@pytest.fixture(scope="module")
def data():
    return measured(FOLDER / GPU)


def test_every_document_says_the_committed_figures(committed):
    for path, text in rendered(committed).items():
        assert (ROOT / path).read_text() == text, f"{path}: run `make report`"


def test_every_plot_is_drawn_from_the_committed_figures_and_small(committed):
    drawn = {path.name: text for path, text in rendered(committed).items() if "plots" in path.parts}
    assert {path.name for path in (FOLDER / "plots").iterdir()} == drawn.keys()
    assert max(map(len, drawn.values())) < 200_000


def test_the_committed_figures_are_as_the_report_writes_them(committed):
    assert FILE.read_text() == figures_text(committed)


def test_figures_of_one_family_and_mode_still_follow_from_the_data(committed, data):
    """A sample of what `make report` does with all of them: the whole way, from fit to error."""
    family, (profiles, runs) = "resnet", data
    shared = [run for run in runs if run.sharing == "mps"]
    playback = ReplayCache()
    seen = {name: each for name, each in profiles.items() if each.workload.family != family}
    kept = [run for run in shared if family not in families_of([run])]
    model = fit([MeasuredGpu(H200, seen, kept)], playback)
    predictor = Predictor(H200, model, play=playback.play)
    scored = [run for run in select(profiles, runs, H200).scored
              if run.sharing == "mps" and family in families_of([run])]  # fmt: skip
    errors = [
        abs(job.error)
        for run in scored
        for job in compare(run, profiles_of(run, profiles, "raw"), predictor, H200, {}).jobs
        if job.family == family
    ]
    (said,) = [each for each in committed.families if each.name == family]
    assert sum(errors) / len(errors) == pytest.approx(said.mape_by_mode["mps"], abs=TOLERANCE)


def test_the_splits_are_those_of_the_committed_runs(data):
    text = splits_text(GPU, select(*data, H200))
    assert (FOLDER / GPU / "runs" / "splits.json").read_text() == text


def test_no_set_of_jobs_that_was_validated_is_among_the_fitted_runs(data):
    def sets(runs):
        names = (sorted(tenant.workload.name for tenant in run.tenants) for run in runs)
        return {tuple(each) for each in names if len(each) > 1}

    _, runs = data
    taught = of_other_sets(runs)
    assert len(taught) > 600
    validated = sets(run for run in of_pace(runs) if run.purpose == "validation")
    assert validated
    assert validated.isdisjoint(sets(taught))


def test_a_marked_block_is_replaced_and_nothing_else():
    text = "before\n<!-- begin: a -->\nold \\1\n<!-- end: a -->\nafter"
    assert filled(text, "a", "new \\2") == (
        "before\n<!-- begin: a -->\nnew \\2\n<!-- end: a -->\nafter"
    )


def test_a_block_that_is_missing_or_there_twice_is_refused():
    for text in ("none", "<!-- begin: a --><!-- end: a -->" * 2):
        with pytest.raises(ValueError, match="blocks named a"):
            filled(text, "a", "new")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a small made-up campaign of every kind says."""
    folder = tmp_path_factory.mktemp("gpu")
    for name, profile in PROFILES.items():
        write_whole(folder / f"{name}.json", profile_text(profile))
    for run in campaign():
        append_run(folder / "runs/drawn.jsonl", run)
    pair = list(PROFILES.values())[:2]
    for sharing, slowdown in (("mps", 1.2), ("naive", 1.9)):
        advised = synthetic.run(pair, sharing, slowdown, f"advice-{sharing}")
        append_run(folder / "runs/validation.jsonl", replace(advised, purpose="validation"))
    for name in ("pair-1-busy", "pair-1-idle"):
        control = replace(synthetic.run(pair, "mps", 1.3, name), purpose="control")
        append_run(folder / "runs/control.jsonl", control)
    append_run(folder / "runs/whole.jsonl", whole("whole", "mps", (1.0, 2.0), pair))
    return findings(folder, H200)


def test_a_report_says_what_was_measured_how_far_off_and_how_advice_fared(found):
    figures = figures_of(found)
    purposes = blocks(figures)["purposes"]
    assert "| control | 0 | 2 | 0 | 0 |" in purposes
    assert "memory" not in purposes
    assert "1 more run whole jobs to their ends." in purposes
    text = report_text(figures)
    assert "| host-bound | MPS | 2 | 0.0 % |" in text
    assert "5 workloads alone, which keep the GPU busy 20 to 100 % of a step" in text
    assert "32 shared runs (11 mps, 10 mps limits, 11 naive) of 2 jobs" in text
    assert "| MPS limits | 2, mixed | 10 |" in text
    assert "| naive, GPU-bound jobs, MAPE, worst host | at most 1.5 % |" in text
    assert "| coverage of 90 % intervals, worst host | at least 83.0 % |" in text
    assert "| job sets to choose for | at least 40 | 1 | no |" in text
    assert "## Whole jobs, from the first step to the last" in text
    assert len(found.unseen_completions) == 1
    assert "| advice-naive | naive | resnet50-imagenet64-bs128 |" in text
    assert "Job sets run under several plans to choose from: 1." in text
    assert "| always MPS | 1 | 0.0 % | 0.0 % | 1 of 1 |" in text


@pytest.fixture
def checkout(found, tmp_path, monkeypatch):
    """A checkout whose data are `found` by whoever looks."""
    for file in ("README.md", "docs/accuracy.md", "docs/other-gpus.md", "profiles/DATA_CARD.md"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / "profiles" / GPU).mkdir()
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "findings", lambda *_: found)
    monkeypatch.setattr(report, "recommendation", lambda: ("rank 1",))
    return tmp_path


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_report_writes_the_figures_and_every_document_that_says_them(checkout, capsys):
    report.main([])
    assert "Nothing to compare with" in capsys.readouterr().out
    figures = read_figures(checkout / "profiles" / GPU / EVALUATION)
    assert figures.recommendation == ("rank 1",)
    for path, text in rendered(figures, checkout).items():
        assert (checkout / path).read_text() == text
    before = everything(checkout)
    report.main([])
    assert "No figure moved by more than 0.3 points" in capsys.readouterr().out
    assert everything(checkout) == before


def test_a_check_names_what_no_longer_follows_from_the_data_and_writes_nothing(checkout, capsys):
    report.main([])
    file = checkout / "profiles" / GPU / EVALUATION
    figures = read_figures(file)
    group = figures.families[0]
    other = (replace(group, mape=group.mape + 0.01), *figures.families[1:])
    file.write_text(figures_text(replace(figures, families=other)))
    before, _ = everything(checkout), capsys.readouterr()
    with pytest.raises(SystemExit) as done:
        report.main(["--check"])
    assert done.value.code == 1
    assert f"families[{group.name}].mape" in capsys.readouterr().out
    assert everything(checkout) == before


@pytest.mark.usefixtures("checkout")
def test_a_check_without_committed_figures_says_what_to_run():
    with pytest.raises(SystemExit, match="make report"):
        report.main(["--check"])


def test_a_target_is_met_within_its_bounds_and_never_where_nothing_was_measured():
    said = [Target("x", 0.87, 0.93, reached).cells[-1] for reached in (0.9, 0.95, 0.8, None)]
    assert said == ["yes", "no", "no", "not measured"]
    assert Target("x", 0, 0.05, 0.0).cells == ("x", "at most 5.0 %", "0.0 %", "yes")
