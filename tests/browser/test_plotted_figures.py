"""The ledger and the saturation figure in a browser: what only they do."""

import json
import re
from pathlib import Path

import pytest

from browser.pages import page
from figures.live_figures import LIVE_FIGURES

pytestmark = pytest.mark.slow("starts a browser")

SCRIPT = Path(__file__).with_name("plotted_figures.mjs")
CHECKS = re.findall(
    r'^  async "(.+?)"\(', SCRIPT.read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.fixture(scope="module")
def complaints(run_in_browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name in ("ledger", "saturation"):
        figure = LIVE_FIGURES[name].make()
        state = json.dumps(figure.state)
        (folder / f"{name}.json").write_text(state, encoding="utf-8")
        (folder / f"{name}-light.html").write_text(
            page(figure._repr_html_()), encoding="utf-8"
        )
    return run_in_browser(SCRIPT.name, pages=str(folder))


@pytest.mark.parametrize("check", CHECKS)
def test_in_the_browser(complaints, check):
    assert complaints[check] == []


def test_every_check_was_run(complaints):
    assert sorted(complaints) == sorted(CHECKS)
    assert len(CHECKS) == 4
