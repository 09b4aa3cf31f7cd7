"""Where the browser is, and how its tests are started.

They need node, Debian's chromium, and the two packages that package.json pins
(`make browser`, or `npm ci`); where one is missing the tests are skipped and
say which. ATTENTION_LAB_NODE_MODULES and CHROME_PATH name other places.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from book_config import ROOT

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def modules() -> Path:
    return Path(
        os.environ.get("ATTENTION_LAB_NODE_MODULES", ROOT / "node_modules")
    )


def chromium() -> str | None:
    found = (shutil.which(name) for name in BROWSERS)
    return os.environ.get("CHROME_PATH") or next(filter(None, found), None)


def missing() -> str | None:
    """Say what the browser tests lack here, or None."""
    if shutil.which("node") is None:
        return "the browser tests need node (20 or newer)"
    if chromium() is None:
        return f"the browser tests need one of {', '.join(BROWSERS)}"
    for package in ("playwright-core", "axe-core"):
        if not (modules() / package).is_dir():
            return f"the browser tests need {package}: run `make browser`"
    return None


@pytest.fixture(scope="session")
def run_in_browser():
    """Start one of the scripts; returns {check: [complaints]}."""
    reason = missing()
    if reason:
        pytest.skip(reason)

    def run(script: str, **settings) -> dict[str, list[str]]:
        settings |= {"modules": str(modules()), "chromium": chromium()}
        ran = subprocess.run(
            ["node", HERE / script],
            env={**os.environ, "BROWSER_TEST": json.dumps(settings)},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        print(ran.stderr)
        return json.loads(ran.stdout)

    return run
