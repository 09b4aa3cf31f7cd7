"""The way back in a real browser: what is special to it."""

import json
import re
from pathlib import Path

import pytest

from browser.pages import write_pages
from figures.live_figures import LIVE_FIGURES

pytestmark = pytest.mark.slow("starts a browser")

SCRIPT = Path(__file__).with_name("flash_theatre_backward.mjs")
CHECKS = re.findall(
    r'^  async "(.+?)"\(', SCRIPT.read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.fixture(scope="module")
def complaints(run_in_browser, tmp_path_factory):
    pages = tmp_path_factory.mktemp("pages")
    figure = LIVE_FIGURES["flash_theatre_backward"].make()
    write_pages("flash_theatre_backward", figure, {}, pages)
    recorded = pages / "state.json"
    recorded.write_text(json.dumps(figure.state), encoding="utf-8")
    return run_in_browser(SCRIPT.name, pages=str(pages), state=str(recorded))


@pytest.mark.parametrize("check", CHECKS)
def test_in_the_browser(complaints, check):
    assert complaints[check] == []


def test_every_check_was_run(complaints):
    assert sorted(complaints) == sorted(CHECKS)
    assert len(CHECKS) >= 3
