"""Both pages open, which `make versions` tries with the oldest and the newest versions."""


def test_both_pages_open_without_an_error(page, more_page):
    for each in (page.run(), more_page.run()):
        assert not each.exception
        assert each.main.children
