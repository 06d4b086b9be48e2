"""The page: choose a GPU and jobs, see how they share it best.

``advisor app`` or ``streamlit run app.py`` starts it. Like `advisor.page` it only contains widgets:
the library computes what they show.
"""

import streamlit as st

_STYLE = """<style>
.st-key-page {gap: 0.75rem}
@media (min-width: 640px) {.st-key-page {margin-top: -4.5rem}}
.st-key-commands button {background: #0A66B0; border-color: #0A66B0; color: #FFFFFF}
.stMultiSelect [data-tag] {background: #0A66B0}
</style>"""


def main() -> None:
    """Show the question, and on its right the answer of the page that is open."""
    st.set_page_config("advisor", "🧩", "wide")
    with st.container(key="page"):
        st.html(_STYLE)
        st.title("How should these jobs share one GPU?")
        # After the title: a server's first visitor waits for them.
        from advisor.page.answer import show_answer
        from advisor.page.more import show_more_questions
        from advisor.page.question import read_question

        top = st.container()
        left, right = st.columns([2, 3], gap="large")
        question = read_question(top, left)
        pages = [
            st.Page(lambda: show_answer(question, right), title="One GPU", default=True),
            st.Page(
                lambda: show_more_questions(question, right),
                title="More questions",
                url_path="more",
            ),
        ]
        st.navigation(pages, position="top").run()


main()
