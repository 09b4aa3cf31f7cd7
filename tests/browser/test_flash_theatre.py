"""The flash theatre in a real browser, on small pages made for it."""

import copy
import html
import json
import os
import re
from pathlib import Path

import pytest

from attention_lab.figures import draw_flash_theatre
from attention_lab.figures.live import LiveFigure
from attention_lab.steps.flash_theatre import record_theatre
from book_config import ROOT

pytestmark = pytest.mark.slow("starts a browser")

SCRIPT = Path(__file__).with_name("flash_theatre.mjs")
CHECKS = re.findall(
    r'^  async "(.+?)"\(', SCRIPT.read_text(encoding="utf-8"), re.MULTILINE
)
THEMES = {"light": ("#ffffff", "#323232"), "dark": ("#121212", "#ced6dd")}


def page(body: str, theme: str = "light") -> str:
    paper, ink = THEMES[theme]
    css = (ROOT / "book" / "_static" / "book.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html><html lang="en" data-theme="{theme}"><head>'
        '<meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width"><title>A figure</title><style>'
        f"body{{margin:8px auto;max-width:720px;background:{paper};"
        f"color:{ink};font-family:sans-serif}}{css}</style></head><body><main>"
        f'<h1>A figure</h1>{body}<button id="after">after</button></main>'
        "</body></html>"
    )


def spoil(state, change):
    spoilt = copy.deepcopy(state)
    change(spoilt)
    return spoilt


BAD = {
    "schema": (lambda s: s.update(schema="flash_theatre.v9"), "v9"),
    "empty": (lambda s: s.update(runs=[]), "no right run"),
    "text": (
        lambda s: s["runs"][0]["acc"][1].__setitem__(2, "much"),
        "what is not a number",
    ),
    "large": (lambda s: s["runs"][0].update(TILE_L=512), "TILE_L = 512"),
}


@pytest.fixture(scope="module")
def complaints(run_in_browser, tmp_path_factory):
    pages = tmp_path_factory.mktemp("pages")
    state = record_theatre()
    figure = draw_flash_theatre(state)
    shown = figure._repr_html_()
    scripts = re.compile(r'<script type="module".*?</script>', re.DOTALL)
    files = {
        "light.html": page(shown),
        "dark.html": page(shown, "dark"),
        "two.html": page(shown + shown),
        "two-once.html": page(shown + scripts.sub("", shown)),
        "frame.html": page(
            '<iframe title="An output" sandbox="allow-scripts" width="700" '
            f'height="900" srcdoc="{html.escape(page(shown))}"></iframe>'
        ),
    }
    bad = {"nan.html": "cannot be read"}
    files["nan.html"] = page(shown.replace('"D":8', '"D":NaN', 1))
    for name, (change, says) in BAD.items():
        spoilt = LiveFigure(figure.picture, spoil(state, change), figure.name)
        files[f"{name}.html"] = page(spoilt._repr_html_())
        bad[f"{name}.html"] = says
    for name, text in files.items():
        (pages / name).write_text(text, encoding="utf-8")
    recorded = pages / "state.json"
    recorded.write_text(json.dumps(state), encoding="utf-8")
    return run_in_browser(
        SCRIPT.name, pages=str(pages), state=str(recorded), bad=bad
    )


@pytest.mark.parametrize("check", CHECKS)
def test_in_the_browser(complaints, check):
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    if "100 ms" in check and complaints[check] and busy > 0.75:
        pytest.skip(
            f"the machine is busy (load {busy:.1f} per core), so its speed "
            f"says little: {complaints[check][0]}"
        )
    assert complaints[check] == []


def test_every_check_was_run(complaints):
    assert sorted(complaints) == sorted(CHECKS)
    assert len(CHECKS) >= 15
