"""Pages ask for one style sheet and one script, and lose nothing else."""

import re
import sys

import pytest

from book_config import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import light_site
from light_site import HIDE_MATCHES

PAGE = """\
<html lang="en">
<head><meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1.0" />
<meta name="viewport" content="width=device-width" />
<script>document.documentElement.dataset.mode = "auto";</script>
<link href="{up}_static/styles/theme.css?digest=8" rel="stylesheet" />
<link rel="stylesheet" type="text/css" href="{up}_static/book.css?v=1" />
<script src="{up}_static/scripts/fontawesome.js?digest=8"></script>
<link rel="preload" as="script" href="{up}_static/scripts/theme.js?digest=8" />
<script src="{up}_static/documentation_options.js?v=9"></script>
<script src="{up}_static/sphinx_highlight.js?v=9"></script>
<script>DOCUMENTATION_OPTIONS.pagename = 'book/start';</script>
<script src="{up}searchindex.js"></script>
<script src="{up}_static/searchtools.js?v=2"></script>
</head><body><p>Text.</p>
<script type="module" data-attn-module="a">mount();</script>
<script defer src="{up}_static/scripts/theme.js?digest=8"></script>
</body></html>
"""
FILES = {
    "styles/theme.css": '@import "../basic.css";\n'
    "@font-face{font-family:F;src:url(../vendor/fontawesome/f.woff2)}\n"
    "a{background:url(../images/a.svg)}",
    "basic.css": "p{color:red}",
    "book.css": 'math{src:url("fonts/f.woff2")}b{x:url("data:image/svg")}',
    "documentation_options.js": "const DOCUMENTATION_OPTIONS = {};",
    "sphinx_highlight.js": f"const SphinxHighlight = '{HIDE_MATCHES}';",
    "searchtools.js": "const Search = {};",
    "scripts/theme.js": "theme();\n//# sourceMappingURL=theme.js.map",
    "scripts/fontawesome.js": "icons();",
    "vendor/fontawesome/f.woff2": "",
}


@pytest.fixture
def site(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "_static" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "start.html").write_text(PAGE.format(up="../"))
    (tmp_path / "index.html").write_text(PAGE.format(up=""))
    light_site.LightSite(tmp_path).lighten()
    return tmp_path


@pytest.mark.parametrize("name", ["index.html", "book/start.html"])
def test_a_page_asks_for_two_files(site, name):
    page = site / name
    text = page.read_text()
    styles = re.findall(r'<link rel="stylesheet" href="([^"]+)"', text)
    scripts = re.findall(r'<script defer src="([^"]+)"', text)
    assert len(styles) == 1
    assert [s.split("/")[-1].split("?")[0] for s in scripts[1:]] == [
        "searchindex.js",
        "searchtools.js",
    ]
    assert "<script src" not in text
    for address in styles + scripts[:1]:
        assert (page.parent / address).is_file()
    assert "fontawesome" not in text
    assert "preload" not in text
    assert text.count("viewport") == 1
    assert '<html data-page="book/start" lang="en">' in text
    assert 'data-attn-module="a">mount();' in text
    assert "dataset.mode" in text


def test_the_style_sheet_finds_its_files_and_has_no_icon_font(site):
    (path,) = (site / "_static").glob("site.*.css")
    text = path.read_text()
    assert text.index("p{color:red}") < text.index("images/a.svg")
    assert 'url("images/a.svg")' in text
    assert 'url("fonts/f.woff2")' in text
    assert 'url("data:image/svg")' in text
    assert "@import" not in text
    assert "font-face" not in text


def test_the_script_keeps_the_order_and_reads_the_pages_name(site):
    (path,) = (site / "_static").glob("site.*.js")
    text = path.read_text()
    options, name = "const DOCUMENTATION_OPTIONS", "dataset.page"
    assert text.index(options) < text.index(name) < text.index("theme();")
    assert "sourceMappingURL" not in text
    assert "javascript:" not in text
    assert "window.hideMatches = " in text
    assert "icons" not in text


def test_what_no_page_asks_for_is_gone(site):
    left = {p.name for p in (site / "_static").rglob("*") if p.is_file()}
    assert {re.sub(r"\.\w{12}\.", ".", name) for name in left} == {
        "searchtools.js",
        "site.css",
        "site.js",
    }
