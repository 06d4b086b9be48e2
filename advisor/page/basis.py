"""The basis of the answer, and a check of this machine's host."""

import streamlit as st

from advisor.measure.device import check_host
from advisor.page.question import Question, advisor_of, plain
from advisor.plan.values import Recommendation
from advisor.report.basis import basis_sentences


def show_basis(question: Question, advised: Recommendation) -> None:
    """Show what the intervals rest on; with such a GPU in this machine, offer to check its host."""
    with st.expander("What the answer rests on"):
        for sentence in basis_sentences(advised):
            st.markdown(plain(sentence))
        if question.advisor.present is not None and st.button("Check this host"):
            scripts = [job.profile.workload.script for job in question.jobs]
            problems: list[str] = []
            with st.spinner("Checking how fast this host is: about 10 s"):
                check_host(len(scripts), next(filter(None, scripts), None), problems.append)
            for problem in problems:
                st.error(plain(problem))
            if not problems:
                advisor_of.clear()
                st.rerun()
