"""The figures of README, docs/ and profiles/: worked out, written, compared, rendered."""

import json
import shutil
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.files.writing import append_record, record_line, write_whole
from advisor.hardware.gpus import gpu
from advisor.learn.fit import fit
from advisor.learn.observations import MeasuredGpu, ReplayCache
from advisor.learn.scores import compare, profiles_of
from advisor.prediction.predictor import Predictor
from research import report
from research.evaluate import families_of, of_pace, select
from research.figures import (
    TOLERANCE,
    figures_of,
    figures_text,
    moved,
    parse_figures,
    read_figures,
    runs_of_other_sets,
)
from research.files import filled, measured, runs_in
from research.others import read_others
from research.readers import readers_targets
from research.report import FIGURES, GPU, ROOT, rendered, report_text
from research.scripts import HOSTS, script_scores, scripts_table
from research.splits import splits_text
from research.targets import Target
from tests import synthetic
from tests.research.campaign import PROFILES, campaign
from tests.research.whole_jobs import whole

H200 = gpu(GPU)
FOLDER = ROOT / "profiles"
COMMITTED = read_figures(ROOT / FIGURES)
SMALL = replace(COMMITTED, scores=replace(COMMITTED.scores, rows=()), left_out=(), recommended=())


@pytest.fixture(scope="module")
def data():
    return measured(FOLDER / GPU)


def test_every_document_has_the_committed_figures():
    for path, text in rendered(COMMITTED).items():
        assert (ROOT / path).read_text() == text, f"{path}: run `make report`"
    assert (ROOT / FIGURES).read_text() == figures_text(COMMITTED)
    noise = json.loads((FOLDER / GPU / "runs" / "noise.json").read_text())
    rows = COMMITTED.scores.pooled()
    assert noise == {row.mode: row.noise for row in rows if row.bound == "all"}


@pytest.mark.parametrize("mode", ["naive", pytest.param("mps", marks=pytest.mark.exhaustive)])
@pytest.mark.exhaustive
def test_figures_of_one_family_and_mode_follow_from_the_data(data, mode):
    """A sample of what `make report` does for all of them, from fit to error."""
    family, (profiles, runs) = "resnet", data
    shared = [run for run in runs if run.sharing == mode]
    playback = ReplayCache()
    seen = {name: p for name, p in profiles.items() if p.workload.family != family}
    kept = [run for run in shared if family not in families_of([run])]
    model = fit([MeasuredGpu(H200, seen, kept)], playback)
    predictor = Predictor(H200, model, replay=playback.play)
    scored = [
        run
        for run in select(profiles, runs, H200).scored
        if run.sharing == mode and family in families_of([run])
    ]
    errors = [
        abs(job.error)
        for run in scored
        for job in compare(run, profiles_of(run, profiles), predictor).jobs
        if job.family == family
    ]
    (group,) = [group for group in COMMITTED.families if group.name == family]
    assert sum(errors) / len(errors) == pytest.approx(group.mape_by_mode[mode], abs=TOLERANCE)


def test_the_splits_are_those_of_the_committed_runs(data):
    text = splits_text(GPU, select(*data, H200))
    assert (FOLDER / GPU / "runs" / "splits.json").read_text() == text


def test_no_validated_set_of_jobs_is_among_the_fitted_runs(data):
    def sets(runs):
        names = (sorted(tenant.workload.name for tenant in run.tenants) for run in runs)
        return {tuple(jobs) for jobs in names if len(jobs) > 1}

    _, runs = data
    taught = runs_of_other_sets(runs)
    assert len(taught) > 600
    validated = sets(run for run in of_pace(runs) if run.purpose == "validation")
    assert validated
    assert validated.isdisjoint(sets(taught))


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """The figures of a small made-up campaign of every kind on two GPUs."""
    root = tmp_path_factory.mktemp("profiles")
    pair = list(PROFILES.values())[:2]
    for name in (GPU, "h100-sxm-80gb"):
        for profile in PROFILES.values():
            text = record_line(replace(profile, gpu=name))
            write_whole(root / name / f"{profile.name}.json", text)
        runs = [*campaign(), whole("whole", "mps", (1.0, 2.0), pair)]
        for sharing, slowdown in (("mps", 1.2), ("naive", 1.9)):
            advised = synthetic.run(pair, sharing, slowdown, f"advice-{sharing}")
            runs.append(replace(advised, purpose="validation"))
        for run in runs:
            append_record(root / name / "runs" / "all.jsonl", replace(run, gpu=name))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("research.figures.script_scores", lambda: COMMITTED.scripts)
        return figures_of(root / GPU, H200)


def test_a_report_has_what_was_measured_and_how_far_off_predictions_were(made_up):
    text = report_text(made_up)
    for part in (
        "We measured 5 workloads alone",
        "busy for 20 to 100 % of a step",
        "| MPS limits | 2, mixed | 10 |",
        "| job sets to choose for | at least 40 | 1 | no |",
        "## Whole jobs, from the first step to the last",
        "| always MPS | 1 | 0.0 % | 0.0 % | 1 of 1 |",
        "Models of h200-141gb runs alone",
        "## Power and activity of the GPU",
        "## Memory",
    ):
        assert part in text
    assert {row.learnt_on for row in made_up.left_out} == {GPU, "h100-sxm-80gb"}


@pytest.fixture
def checkout(made_up, tmp_path, monkeypatch):
    """A checkout whose data give the figures `made_up`."""
    files = [path for path in rendered(made_up) if path.name != "REPORT.md"]
    for path in files:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    (tmp_path / "research").mkdir()
    (tmp_path / "profiles" / GPU / "runs").mkdir(parents=True)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "rendered", lambda figures: rendered(figures, tmp_path))
    monkeypatch.setattr(report, "figures_of", lambda *_: made_up)
    monkeypatch.setattr(report, "terminal_output", lambda *_: made_up.recommendation)
    monkeypatch.setattr(report, "measured", lambda _: (PROFILES, campaign()))
    return tmp_path


def test_a_report_writes_figures_and_documents_and_a_check_names_what_moved(checkout, capsys):
    with pytest.raises(SystemExit, match="make report"):
        report.main(["--check"])
    report.main([])
    file = checkout / FIGURES
    figures = read_figures(file)
    for path, text in rendered(figures, checkout).items():
        assert (checkout / path).read_text() == text
    report.main(["--render"])
    with pytest.raises(SystemExit) as done:
        report.main(["--check"])
    assert done.value.code == 0
    group = figures.families[0]
    other = (replace(group, mape=group.mape + 0.01), *figures.families[1:])
    file.write_text(figures_text(replace(figures, families=other)))
    capsys.readouterr()
    with pytest.raises(SystemExit) as done:
        report.main(["--check"])
    assert done.value.code == 1
    assert f"families[{group.name}].mape" in capsys.readouterr().out


def with_mape(mape):
    return replace(SMALL, families=(replace(COMMITTED.families[0], mape=mape),))


@given(st.floats(0, 1e6))
def test_a_number_keeps_six_digits(mape):
    text = figures_text(with_mape(mape))
    assert parse_figures(text, "here").families[0].mape == pytest.approx(mape, rel=1e-5)
    assert figures_text(parse_figures(text, "here")) == text


@given(st.floats(-0.5, 0.5).filter(lambda by: abs(abs(by) - TOLERANCE) > 1e-4))
def test_a_figure_has_moved_if_it_differs_by_more_than_the_tolerance(by):
    changes = moved(with_mape(1.0), with_mape(1.0 + by))
    assert len(changes) == (abs(by) > TOLERANCE * max(1.0, 1.0 + by))


@pytest.mark.parametrize("change", [{"schema": 1}, {"misspelt": 1}, {"steadiness": {"steady": 1}}])
def test_a_file_of_another_form_is_refused_with_how_to_make_it(change):
    text = json.dumps(json.loads(figures_text(SMALL)) | change)
    with pytest.raises(InvalidInput, match="make report"):
        parse_figures(text, "figures.json")


def test_a_marked_block_is_replaced_and_nothing_else():
    text = "before\n<!-- begin: a -->\nold \\1\n<!-- end: a -->\nafter"
    assert filled(text, "a", "new \\2") == text.replace("old \\1", "new \\2")
    for text in ("none", "<!-- begin: a --><!-- end: a -->" * 2):
        with pytest.raises(ValueError, match="block named a"):
            filled(text, "a", "new")


def test_a_target_is_met_within_its_bounds_and_never_where_nothing_was_measured():
    met = [Target("x", 0.87, 0.93, reached).cells[-1] for reached in (0.9, 0.95, 0.8, None)]
    assert met == ["yes", "no", "no", "not measured"]
    width = Target("width", 0.0, 2.8, 3.14159)
    assert width.cells == ("width", "at most 2.80", "3.14", "no")


def test_every_target_of_a_reader_is_measured():
    rows = [target.cells for target in readers_targets(COMMITTED, read_others())]
    assert len({name for name, *_ in rows}) == len(rows) == 28
    assert {met for *_, met in rows} <= {"yes", "no"}


def test_scripts_are_scored_on_every_host_all_of_them_first(monkeypatch):
    monkeypatch.setattr("research.scripts.runs_in", lambda folder: runs_in(folder)[:2])
    scores = script_scores()
    assert {row.name for row in scores} > HOSTS.keys()
    assert scores[0].name == "all"
    assert scores[0].steps == sum(row.steps for row in scores if row.name in HOSTS)
    assert len(scripts_table(scores).splitlines()) == 2 + len(scores)
