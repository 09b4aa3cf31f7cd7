"""Controls of a live kernel, and what stands in for them on a page.

In Colab, JupyterLab and VS Code the reader changes a choice and the real step
or kernel runs again. A page has no kernel, so it shows the twin: a figure of
runs that were recorded when the page was made.
"""

import html
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attention_lab.figures.live import LiveFigure
from attention_lab.figures.picture import Picture

#: Set where pages are made, so that they hold no control without a kernel.
STATIC = "ATTENTION_LAB_STATIC"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

Drawn = Picture | LiveFigure


@dataclass(frozen=True)
class Refused:
    """What stands in a figure's place where a run refuses its choices."""

    sentence: str

    def __repr__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        said = html.escape(self.sentence)
        return f'<p role="alert"><b>These do not fit.</b> {said}</p>'


@dataclass(frozen=True)
class Explorer:
    """A figure that runs again when a choice changes; see `explore`."""

    run: Callable[..., Drawn]
    choices: Mapping[str, Sequence[Any]]
    twin: Drawn
    _kept: list[Any] = field(default_factory=list, repr=False)

    def drawn(self, **chosen: Any) -> Drawn | Refused:
        """Run with these choices; return the figure, or what refused them."""
        try:
            return self.run(**chosen)
        except ValueError as error:
            return Refused(str(error))

    def controls(self) -> Any:
        """Return the choices and what they show, as one ipywidgets box.

        Works with ipywidgets 7.7 and 8. Where choices do not fit each other,
        the run's ValueError is shown as a sentence in the figure's place; any
        other error is a fault of the run, and is shown whole.

        Raises
        ------
        ImportError
            If ipywidgets is missing.
        """
        import ipywidgets as widgets
        from IPython.display import display

        dropdowns = {
            name: widgets.Dropdown(
                options=[(str(option), option) for option in options],
                description=name,
                style={"description_width": "initial"},
            )
            for name, options in self.choices.items()
        }
        shown = widgets.interactive_output(
            lambda **chosen: display(self.drawn(**chosen)), dropdowns
        )
        row = widgets.HBox(
            list(dropdowns.values()),
            layout=widgets.Layout(flex_flow="row wrap"),
        )
        return widgets.VBox([row, shown])

    def __repr__(self) -> str:
        return repr(self.twin)

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> dict[str, Any]:
        """Return the controls for a live front end, the twin for all others.

        A saved notebook keeps both; a viewer without a kernel knows no
        controls and takes the twin.
        """
        bundle: dict[str, Any] = {
            "text/plain": repr(self.twin),
            "text/html": self.twin._repr_html_(),
        }
        if os.environ.get(STATIC):
            return bundle
        try:
            box = self.controls()
        except ImportError:
            bundle["text/html"] = (
                "<p>To change this run, install ipywidgets: "
                "<code>pip install ipywidgets</code>.</p>"
            ) + bundle["text/html"]
            return bundle
        self._kept.append(box)  # what is not kept stops answering
        bundle[WIDGET_VIEW] = {
            "version_major": 2,
            "version_minor": 0,
            "model_id": box.model_id,
        }
        return bundle


def explore(
    run: Callable[..., Drawn],
    *,
    twin: Drawn | None = None,
    **choices: Sequence[Any],
) -> Explorer:
    """Let a reader change what a figure is drawn from, and run it again.

    Parameters
    ----------
    run : takes one keyword argument per choice, runs the real step or kernel
        and returns the figure of that run.
    twin : what a page without a kernel shows. None draws the run of the first
        option of every choice.
    choices : for each argument of `run` the options, the first shown first.

    Raises
    ------
    ValueError
        If there is no choice, or one has no option; names it.
    TypeError
        If an option's run gives something that is not a figure.

    Examples
    --------
    >>> explore(lambda: None)
    Traceback (most recent call last):
    ValueError: explore needs at least one choice, such as h=[1, 2, 4]
    """
    if not choices:
        raise ValueError(
            "explore needs at least one choice, such as h=[1, 2, 4]"
        )
    for name, options in choices.items():
        if isinstance(options, str) or not list(options):
            raise ValueError(
                f"{name} must be a list with at least one option, not "
                f"{options!r}"
            )

    def checked(**chosen: Any) -> Drawn:
        drawn = run(**chosen)
        if not isinstance(drawn, Picture | LiveFigure):
            said = ", ".join(f"{k}={v!r}" for k, v in chosen.items())
            raise TypeError(
                f"the run of {said} returned {type(drawn).__name__}, not a "
                "figure"
            )
        return drawn

    first = {name: next(iter(options)) for name, options in choices.items()}
    return Explorer(checked, choices, twin or checked(**first))
