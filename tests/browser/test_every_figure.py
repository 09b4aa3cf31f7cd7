"""Every interactive figure in a real browser: what all must do alike."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from browser.pages import write_pages
from figures.live_figures import LIVE_FIGURES

pytestmark = pytest.mark.slow("starts a browser")

SCRIPT = Path(__file__).with_name("every_figure.mjs")
CHECKS = re.findall(
    r'^  async "(.+?)"\(', SCRIPT.read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.fixture(scope="module")
def complaints(run_in_browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    figures = {
        name: write_pages(name, example.make(), example.bad, folder)
        for name, example in LIVE_FIGURES.items()
    }

    def run(names, is_speed):
        return run_in_browser(
            SCRIPT.name,
            pages=str(folder),
            figures={name: figures[name] for name in names},
            isSpeed=is_speed,
        )

    names = list(figures)
    found = run(names, True)
    with ThreadPoolExecutor(2) as pool:
        for half in pool.map(run, (names[::2], names[1::2]), (False, False)):
            found |= half
    return found


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", LIVE_FIGURES)
def test_in_the_browser(complaints, name, check):
    found = complaints[f"{name}: {check}"]
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    if "100 ms" in check and found and busy > 0.75:
        pytest.skip(
            f"the machine is busy (load {busy:.1f} per core), so its speed "
            f"says little: {found[0]}"
        )
    assert found == []


def test_every_check_was_run(complaints):
    assert len(CHECKS) >= 15
    assert len(complaints) == len(CHECKS) * len(LIVE_FIGURES)


def test_every_module_has_an_example():
    from attention_lab.figures import interactive

    files = Path(interactive.__file__).parent.glob("*.js")
    modules = {
        file.stem
        for file in files
        if "\nexport default " in file.read_text(encoding="utf-8")
    }
    assert modules == {e.make().name for e in LIVE_FIGURES.values()}
