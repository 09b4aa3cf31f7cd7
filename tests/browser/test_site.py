"""The figures on the built site, where there is one."""

import re

import pytest

from book_config import ROOT

pytestmark = pytest.mark.slow("starts a browser")

HTML = ROOT / "_build" / "html"


def test_figures_on_the_built_site(run_in_browser):
    pages = sorted(HTML.glob("book/*.html"))
    if not pages:
        pytest.skip("there is no built site: run `make book` first")
    alive = [
        path.as_uri()
        for path in pages
        if re.search(r"<figure[^>]*data-attn=", path.read_text("utf-8"))
    ]
    if not alive:
        pytest.skip("the built site is older than its figures: `make book`")
    complaints = run_in_browser("site.mjs", site=alive)
    assert len(complaints) == len(alive)
    assert {name: said for name, said in complaints.items() if said} == {}
