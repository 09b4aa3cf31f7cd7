"""What the theme's pages lack for readers who listen to them."""

#: What it is about -> what the theme writes, and what it should.
REPAIRS = {
    # Its heading and its search stood outside of every landmark.
    'id="pst-primary-sidebar"': (
        '<div id="pst-primary-sidebar" ',
        '<div id="pst-primary-sidebar" role="complementary" '
        'aria-label="The book" ',
    ),
    # A label that leaves out the keys on the button: voice control fails.
    "search-button-field": (
        'pst-js-only" title="Search" aria-label="Search"',
        'pst-js-only"',
    ),
    'id="pst-search-dialog"': (
        '<dialog id="pst-search-dialog"',
        '<dialog id="pst-search-dialog" aria-label="Search"',
    ),
    'id="pst-primary-sidebar-modal"': (
        '<dialog id="pst-primary-sidebar-modal"',
        '<dialog id="pst-primary-sidebar-modal" aria-label="The book"',
    ),
    'id="pst-secondary-sidebar-modal"': (
        '<dialog id="pst-secondary-sidebar-modal"',
        '<dialog id="pst-secondary-sidebar-modal" aria-label="This page"',
    ),
}


def repaired(page: str) -> str:
    """Return a page with its landmarks, labels and dialogs named.

    Raises
    ------
    ValueError
        If the theme writes something else about one of them: it has changed,
        and so must the list.
    """
    for about, (old, new) in REPAIRS.items():
        if about in page and old not in page:
            raise ValueError(f"the theme no longer writes {old!r}")
        page = page.replace(old, new)
    return page
