"""The page: choose a GPU and jobs, see how they share it best.

``advisor app`` or ``streamlit run app.py`` starts it. Like `advisor.page` it only contains widgets:
the library computes what they show.
"""

import streamlit as st

# Streamlit leaves room for a bar at the top, which this page does not have.
_STYLE = "<style>.st-key-page {margin-top: -5rem}</style>"


def main() -> None:
    """Show the question, and its answer on the page that is open."""
    st.set_page_config("advisor", "🧩", "wide")
    with st.container(key="page"):
        st.html(_STYLE)
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.title("How should these jobs share one GPU?")
            links = st.container(horizontal=True, width="content")
        # After the title: a server's first visitor waits for them.
        from advisor.page.answer import show_answer
        from advisor.page.more import show_more_questions
        from advisor.page.question import read_question

        top, card = st.container(), st.container()
        left, right = st.columns([3, 5], gap="large")
        question = read_question(top, left)
        pages = [
            st.Page(lambda: show_answer(question, card, right), title="One GPU", default=True),
            st.Page(
                lambda: show_more_questions(question, right),
                title="More questions",
                url_path="more",
            ),
        ]
        page = st.navigation(pages, position="hidden")
        with links:
            for each in pages:
                st.page_link(each)
        page.run()


if __name__ == "__main__":  # for each visit
    main()
else:  # once, for the server
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    hosts = st.get_option("server.allowedHosts") or ["*"]
    app = st.App(__file__, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)])
