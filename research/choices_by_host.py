"""What choices gave away on each host of the job sets that ran in all their ways on several.

One host's moods make a way look better or worse than it is; the mean over hosts is what a choice
is judged by, and this is what it consists of.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.validate.evaluate import Evaluation
from advisor.validate.panels import Panel
from advisor.validate.regret import MODEL, Regret, choices, regrets
from advisor.validate.score_tables import percent
from advisor.validate.selection import hosts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChoices:
    """The model's choices, by what was measured on one host.

    Attributes:
        host: Campaign, and day where that ran on several.
        regret: Of the sets that ran in the same ways on another host as well.
    """

    host: str
    regret: Regret


def choices_by_host(evaluation: Evaluation) -> tuple[HostChoices, ...]:
    """Of every host on which sets ran in all the ways in which another host ran them."""
    places = hosts_of(each.run for each in evaluation.advice)
    sets = {place: _sets_of(evaluation, place, places) for place in sorted(set(places.values()))}
    often = Counter(_ways(panel) for own in sets.values() for panel in own)
    of_several = {
        place: [panel for panel in own if often[_ways(panel)] > 1] for place, own in sets.items()
    }
    return tuple(
        HostChoices(host=place, regret=regrets(found, evaluation.profiles)[MODEL])
        for place, found in of_several.items()
        if found
    )


def _sets_of(evaluation: Evaluation, place: str, places: Mapping[str, str]) -> tuple[Panel, ...]:
    there = tuple(each for each in evaluation.advice if places[each.run.id] == place)
    return choices(replace(evaluation, advice=there))


def _ways(panel: Panel) -> tuple[object, ...]:
    return (panel.names, *sorted(str(each.sharing) for each in panel.options))


def said(found: Sequence[HostChoices]) -> str:
    """In words; empty if no set ran on two hosts."""
    if not found:
        return ""
    each = "; ".join(
        f"{host.host}: {percent(host.regret.mean)} in the mean, {percent(host.regret.worst)} at "
        f"worst"
        for host in found
    )
    return (
        f"Of {found[0].regret.n} sets that ran in all their ways on two hosts, this model's "
        f"choices gave away by what was measured on each alone: {each}."
    )
