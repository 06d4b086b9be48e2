import pytest

from advisor.errors import InvalidInput
from advisor.measure.campaign.campaign_file import Count, read_campaign
from tests.measure.campaign.plans import OF_A_GPU, PLAN, written


def test_a_plan_says_what_is_drawn_from_what(tmp_path):
    campaign = read_campaign(written(tmp_path, OF_A_GPU, "third.toml"))
    assert (campaign.name, campaign.prefix) == ("third", "third-")
    assert campaign.degrees[2]["naive"] == Count(same=3, mixed=4)
    assert campaign.degrees[4] == {"equal": Count(same=2, mixed=0)}
    assert [each.name for each in campaign.large] == ["dlrm-29gb-bs128"]
    assert campaign.equal_limits == {2: (43, 50), 4: (28,)}


def test_workloads_may_be_listed_in_a_file_that_several_plans_include(tmp_path):
    written(tmp_path, 'small = ["mlp-toy-bs32"]\nlarge = ["cnn-cifar10-bs32"]', "workloads.toml")
    text = 'gpu = "cpu"\nseed = 1\ninclude = "workloads.toml"'
    campaign = read_campaign(written(tmp_path, text))
    assert [each.name for each in campaign.small + campaign.large] == [
        "mlp-toy-bs32", "cnn-cifar10-bs32"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sede = 1", "'sede'"),
        ("seed = -1", "seed must be a whole number"),
        ('seed = "7"', "seed must be a whole number"),
        ('gpu = "h900"', "h900"),
        ('small = ["no-such-bs1"]', "small[0]"),
        ('small = ["mlp-toy-bs32", "mlp-toy-bs32"]', "listed twice"),
        ('include = "w.toml"', "not both"),
        ("solo_every = 1.5", "solo_every"),
        ("limits = [0]", "limits[0] must be a number above 0 to 100"),
        ("degrees = {1 = {}}", "degrees.1"),
        ("degrees = {2 = {mps = {some = 1}}}", "degrees.2.mps.some"),
        ("degrees = {2 = {naive = {same = -1}}}", "degrees.2.naive.same"),
        ("degrees = {2 = {mig = {same = 1}}}", "degrees.2.mig"),
        ("degrees = 3", "degrees: must be a table"),
        ("timing = {window_s = 0}", "timing.window_s"),
        ("timing = {windows = true}", "timing.windows"),
        ("profile = {missing = 1}", "profile.missing must be true or false"),
        ("profile = {known = [1]}", "profile.known"),
        ('profile = {known = ["absent"]}', "'absent' is not a folder"),
        ('runs = [{id = "a", sharing = "naive", purpose = "drawn", workloads = ["mlp-toy-bs32"]}]',
         "runs[0]: its purpose cannot be 'drawn'"),
        ('runs = [{id = "a", sharing = "mps", purpose = "chosen", workloads = ["mlp-toy-bs32"]}]',
         "runs[0]: a CPU is not shared by MPS"),
        ('control = [{id = "a", sharing = "naive", workloads = ["mlp-toy-bs32"], copies = 0}]',
         "control[0].copies"),
        ('control = ["a"]', "control[0]: must be a table"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_file_and_key(tmp_path, line, said):
    key = line.partition(" ")[0]
    rest = "\n".join(each for each in PLAN.split("[degrees.2]")[0].splitlines()
                     if not each.startswith(f"{key} "))  # fmt: skip
    path = written(tmp_path, f"{rest}\n{line}\n")
    with pytest.raises(InvalidInput) as refused:
        read_campaign(path)
    assert str(path) in str(refused.value)
    assert said in str(refused.value)


def test_a_plan_that_is_missing_or_no_toml_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="Check the path"):
        read_campaign(tmp_path / "absent.toml")
    with pytest.raises(InvalidInput, match="Correct the file"):
        read_campaign(written(tmp_path, "gpu = ["))
    with pytest.raises(InvalidInput, match="'seed' is missing"):
        read_campaign(written(tmp_path, 'gpu = "cpu"'))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("solo_every = 2", "'solo_every' is about the workloads in 'small' and 'large'"),
        ("solos_of_each = 1", "'solos_of_each' is about the workloads"),
        ("solo_every = 0\nsolos_of_each = 1\nsmall = ['mlp-toy-bs32']", "if 'solo_every' is 0"),
    ],
)
def test_solo_runs_of_no_workload_are_refused(tmp_path, lines, said):
    path = written(tmp_path, f'gpu = "cpu"\nseed = 7\n{lines}\n')
    with pytest.raises(InvalidInput) as error:
        read_campaign(path)
    assert said in str(error.value)


def test_a_plan_that_says_nothing_of_solo_runs_needs_no_workload(tmp_path):
    assert read_campaign(written(tmp_path, 'gpu = "cpu"\nseed = 7\n')).small == ()


def test_a_plan_names_its_gpu_as_people_do(tmp_path):
    assert read_campaign(written(tmp_path, 'gpu = "H200"\nseed = 7\n')).gpu == "h200-141gb"
