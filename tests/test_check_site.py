"""tools/check_site.py passes a good site and reports each planted fault."""

import re
import shutil

import numpy as np
import pytest

import check_site
import mini_book
import notebooks

PAGE = """\
<html><head><link rel="stylesheet" href="../_static/book.css"></head><body>
<a href="{colab}">Colab</a> <a href="../_sources/book/start.ipynb">.ipynb</a>
<h2 id="here">Here</h2> <a href="#here">here</a> <a href="start.html#here">x</a>
<script>const shape = "http://www.w3.org/2000/svg";</script>
<img src="../_static/cat.png" alt="A cat">
<svg role="img"><title>A dog</title></svg>
<figure aria-label="Two panels"><svg></svg><svg></svg></figure>
<script type="application/json" class="attn-state">{{"runs":[1]}}</script>
</body></html>
"""


@pytest.fixture
def book(tmp_path, monkeypatch):
    """Make a tiny checkout whose site has nothing wrong with it."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)  # set while a hook runs
    book = mini_book.make(
        tmp_path / "book", start=mini_book.page("# A\n" + mini_book.cell("1"))
    )
    notebooks.main([], book)
    mini_book.track(book.root, "book/start.ipynb")
    html = book.root / "_build" / "html"
    for folder in ("book", "_static", "_sources/book"):
        (html / folder).mkdir(parents=True)
    (html / "_static" / "book.css").write_text("a { color: red }")
    (html / "_static" / "cat.png").touch()
    shutil.copy(book.root / "book" / "start.ipynb", html / "_sources" / "book")
    (html / "book" / "start.html").write_text(
        PAGE.format(colab=book.colab("book/start"))
    )
    return book


def change(book, old, new, name="_build/html/book/start.html"):
    """Replace text in a file of the site."""
    path = book.root / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_good_site_passes_with_one_line_per_check(book, capsys):
    assert check_site.main(book=book) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(check_site.CHECKS)
    for line in lines:
        assert re.fullmatch(r"✓ [^:]+: [1-9]\d* checked, 0 wrong", line)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("start.html#here", "gone.html", "gone.html leads nowhere"),
        ("start.html#here", "../../../x", "../../../x leads nowhere"),
        ("start.html#here", "start.html#no", "start.html#no has no such place"),
        ('href="#here"', 'href="#no"', "#no has no such place"),
        ("cat.png", "dog.png", "dog.png leads nowhere"),
        ("/blob/main/", "/blob/old/", "is not below"),
        ("start.ipynb", "start.md", "start.md is not a notebook"),
        ("start.ipynb", "other.ipynb", "does not track book/other.ipynb"),
        ("../_sources", "../_static", "is not in _sources"),
        ('<a href="../_sources', '<a title="', "only 0 offer it"),
        ("https://colab", "https://callab", "only 0 offer it"),
        ("<h2", '<script src="https://cdn.x/a.js"></script><h2', "<script> "),
        ("<h2", '<script src="//cdn.x/a.js"></script><h2', "asks //cdn.x"),
        ("<h2", '<script>import("https://a.x/b")</script><h2', "inline script"),
        ("<h2", '<img alt="x" src="https://a.x/b.png"><h2', "<img> asks"),
        (
            "<h2",
            '<img alt="x" src="../_static/cat.png" '
            'srcset="c.png 1x, https://a.x/b.png 2x"><h2',
            "<img> asks https://a.x/b.png",
        ),
        ("../_static/book.css", "https://a.x/b.css", "<link> asks"),
        ("<h2", '<iframe src="https://a.x/"></iframe><h2', "<iframe> asks"),
        ("<h2", "<style>@import 'https://a.x/b';</style><h2", "a style asks"),
        ("<h2", '<p style="background:url(//a.x)"></p><h2', "a style asks"),
        ('alt="A cat"', "", "has alt=''"),
        ('alt="A cat"', 'alt=" "', "has alt=''"),
        ('alt="A cat"', 'alt="../cat.png"', "has alt='../cat.png'"),
        ('<svg role="img">', "<svg>", "has neither"),
        ("<title>A dog</title>", "", "has neither"),
        ('aria-label="Two panels"', "", "has neither"),
    ],
)
def test_planted_fault_is_reported(book, capsys, old, new, complaint):
    change(book, old, new)
    assert check_site.main(book=book) == 1
    assert complaint in capsys.readouterr().out


def test_font_from_another_host_is_reported(book, capsys):
    change(
        book,
        "a { color: red }",
        '@font-face { src: url("https://a.x/font.woff2") }',
        "_build/html/_static/book.css",
    )
    assert check_site.main(book=book) == 1
    assert "a style asks https://a.x/font.woff2" in capsys.readouterr().out


def test_page_with_too_much_figure_data_is_reported(book, capsys):
    noise = np.random.default_rng(0).integers(0, 10**9, 40_000).tolist()
    change(book, "[1]", str(noise))
    assert check_site.main(book=book) == 1
    out = capsys.readouterr().out
    assert re.search(r"book/start.html: \d{6} bytes of recordings", out)


def test_heavy_page_is_reported(book, capsys):
    picture = book.root / "_build" / "html" / "_static" / "cat.png"
    picture.write_bytes(bytes(400_000))  # a server does not pack it again
    assert check_site.main(book=book) == 1
    out = capsys.readouterr().out
    assert re.search(r"book/start.html: 40\d{4} bytes gzipped", out)


def test_page_with_many_files_is_reported(book, capsys):
    static = book.root / "_build" / "html" / "_static"
    tags = ""
    for number in range(20):
        (static / f"{number}.js").touch()
        tags += f'<script src="../_static/{number}.js"></script>'
    change(book, "<h2", tags + "<h2")
    assert check_site.main(book=book) == 1
    assert "book/start.html: 23 requests" in capsys.readouterr().out


def test_untracked_notebook_is_reported(book, capsys):
    mini_book.git(book.root, "rm", "--cached", "--quiet", "book/start.ipynb")
    assert check_site.main(book=book) == 1
    out = capsys.readouterr().out
    assert out.count("git does not track book/start.ipynb") == 2


def test_another_notebook_than_ours_is_reported(book, capsys):
    change(book, "A", "B", "_build/html/_sources/book/start.ipynb")
    assert check_site.main(book=book) == 1
    assert "is not our book/start.ipynb" in capsys.readouterr().out


def test_missing_page_is_reported(book, capsys):
    (book.root / "_build" / "html" / "book" / "start.html").unlink()
    assert check_site.main(book=book) == 1
    assert "book/start.html was not built" in capsys.readouterr().out


def test_missing_site_is_reported(book, capsys):
    shutil.rmtree(book.root / "_build")
    assert check_site.main(book=book) == 1
    assert "run `make book`" in capsys.readouterr().err


def test_folder_without_git_is_refused(book):
    shutil.rmtree(book.root / ".git")
    with pytest.raises(SystemExit, match="needs a git checkout"):
        check_site.main(book=book)
