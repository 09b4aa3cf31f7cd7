"""Small repairs of what Jupyter Book 1 does to our pages."""

import re
import shutil
from pathlib import Path
from typing import Any

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


def keep_each_module_once(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any
) -> None:
    """Drop the second and later copies of a figure's script on a page.

    Each output of a notebook carries its own, because it may stand alone. On a
    page the first copy brings all figures of its kind to life.
    """
    if "body" in context:
        context["body"] = without_repeated_modules(context["body"])


def without_repeated_modules(body: str) -> str:
    """Return a page's HTML with each figure module at its first place only."""
    seen: set[str] = set()

    def once(match: re.Match) -> str:
        is_new = match[1] not in seen
        seen.add(match[1])
        return match[0] if is_new else ""

    return re.sub(
        r'<script type="module" data-attn-module="(\w+)">.*?</script>',
        once,
        body,
        flags=re.DOTALL,
    )


def setup(app: Sphinx) -> dict:
    """Register the repairs with Sphinx."""
    app.connect("html-page-context", keep_each_module_once)
    app.connect("build-finished", hand_out_our_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
