"""Speed against the size of a MIG instance, in words."""

from collections.abc import Sequence

from advisor.plan.slice_speeds import SliceSpeed
from advisor.report.headline import NOT_CONFIRMED
from advisor.workload.profile import Profile


def slice_speed_text(found: Sequence[SliceSpeed], profiles: Sequence[Profile]) -> str:
    """What the chart of `profiles` shows, what it stands on, and which jobs fit where not."""
    what = "This is" if any(each.is_estimate for each in profiles) else "On instances this is"
    said = [
        "Speed alone on an instance of each size, over that on the whole GPU; the grey ticks are "
        "what the instance has of the compute slices, and the thin lines where nine of ten "
        f"measurements should fall. {what} {NOT_CONFIRMED}."
    ]
    lacks: dict[str, list[str]] = {}
    for each in found:
        if each.speed is None:
            lacks.setdefault(each.job, []).append(each.where)
    said += [f"{job} does not fit {', '.join(where)}." for job, where in lacks.items()]
    return " ".join(said)
