"""What every figure is that a reader can walk through: a picture, and more.

A `LiveFigure` is a `Picture` (the static layer, which teaches on its own) with
its data and one ES module. As HTML it is one self-contained `<figure>`: on a
page, in JupyterLab and in Colab's frame for one output the module replaces the
picture by the interactive figure; in print, without scripts, and wherever they
are removed, the picture stays. Nothing is fetched from anywhere.

Each output carries its module, because it may be alone in its frame. On a page
with several figures `book/_ext/bookfixes.py` keeps each module once; the first
that runs brings all figures of its kind to life, and further ones find nothing
left to do.

What Colab asks, and how it is met:

- Every output is alone in a frame of another origin. So the HTML names no
  address, neither relative nor absolute, and the module never looks beyond its
  own document (`tests/figures/test_live.py`). It works in a frame that may do
  nothing but run scripts (`tests/browser/every_figure.mjs`).
- Such a frame has no storage. A reader's guesses then last as long as the frame
  does (`interactive/base.js`).
- ipywidgets is 7.7. A figure is no widget; `explore` takes only what 7.7 and 8
  have alike, and puts the figure beside it for viewers without widgets.
- anywidget may be missing: only `live` needs it.
"""

import html
import json
from dataclasses import dataclass
from typing import Any

from attention_lab.figures.interactive import joined, module_hash
from attention_lab.figures.picture import (
    Picture,
    table_html,
    verdict_html,
)


@dataclass(frozen=True)
class LiveFigure:
    """A picture that a script can bring to life.

    Parameters
    ----------
    picture : the static layer, with title, finding, verdicts and table.
    state : the data as dictionaries, lists and numbers; no NaN, no infinity.
    name : which module of `figures/interactive` draws it.

    Raises
    ------
    ValueError
        If there is no such module, or the state is not JSON.
    """

    picture: Picture
    state: dict[str, Any]
    name: str

    def __post_init__(self) -> None:
        """Write the state once, so that a bad one shows at once."""
        _json(self.state)
        joined(self.name)

    @property
    def passed(self) -> bool:
        """Whether every verdict of the picture holds."""
        return self.picture.passed

    @property
    def module(self) -> str:
        """The ES module, `export default { render({ model, el }) }`."""
        return joined(self.name)

    def __repr__(self) -> str:
        return repr(self.picture)

    def _repr_html_(self) -> str:
        """Return the whole figure: picture, words, numbers, data, module."""
        picture, module = self.picture, self.module
        code = module_hash(module)
        title, alt = html.escape(picture.title), html.escape(picture.alt)
        verdicts = "".join(verdict_html(v) for v in picture.verdicts)
        script = module.replace("export default", "const drawn =", 1)
        return (
            f'<figure class="attn-figure" aria-label="{title}" '
            f'data-attn="{code}" '
            'style="margin:1em 0;text-align:left">'
            '<p class="attn-title" style="margin:0 0 .75em;font-weight:600">'
            f"{title}</p>"
            '<div class="attn-stage"></div>'
            f'<div class="attn-panels attn-static" role="group" '
            f'aria-label="{alt}" '
            'style="display:flex;flex-wrap:wrap;gap:20px 36px;'
            f'align-items:flex-start">{picture.drawn}</div>'
            '<figcaption class="attn-caption" style="margin:.9em 0 0;'
            'text-align:left;font-size:1em;color:inherit">'
            '<p class="attn-finding" style="margin:0 0 .5em">'
            f"{html.escape(picture.finding)}</p>"
            f'<div class="attn-static">{verdicts}</div>'
            f"{table_html(picture.table)}</figcaption>"
            '<script type="application/json" class="attn-state">'
            f"{_json(self.state)}</script></figure>"
            f'<script type="module" data-attn-module="{code}">\n'
            f'{script}mount(drawn, "{code}");\n</script>'
        )


def live(figure: LiveFigure) -> Any:
    """Return the figure as an anywidget, which redraws when its state changes.

    Only where a kernel runs and anywidget is installed; it is not needed for
    anything else. Set `widget.state` to new data to redraw.

    Raises
    ------
    ImportError
        If anywidget is missing; the figure itself works without it.
    """
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise ImportError(
            "live() needs anywidget (`pip install anywidget`); the figure "
            "itself works without it"
        ) from error

    class Live(anywidget.AnyWidget):
        """The module of a figure, with its data kept in step."""

        _esm = figure.module
        state = traitlets.Dict().tag(sync=True)

    return Live(state=figure.state)


def _json(state: dict[str, Any]) -> str:
    """Return the state for a script element, which `</` would end."""
    try:
        text = json.dumps(state, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"state cannot be written as JSON: {error}") from error
    return text.replace("<", "\\u003c")
