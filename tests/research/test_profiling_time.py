from dataclasses import replace

from advisor.workload.profile import PartSeconds
from research.profiling_time import median_seconds, profiling_time, profiling_time_text
from tests import synthetic


def took(mps_s, limits_s):
    return PartSeconds(
        start_s=3.0, settle_s=1.0, windows_s=2.0, meter_s=0.25, host_path_s=1.0, trace_s=2.0,
        mps_s=mps_s, limits_s=limits_s,
    )  # fmt: skip


def profiles(*parts):
    return [replace(synthetic.profile(), took=each) for each in parts]


def test_profiles_older_than_the_record_say_nothing_of_time():
    assert profiling_time(profiles(None, None)) is None
    assert median_seconds(profiles(None), ["trace_s"]) is None


def test_what_the_probe_takes_is_said_of_those_profiles_that_have_one():
    said = profiling_time_text(profiling_time(profiles(took(4.0, 5.0), took(None, None), None)))
    assert "2 profiles recorded" in said
    assert "13.5 s in all" in said
    assert "The MPS probe takes 50.0 % of a profile's time" in said


def test_without_a_probe_nothing_is_said_of_one():
    assert "probe" not in profiling_time_text(profiling_time(profiles(took(None, None))))


def test_parts_are_summed_in_each_profile_that_recorded_all_of_them():
    measured = profiles(took(1.0, 2.0), took(4.0, 5.0), took(2.0, 2.0), took(9.0, None), None)
    assert median_seconds(measured, ["mps_s", "limits_s"]) == 4.0
    assert median_seconds(measured, []) is None
