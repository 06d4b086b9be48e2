import pytest

from advisor.report.sharing_words import shortened

FORTY = ",".join(map(str, range(1, 41)))


@pytest.mark.parametrize(
    ("notation", "short"),
    [
        ("mps=" + ",".join(["14"] * 40), "mps=14 x40"),
        (f"mps=86{',86' * 39}[{FORTY}];serial[41]", "mps=86 x40[1-40];serial[41]"),
        (
            f"mig=7g.141gb@0/ci=4c[{FORTY}]+3c[41,42]/mps",
            "mig=7g.141gb@0/ci=4c[1-40]+3c[41,42]/mps",
        ),
        ("mps=12.5,12.5,12.5,12.5,12.5,12.5,12.5,12.5,12", "mps=12.5 x8,12"),
    ],
)
def test_many_jobs_are_counted_where_they_are_listed(notation, short):
    assert shortened(notation) == short


@pytest.mark.parametrize(
    "notation",
    [
        "mps=86,86,86",
        "serial[1];mps[2,3]",
        "mig=1g.18gb@6,2g.35gb@4,4g.71gb@0",
        "mps=1,2,3,4,5,6,7,8",
    ],
)
def test_few_jobs_stay_as_commands_take_them(notation):
    assert shortened(notation) == notation
