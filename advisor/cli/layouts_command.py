"""``advisor layouts``."""

from typing import Annotated

import typer

from advisor.cli.options import DEFAULT_GPU, AsJson, GpuKey
from advisor.cli.output import show, show_json

_InUse = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="PROFILE[@START]",
        help="An instance that exists already, e.g. 3g.71gb or 3g.71gb@4; may be repeated.",
    ),
]
_Names = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Only these, e.g. 1g.18gb,2g.35gb; default: all."),
]
_Branch = Annotated[
    str | None,
    typer.Option(metavar="BRANCH", help="Of a driver, e.g. 470; default: the one at hand."),
]


def layouts(
    gpu: GpuKey = DEFAULT_GPU,
    in_use: _InUse = None,
    profiles: _Names = None,
    driver: _Branch = None,
    as_json: AsJson = False,
) -> None:
    """List and draw how MIG can cut up a GPU, from where each kind of instance may lie."""
    from advisor.hardware.catalogue import gpu as known
    from advisor.hardware.mig_layouts import placement_sets
    from advisor.hardware.mig_offer import as_offered_here
    from advisor.hardware.mig_rules import (
        driver_branch,
        instance_named,
        profiles_named,
        profiles_offered,
    )
    from advisor.report.mig_text import layouts_document, layouts_report

    card, branch = known(gpu), None
    if driver is None:
        card, branch = as_offered_here(card)
    else:
        branch = driver_branch(driver)
    chosen = (
        profiles_offered(card, branch)
        if profiles is None
        else profiles_named(card, profiles.split(","), branch)
    )
    used = [instance_named(card, name) for words in in_use or () for name in words.split(",")]
    sets = placement_sets(card, chosen, used, branch)
    if as_json:
        show_json(layouts_document(card, chosen, sets))
    else:
        show(layouts_report(card, chosen, sets, used))
