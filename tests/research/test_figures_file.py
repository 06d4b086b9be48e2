import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput, UnknownName
from advisor.workload.files import EVALUATION, profile_files
from advisor.workload.store import load_profile, profiled_gpus
from research.figures_file import figures_text, moved, parse_figures, read_figures
from research.report import GPU, ROOT
from tests import synthetic

FIGURES = read_figures(ROOT / "profiles" / GPU / EVALUATION)
# Without what there are hundreds of.
FEW = replace(
    FIGURES, scores=replace(FIGURES.scores, rows=()), advice=replace(FIGURES.advice, plans=(),
    outside=()), points={}, targets=(), worst=(), campaigns=(), recommended=(),
)  # fmt: skip


def with_mape(mape):
    return replace(FEW, families=(replace(FIGURES.families[0], mape=mape),))


def with_step(measured_s):
    return replace(FEW, worst=(replace(FIGURES.worst[0], measured_s=measured_s),))


def test_figures_are_read_as_they_were_written():
    assert parse_figures(figures_text(FIGURES), "here") == FIGURES


@given(st.floats(0, 1e6))
def test_a_number_keeps_six_digits_and_noise_in_the_last_bits_does_not_show(mape):
    text = figures_text(with_mape(mape))
    (read,) = parse_figures(text, "here").families
    assert read.mape == pytest.approx(mape, rel=1e-5)
    assert figures_text(parse_figures(text, "here")) == text


def test_sums_in_another_order_are_the_same_text():
    assert figures_text(with_mape(0.1 + 0.2)) == figures_text(with_mape(0.3))


@given(st.floats(-0.0029, 0.0029))
def test_less_than_three_tenths_of_a_point_has_not_moved(by):
    assert moved(with_mape(0.05), with_mape(0.05 + by)) == ()


@given(st.floats(0.0031, 0.5))
def test_more_than_that_has_and_is_named(by):
    (each,) = moved(with_mape(0.05), with_mape(0.05 + by))
    assert each.where == f"families[{FIGURES.families[0].name}].mape"
    assert str(each).startswith(f"{each.where}: 0.05 -> ")


def test_what_has_a_unit_moves_by_a_share_of_itself():
    assert moved(with_step(0.002), with_step(0.002005)) == ()
    (each,) = moved(with_step(0.002), with_step(0.0021))
    assert each.where.endswith(".measured_s")


def test_words_lists_and_what_is_no_longer_measured_move():
    assert moved(FIGURES, replace(FIGURES, recommendation=("other",)))
    assert moved(FIGURES, replace(FIGURES, families=FIGURES.families[1:]))
    (each,) = moved(FIGURES, replace(FIGURES, profiling=None))
    assert (each.where, each.now) == ("profiling", None)
    assert [each.where for each in moved(FIGURES, replace(FIGURES, noise={}))] == [
        f"noise.{mode}" for mode in FIGURES.noise
    ]


def text_of(**change):
    return json.dumps(json.loads(figures_text(FEW)) | change)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"misspelt": 1},
        {"profiling": {"profiles": 1, "whole_s": 1.0, "probe_share": None, "misspelt": 1}},
        {"steadiness": {"workloads": 1, "steady": "many"}},
    ],
)
def test_a_file_with_a_field_of_another_form_is_refused_and_the_message_says_how_to_make_it(change):
    with pytest.raises(InvalidInput, match="make report"):
        parse_figures(text_of(**change), "evaluation.json")


def test_a_file_that_is_cut_or_has_what_is_no_number_is_refused_likewise():
    whole = text_of()
    assert parse_figures(whole, "evaluation.json") == FEW
    for text in (whole.replace('"mape": ', '"mape": NaN, "was": ', 1), whole[:-1], "[]"):
        with pytest.raises(InvalidInput, match="make report"):
            parse_figures(text, "evaluation.json")


def test_the_figures_beside_profiles_are_no_profile():
    files = profile_files(ROOT / "profiles" / GPU)
    assert files
    assert EVALUATION not in {path.name for path in files}
    with pytest.raises(UnknownName):
        load_profile("evaluation", GPU)
    with pytest.raises(InvalidInput, match="Leave it out"):
        load_profile(f"profiles/{GPU}/{EVALUATION}", GPU)


def test_a_folder_with_figures_alone_has_no_profiles(tmp_path):
    (tmp_path / "a100-40gb").mkdir()
    (tmp_path / "a100-40gb" / EVALUATION).write_text("{}")
    assert profiled_gpus(tmp_path) == ()


def test_no_workload_can_have_the_name_of_the_figures():
    workload = synthetic.profile().workload
    with pytest.raises(InvalidInput, match="choose another name"):
        replace(workload, name="evaluation")
