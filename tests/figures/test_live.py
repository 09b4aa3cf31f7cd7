"""A figure's HTML stands alone, as Colab's frame for one output asks."""

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from attention_lab.figures import draw_heatmap, interactive
from attention_lab.figures.interactive import joined
from attention_lab.figures.live import LiveFigure

MODULES = sorted(
    path.stem
    for path in Path(interactive.__file__).parent.glob("*.js")
    if "\nexport default " in path.read_text(encoding="utf-8")
)
#: The name of a namespace, which nothing is fetched from.
NAMESPACE = "http://www.w3.org/2000/svg"
ADDRESSES = (
    "src", "srcset", "href", "xlink:href", "action", "data", "poster",
    "background", "ping", "formaction",
)  # fmt: skip
#: What asks another address, or looks beyond the frame's own document.
REACHING = re.compile(
    r"\b(?:window|self|globalThis)\s*\.\s*(?:parent|top|opener)\b"
    r"|\b(?:parent|top|opener)\s*\.\s*(?:document|postMessage|location|frames)"
    r"|\bframeElement\b|\bfetch\s*\(|\bXMLHttpRequest\b|\bWebSocket\b"
    r"|\bEventSource\b|\bsendBeacon\b|\bimportScripts\b"
    r"|\bimport\s*[(\"']|\bimport\b[^;\n]*\bfrom\b|\bnew\s+Worker\b"
    r"|\bdocument\s*\.\s*cookie\b|\blocation\s*\.|@import\b"
    r"|url\(\s*[\"']?(?!#|data:)|(?:https?:|wss?:)?//[\w-]+\.\w"
)
#: A frame of another origin throws when its storage is touched.
STORAGE = re.compile(r"\b(?:localStorage|sessionStorage|indexedDB)\b")


def needs(html):
    """Return what a figure's HTML needs beside itself."""
    soup = BeautifulSoup(html, "html.parser")
    found = [
        f"<{tag.name} {name}={tag[name]!r}>"
        for tag in soup.find_all(True)
        for name in ADDRESSES
        if not str(tag.get(name, "#")).startswith(("#", "data:"))
    ]
    found += [f"<{tag.name}>" for tag in soup(["link", "base", "iframe"])]
    for tag in soup(["script", "style"]):
        if tag.get("type") != "application/json":
            found += reaches(tag.string)
    for tag in soup.find_all(style=True):
        found += reaches(tag["style"])
    return found


def reaches(code):
    """Return the places where a script or style looks beyond its frame."""
    code = code.replace(NAMESPACE, "")
    unguarded = [
        use.group()
        for use in STORAGE.finditer(code)
        if code.rfind("try {", 0, use.start())
        <= code.rfind("catch", 0, use.start())
    ]
    return REACHING.findall(code) + unguarded


def html_of(module, **state):
    return LiveFigure(draw_heatmap([[1.0]]), state, module)._repr_html_()


@pytest.mark.parametrize("module", MODULES)
def test_one_output_is_all_that_a_figure_needs(module):
    html = html_of(module, schema="a test")
    assert html.count("<script") == 2
    code = joined(module).replace("export default", "const drawn =", 1)
    assert code.strip().splitlines()[-1] in html
    assert needs(html) == []


@pytest.mark.parametrize(
    "planted",
    [
        '<img src="picture.png">',
        '<a href="../index.html">more</a>',
        '<link rel="stylesheet">',
        "<script>fetch('/data.json')</script>",
        "<script>window.parent.length</script>",
        "<script>parent.postMessage(1, '*')</script>",
        "<script>import { h } from './base.js';</script>",
        "<script>const m = await import('./base.js')</script>",
        "<script>new WebSocket('wss://example.org')</script>",
        "<script>localStorage.getItem('a')</script>",
        "<script>try { f(); } catch {}\nlocalStorage.clear()</script>",
        "<style>@import 'x.css'</style>",
        '<p style="background:url(x.png)">x</p>',
        "<script>const at = '//cdn.example.org/x.js'</script>",
    ],
)
def test_a_planted_need_is_found(planted):
    assert needs(html_of("saturation") + planted) != []


def test_words_in_the_data_cannot_end_the_script():
    assert needs(html_of("saturation", a="</script><img src=x.png>")) == []
