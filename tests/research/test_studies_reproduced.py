from research.studies_reproduced import studies_in_short, studies_text

SMALL = {
    "way": "7, MPS",
    "copies": 7,
    "time_sliced": False,
    "slowdown": {"s": 2.5, "S": 4.3, "ES": 4.1},
    "as_told": {"s": 1.7, "S": 2.9, "ES": 2.7},
}
DOCUMENT = {
    "small": [SMALL, SMALL | {"way": "7, time-sliced", "time_sliced": True}],
    "slower_host": 1.5,
    "scores": [
        {"kind": "slowdown", "rows": 8, "agree": 5, "agree_as_told": 7, "agree_on_slower_host": 6},
        {"kind": "memory", "rows": 2, "agree": 2, "agree_as_told": 2, "agree_on_slower_host": 2},
        {"kind": "placement", "rows": 6, "agree": 6, "agree_as_told": 6, "agree_on_slower_host": 6},
    ],
}


def test_each_way_stands_beside_what_the_study_measured_where_it_says_a_figure():
    lines = studies_text(DOCUMENT).splitlines()
    assert "| 7, MPS | 1.70x (2.50x) | 1.6 to 1.8x | 2.90x (4.30x) | - |" in lines[2]
    assert "| 1.70x (2.50x) | - |" in lines[3]


def test_rows_that_agree_are_counted_without_placement():
    said = studies_text(DOCUMENT)
    assert "Of 10 rows of the studies 9 agree" in said
    assert "(90%), 7 from the shipped profiles as they are (70%) and 8 on a host 1.5" in said


def test_the_committed_file_has_the_three_small_trainings_in_seven_ways():
    lines = [line for line in studies_text().splitlines() if line.startswith("| ")]
    assert len(lines) == 1 + 7


def test_readme_has_each_way_with_the_studys_figure_and_how_many_rows_agree():
    said = studies_in_short(DOCUMENT).splitlines()
    assert said[2] == "| 7, MPS | 1.70x (1.6 to 1.8x) | 2.90x (-) | 2.70x (-) |"
    assert said[-1] == "Of 10 checkable rows of three studies 9 agree (90%)."
