"""Small repairs of what Jupyter Book 1 does to our pages."""

import shutil
from pathlib import Path

from sphinx.application import Sphinx


def hand_out_our_notebooks(app: Sphinx, exception: Exception | None) -> None:
    """Let the download button give the committed notebook.

    The theme offers its own executed copy, whose text is raw MyST. Colab, the
    repository and the download should all be the same file.
    """
    if exception or app.builder.format != "html":
        return
    sources = Path(app.outdir, "_sources")
    for offered in sorted(sources.rglob("*.ipynb")):
        ours = Path(app.srcdir, offered.relative_to(sources))
        if ours.exists():
            shutil.copyfile(ours, offered)


def setup(app: Sphinx) -> dict:
    """Register the repairs with Sphinx."""
    app.connect("build-finished", hand_out_our_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
