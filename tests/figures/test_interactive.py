"""The figures' scripts, tested by node's own test runner."""

import gzip
import json
import subprocess
from pathlib import Path

from attention_lab.figures import interactive
from attention_lab.figures.interactive import joined, stripped
from figures.scripts import NODE, needs_node, passed_tests


@needs_node
def test_the_scripts_pass_their_own_tests(theatre, tmp_path):
    assert passed_tests("theatre", theatre, tmp_path) >= 20


@needs_node
def test_the_backward_script_passes_its_own_tests(theatre_backward, tmp_path):
    found = passed_tests("theatre_backward", theatre_backward, tmp_path)
    assert found >= 10


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
