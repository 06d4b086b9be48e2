"""What somebody does on the page with a browser, and what happens."""


def test_the_page_answers_at_once_and_asks_no_other_host(visitor):
    page = visitor.open()
    assert page.get_by_role("heading").count()
    assert visitor.errors == []
    assert visitor.hosts == {visitor.address.removeprefix("http://")}
