"""Figures in notebooks: as nbclient leaves them, and in JupyterLab."""

import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbclient import NotebookClient

from browser.pages import page

pytestmark = pytest.mark.slow("executes a notebook and starts a browser")

HERE = Path(__file__).parent
JUPYTER = os.environ.get("ATTENTION_LAB_JUPYTERLAB")
CELLS = (
    """
from attention_lab import figures
from attention_lab.steps.flash_theatre import Setting, record_theatre
""",
    "figures.draw_flash_theatre(record_theatre())",
    """
def run_again(L):
    setting = Setting("your run", L, L)
    return figures.draw_flash_theatre(record_theatre((setting,)))
""",
    "figures.explore(run_again, L=[16, 14])",
)


@pytest.fixture(scope="module")
def notebook():
    cells = [nbformat.v4.new_code_cell(cell.strip()) for cell in CELLS]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "py"}
    return nbformat.v4.new_notebook(
        cells=cells, metadata={"kernelspec": kernel}
    )


@pytest.fixture(scope="module")
def outputs(notebook):
    """The two figures as a viewer without a kernel takes them."""
    executed = NotebookClient(notebook, timeout=120).execute()
    shown = [
        output["data"]
        for cell in executed.cells
        for output in cell["outputs"]
        if "data" in output
    ]
    assert "application/vnd.jupyter.widget-view+json" in shown[1]
    return [data["text/html"] for data in shown]


def test_an_executed_notebook_shows_live_figures(
    run_in_browser, outputs, tmp_path
):
    path = tmp_path / "notebook.html"
    path.write_text(page("".join(outputs)), encoding="utf-8")
    complaints = run_in_browser(
        "site.mjs", site=[path.as_uri()], isNotebook=True
    )
    assert complaints == {"notebook.html: alive, silent, alone, accessible": []}


def test_a_viewer_that_removes_scripts_shows_the_picture(outputs):
    for output in outputs:
        soup = BeautifulSoup(output, "html.parser")
        for removed in soup.select("script, style"):
            removed.decompose()
        assert soup.select("figure .attn-static svg")
        assert "✓" in soup.select_one(".attn-caption").get_text()
        assert soup.select_one("details table")
        assert soup.select_one(".attn-stage").get_text() == ""


@pytest.mark.skipif(
    not JUPYTER,
    reason="needs JupyterLab 4: make test-browser JUPYTERLAB=…/bin/jupyter-lab",
)
def test_in_jupyterlab(run_in_browser, notebook, tmp_path):
    # JupyterLab's own "python3" may be another environment.
    kernel = {"name": "attention", "display_name": "Attention"}
    own = nbformat.v4.new_notebook(
        cells=notebook.cells, metadata={"kernelspec": kernel}
    )
    nbformat.write(own, tmp_path / "figure.ipynb")
    spec = tmp_path / "data" / "kernels" / "attention"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        f'{{"argv": ["{sys.executable}", "-m", "ipykernel_launcher", "-f", '
        '"{connection_file}"], "display_name": "Attention", '
        '"language": "python"}',
        encoding="utf-8",
    )
    settings = tmp_path / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    # Else a dialog may ask which kernel, and no cell runs until it is answered.
    (settings / "tracker.jupyterlab-settings").write_text(
        '{"autoStartDefaultKernel": true}', encoding="utf-8"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    server = subprocess.Popen(
        [
            JUPYTER,
            "--no-browser",
            "--allow-root",
            f"--port={port}",
            f"--IdentityProvider.token={token}",
            f"--ServerApp.root_dir={tmp_path}",
        ],
        env={
            **os.environ,
            "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
            "JUPYTER_DATA_DIR": str(tmp_path / "data"),
            "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}/lab/tree/figure.ipynb?token={token}"
        wait_for(f"http://127.0.0.1:{port}/api")
        complaints = run_in_browser("jupyterlab.mjs", address=address)
    finally:
        server.terminate()
        server.wait()
    assert {name: said for name, said in complaints.items() if said} == {}
    assert len(complaints) == len(
        re.findall(r'async "', (HERE / "jupyterlab.mjs").read_text())
    )


def wait_for(address, seconds=60):
    until = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(address):
                return
        except OSError:
            assert time.monotonic() < until, f"{address} does not answer"
            time.sleep(0.3)
