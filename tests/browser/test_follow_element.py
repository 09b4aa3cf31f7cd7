"""Follow the element in a real browser: what only this figure does."""

import copy
import json
import re
from pathlib import Path

import pytest

from attention_lab.figures.live import LiveFigure
from browser.pages import page
from figures.live_figures import LIVE_FIGURES

pytestmark = pytest.mark.slow("starts a browser")

SCRIPT = Path(__file__).with_name("follow_element.mjs")
CHECKS = re.findall(
    r'^  async "(.+?)"\(', SCRIPT.read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.fixture(scope="module")
def complaints(run_in_browser, tmp_path_factory):
    pages = tmp_path_factory.mktemp("pages")
    figure = LIVE_FIGURES["follow_element"].make()
    spoilt = copy.deepcopy(figure.state)
    spoilt["chains"][0]["steps"][2]["kinds"][12] += " attn-off"
    wrong = LiveFigure(figure.picture, spoilt, figure.name)
    for name, shown in {"light": figure, "spoilt": wrong}.items():
        text = page(shown._repr_html_())
        (pages / f"{name}.html").write_text(text, encoding="utf-8")
    state = pages / "state.json"
    state.write_text(json.dumps(figure.state), encoding="utf-8")
    return run_in_browser(SCRIPT.name, pages=str(pages), state=str(state))


@pytest.mark.parametrize("check", CHECKS)
def test_in_the_browser(complaints, check):
    assert complaints[check] == []


def test_every_check_was_run(complaints):
    assert sorted(complaints) == sorted(CHECKS)
    assert len(CHECKS) >= 4
