"""Small pages with one figure each, for the checks in a browser."""

import copy
import html
import re
from pathlib import Path

from attention_lab.figures.live import LiveFigure
from book_config import ROOT

THEMES = {"light": ("#ffffff", "#323232"), "dark": ("#121212", "#ced6dd")}
FONTS = re.compile(r"@font-face\s*\{[^}]*\}")  # no figure needs the formulas'
SCRIPTS = re.compile(r'<script type="module".*?</script>', re.DOTALL)


def page(body: str, theme: str = "light") -> str:
    paper, ink = THEMES[theme]
    css = (ROOT / "book" / "_static" / "book.css").read_text(encoding="utf-8")
    css = FONTS.sub("", css)
    return (
        f'<!doctype html><html lang="en" data-theme="{theme}"><head>'
        '<meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width"><title>A figure</title><style>'
        f"body{{margin:8px auto;max-width:720px;background:{paper};"
        f"color:{ink};font-family:sans-serif}}{css}</style></head><body><main>"
        f'<h1>A figure</h1>{body}<button id="after">after</button></main>'
        "</body></html>"
    )


def write_pages(name: str, figure: LiveFigure, bad, folder: Path) -> dict:
    """Write the pages of a figure; return {page with bad data: its words}."""
    shown = figure._repr_html_()
    files = {
        "light": page(shown),
        "dark": page(shown, "dark"),
        "two": page(shown + shown),
        "once": page(shown + SCRIPTS.sub("", shown)),
        "frame": page(
            '<iframe title="An output" sandbox="allow-scripts" width="700" '
            f'height="900" srcdoc="{html.escape(page(shown))}"></iframe>'
        ),
        "nan": page(
            shown.replace('class="attn-state">{', 'class="attn-state">{NaN:')
        ),
    }
    words = {f"{name}-nan.html": "cannot be read"}
    for fault, (spoil, says) in bad.items():
        state = copy.deepcopy(figure.state)
        spoil(state)
        spoilt = LiveFigure(figure.picture, state, figure.name)
        files[fault] = page(spoilt._repr_html_())
        words[f"{name}-{fault}.html"] = says
    for kind, text in files.items():
        path = folder / f"{name}-{kind}.html"
        path.write_text(text, encoding="utf-8")
    return words
