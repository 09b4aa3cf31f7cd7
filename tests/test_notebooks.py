"""The committed notebooks are what the chapters say, in plain Markdown."""

import importlib.machinery
import json
import re
import sys

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

import mini_book
import notebooks
from book_config import Book
from plain_markdown import NotPlainError

BOOK = Book()
CHAPTERS = BOOK.chapters()
NAMES = [path.stem for path in CHAPTERS]

#: What Colab would print as raw text. Written here on purpose without a look
#: at the converter, so that the two can disagree.
RAW_MYST = {
    "a directive": r"^\s*(?:>\s*)*(?:`{3,}|~{3,}|:{3,})\s*\{",
    "a colon fence": r"^\s*(?:>\s*)*:{3,}",
    "a role": r"\{[a-z][\w:+-]*\}`",
    "a label": r"^\([\w:.-]+\)=",
    "an equation's label": r"\$\$[ \t]*\([\w:.-]+\)",
    "a comment": r"^%(?: |$)",
    "a footnote": r"\[\^[\w-]+\]",
}
NEIGHBOUR = (
    r"\]\((?![A-Za-z][A-Za-z0-9+.-]*:)[^)]*\)"
    r"|<(?:img|a)\b[^>]*\b(?:src|href)=\"(?!https?:)"
)


def raw_myst(text):
    """Return what of a Markdown cell Colab would not render."""
    text = re.sub(r"^```(?!\{).*?^```", "", text, flags=re.M | re.S)
    return [
        kind
        for kind, pattern in RAW_MYST.items()
        if re.search(pattern, text, flags=re.MULTILINE)
    ]


def read(path):
    return nbformat.read(path.with_suffix(".ipynb"), as_version=4)


def prose(notebook):
    return [
        cell.source for cell in notebook.cells if cell.cell_type == "markdown"
    ]


def test_every_page_of_the_contents_is_there():
    missing = [
        page for page in BOOK.pages() if not (BOOK.root / f"{page}.md").exists()
    ]
    assert missing == []


def test_every_chapter_has_a_notebook():
    assert CHAPTERS, "no page of the book runs any code"
    missing = [
        path.stem
        for path in CHAPTERS
        if not path.with_suffix(".ipynb").exists()
    ]
    assert missing == []


def test_notebooks_are_in_sync_with_the_chapters():
    assert [path.name for path in notebooks.stale(BOOK)] == []


@pytest.mark.parametrize("path", CHAPTERS, ids=NAMES)
def test_first_cell_installs_the_package_where_it_is_missing(path):
    first, second = read(path).cells[:2]
    assert first.cell_type == "code"
    assert first.source == notebooks.setup_cell(BOOK)
    assert second.cell_type == "markdown"
    page = path.relative_to(BOOK.root).with_suffix("").as_posix()
    assert BOOK.colab(page) in second.source
    assert f"{BOOK.site}{page}.html" in second.source


@pytest.mark.parametrize("path", CHAPTERS, ids=NAMES)
def test_prose_is_plain_markdown_with_absolute_addresses(path):
    for text in prose(read(path)):
        assert raw_myst(text) == [], text
        assert re.findall(NEIGHBOUR, text) == [], text


@pytest.mark.parametrize("path", CHAPTERS, ids=NAMES)
def test_no_outputs_are_committed(path):
    for cell in read(path).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


def test_two_runs_give_the_same_bytes(tmp_path):
    texts = [
        notebooks.build(book.root / "book" / "start.md", book)
        for folder in ("one", "two")
        for book in [
            mini_book.make(
                tmp_path / folder,
                start=mini_book.page("# A\n\n" + mini_book.cell("x = 1")),
            )
        ]
    ]
    assert texts[0] == texts[1]
    data = json.loads(texts[0])
    ids = [cell["id"] for cell in data["cells"]]
    assert len(set(ids)) == len(ids) == 4
    assert texts[0] == (
        json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    )


def test_stale_missing_and_orphaned_notebooks_are_reported(tmp_path, capsys):
    book = mini_book.make(
        tmp_path / "book",
        start=mini_book.page("# A\n\n" + mini_book.cell("x = 1")),
    )
    folder = book.root / "book"
    assert notebooks.main(["--check"], book) == 1  # missing
    assert notebooks.main([], book) == 0
    assert notebooks.main(["--check"], book) == 0
    capsys.readouterr()

    chapter = folder / "start.md"
    chapter.write_text(
        chapter.read_text(encoding="utf-8").replace("x = 1", "x = 2"),
        encoding="utf-8",
    )
    assert notebooks.main(["--check"], book) == 1
    assert "book/start.ipynb is stale" in capsys.readouterr().err

    assert notebooks.main([], book) == 0
    (folder / "gone.ipynb").write_text("{}", encoding="utf-8")
    assert notebooks.main(["--check"], book) == 1
    assert "book/gone.ipynb is stale" in capsys.readouterr().err
    assert notebooks.main([], book) == 0
    assert not (folder / "gone.ipynb").exists()


def test_tags_fold_code_and_a_page_can_ask_for_a_gpu(tmp_path):
    book = mini_book.make(
        tmp_path / "book",
        start=mini_book.page(
            "# A\n\n" + mini_book.cell("x = 1", "hide-input"), "gpu: true\n"
        ),
        plain=mini_book.page("# B\n\n" + mini_book.cell("x = 1")),
    )
    notebooks.main([], book)
    start, plain = (
        read(book.root / "book" / f"{name}.md") for name in ("start", "plain")
    )
    assert start.metadata.accelerator == "GPU"
    assert start.metadata.colab.gpuType == "T4"
    assert start.cells[-1].metadata.cellView == "form"
    assert "accelerator" not in plain.metadata
    assert "cellView" not in plain.cells[-1].metadata


MYST = """\
# Title

(here)=
% a comment
See {doc}`the key <key>`, {ref}`that place <here>`, {eq}`sum`, {math}`x_i`,
[a page](key.md#rows), [](key.md), [the code](../code.py) and `{doc}`.

$$
a[0](b) = c
$$ (sum)

:::{note}
Read {doc}`key`.

```python
label = "{doc}`x`"
```
:::

````{admonition} Predict first
![A cat](cat.png)
````
"""


def test_myst_becomes_plain_markdown(tmp_path):
    book = mini_book.make(
        tmp_path / "book", start=mini_book.page(MYST), key="# The key\n"
    )
    for name in ("code.py", "book/cat.png"):
        (book.root / name).touch()
    notebooks.main([], book)
    text = "\n".join(prose(read(book.root / "book" / "start.md"))[1:])
    key = f"{book.site}book/key.html"
    start = f"{book.site}book/start.html"
    assert (
        text
        == f"""\
# Title

See [the key]({key}), [that place]({start}#here), \
[this equation]({start}#equation-sum), $x_i$,
[a page]({key}#rows), [The key]({key}), \
[the code]({book.repository}/blob/main/code.py) and `{{doc}}`.

$$
a[0](b) = c
$$

> **Note**
>
> Read [The key]({key}).
>
> ```python
> label = "{{doc}}`x`"
> ```

> **Predict first**
>
> ![A cat]({book.raw("book/cat.png")})"""
    )


@pytest.mark.parametrize(
    "body",
    [
        "```{glue} x\n```\n",
        "Read {cite}`vaswani`.\n",
        "See {ref}`nowhere`.\n",
        "See {ref}`text <nowhere>`.\n",
        "[gone](gone.md)\n",
        "![gone](gone.png)\n",
    ],
)
def test_what_has_no_plain_form_is_refused(tmp_path, capsys, body):
    book = mini_book.make(tmp_path / "book", start=mini_book.page(body))
    with pytest.raises(NotPlainError, match=r"book/start\.md"):
        notebooks.stale(book)
    assert notebooks.main(["--check"], book) == 1
    assert "no plain Markdown form" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("```{note}\nx\n```", "a directive"),
        ("> :::{note}", "a colon fence"),
        ("see {doc}`x`", "a role"),
        ("(here)=", "a label"),
        ("$$x$$ (eq)", "an equation's label"),
        ("% remark", "a comment"),
        ("so[^1]", "a footnote"),
    ],
)
def test_left_over_myst_would_be_seen(text, kind):
    assert kind in raw_myst(text)


def run_setup(monkeypatch, found):
    """Run the setup cell where only `found` exists; return its pip lines."""
    ran = []

    class Shell:
        def run_line_magic(self, name, line):
            ran.append((name, line))

    def find_spec(name):
        present = name in found
        return importlib.machinery.ModuleSpec(name, None) if present else None

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    code = TransformerManager().transform_cell(notebooks.setup_cell(BOOK))
    exec(  # our own cell, as IPython would run it
        compile(code, "setup", "exec"),
        {"get_ipython": Shell, "__name__": "__main__"},
    )
    return ran


def test_setup_does_nothing_where_the_package_is(monkeypatch):
    assert run_setup(monkeypatch, {"attention_lab"}) == []


def test_setup_fetches_only_what_colab_lacks(monkeypatch):
    ran = run_setup(monkeypatch, {"einops", "beartype"})
    assert [name for name, _ in ran] == ["pip"]
    assert ran[0][1].split()[:3] == ["install", "-q", "--no-deps"]
    assert BOOK.pin("jaxtyping") in ran[0][1]
    assert BOOK.pin("wadler-lindig") in ran[0][1]

    more = run_setup(monkeypatch, {"beartype"})
    assert more[0] == ran[0]
    assert BOOK.pin("einops") in more[1][1]
    assert "--no-deps" in more[1][1]
    forbidden = r"numpy|torch|numba|cuda|nvidia|-U|--upgrade"
    for _, line in ran + more:
        assert re.search(forbidden, line) is None, line


def test_setup_says_what_to_do_when_the_package_stays_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "attention_lab", None)
    with pytest.raises(ImportError, match="still missing"):
        run_setup(monkeypatch, {"einops", "beartype"})
