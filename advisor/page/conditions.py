"""The conditions on the page; a control that another one excludes is disabled, with the reason."""

import streamlit as st

from advisor.errors import AdvisorError
from advisor.hardware.catalogue import Gpu
from advisor.page.address import linked
from advisor.page.answers import advisor_of
from advisor.page.refusal import refuse
from advisor.plan import ObjectiveName
from advisor.plan.cap_choice import why_no_caps
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import Conditions
from advisor.prediction.interval import Level
from advisor.prediction.power_cap import CAP_NOTE
from advisor.report.page_words import on_the_page


def conditions_asked(
    gpu: Gpu, objective: ObjectiveName
) -> tuple[float | None, Conditions, Level] | None:
    """Power cap, conditions and what counts of a range; None where one of them is impossible."""
    asked = linked().conditions
    with st.expander("Conditions"):
        rootless = not gpu.mig and not OBJECTIVES[objective].saves_energy
        root = _tick(
            "MIG may be switched on, which takes root", "root", asked.root,
            f"{gpu.key} has no MIG" if rootless else None,
        )  # fmt: skip
        cap_w, possible, caps = _power_caps(gpu, objective, Conditions(root=root))
        free = st.number_input(
            "Memory to keep free, %", value=100 * asked.memory_margin, format="%g", key="memory"
        )
        by_memory = st.container()
        upper = _tick(
            "Rank by the upper ends of the ranges", "pessimistic", linked().level == "p95"
        )
    try:
        found = Conditions(root=root, memory_margin=free / 100, power_caps=caps)
    except AdvisorError as error:
        refuse(error, by_memory)
        return None
    return (cap_w, found, "p95" if upper else "p50") if possible else None


def _power_caps(
    gpu: Gpu, objective: ObjectiveName, under: Conditions
) -> tuple[float | None, bool, bool]:
    """The cap, whether `gpu` can be set to it, and whether plans choose one; either or neither."""
    known, useless = linked(), why_no_caps(gpu, objective, under)
    given = st.session_state.get("power cap", known.cap_w)
    chosen = useless is None and st.session_state.get("power caps", known.conditions.power_caps)
    cap_w = st.number_input(
        "Power cap, W", value=known.cap_w, step=10.0, format="%g", key="power cap",
        disabled=chosen and given is None,
        placeholder="the plans choose" if chosen else "the GPU's own limit",
        help=f"What the GPU may draw at most. What a cap does was {CAP_NOTE}.",
    )  # fmt: skip
    possible = True
    try:
        if cap_w is not None:
            _ = advisor_of(gpu.key, cap_w).predictor
    except AdvisorError as error:
        refuse(error)
        possible = False
    excluded = useless if cap_w is None else "all plans run under the cap above"
    caps = _tick(
        "A plan may choose a power cap", "power caps", known.conditions.power_caps, excluded
    )
    return cap_w, possible, caps and excluded is None


def _tick(label: str, key: str, value: bool, excluded: str | None = None) -> bool:
    """A box to tick, unless something that is said under it leaves nothing to choose."""
    ticked = st.checkbox(label, value=value, key=key, disabled=excluded is not None)
    if excluded is not None:
        st.caption(f"Nothing to choose: {on_the_page(excluded)}.")
    return ticked
