"""The figures' scripts, tested by node's own test runner."""

import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from attention_lab.figures import interactive
from attention_lab.figures.interactive import joined, stripped

HERE = Path(__file__).parent / "interactive"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(
    NODE is None, reason="the scripts' tests need node (18 or newer)"
)


@pytest.fixture
def environment(theatre, tmp_path):
    """Where the tests find the recorded runs."""
    recorded = tmp_path / "theatre.json"
    recorded.write_text(json.dumps(theatre), encoding="utf-8")
    return {**os.environ, "THEATRE": str(recorded)}


@needs_node
def test_the_scripts_pass_their_own_tests(environment):
    ran = subprocess.run(
        [NODE, "--test", "--test-reporter=tap", HERE / "theatre.test.mjs"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = re.search(r"^# pass (\d+)$", ran.stdout, flags=re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) >= 20


def test_all_scripts_together_are_light():
    files = sorted(Path(interactive.__file__).parent.glob("*.js"))
    text = "".join(stripped(file.read_text(encoding="utf-8")) for file in files)
    assert "export default" in text
    assert len(gzip.compress(text.encode())) <= 30_000


@needs_node
def test_the_joined_module_has_one_render_function(tmp_path):
    module = tmp_path / "figure.mjs"
    module.write_text(joined("flash_theatre"), encoding="utf-8")
    code = (
        f"const m = await import({json.dumps(module.as_uri())});"
        "if (Object.keys(m).join() !== 'default') throw Object.keys(m);"
        "if (typeof m.default.render !== 'function') throw 'no render';"
    )
    ran = subprocess.run(
        [NODE, "--input-type=module", "--eval", code],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
