"""Formulas as MathML: the browser draws them, and screen readers read them.

No script has to be fetched and run before a reader sees a formula. Notebooks
keep the TeX, which Jupyter and Colab draw themselves.
"""

import re
from html import escape

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOGGER = logging.getLogger(__name__)
#: One upright letter, as the converter writes each letter of a name.
UPRIGHT = r'<mi mathvariant="normal">(\w)</mi>'


def formula(tex: str, *, is_block: bool) -> str:
    r"""Return a formula as a `<math>` element that keeps its TeX beside it.

    A name set upright, such as `\mathrm{softmax}`, becomes one word: as single
    letters it would be spelled out to a listener.

    Raises
    ------
    ValueError
        If the TeX has a command that the converter does not know.

    Examples
    --------
    >>> formula(r"\mathrm{softmax}", is_block=False).count("<mi>")
    1
    >>> formula(r"\nonsense", is_block=False)
    Traceback (most recent call last):
    ValueError: a formula cannot be shown: \nonsense is not known
    """
    found = convert(tex, display="block" if is_block else "inline")
    unknown = re.search(r"\\[A-Za-z]+", found)
    if unknown:
        raise ValueError(
            f"a formula cannot be shown: {unknown[0]} is not known"
        )
    words = re.sub(f"{UPRIGHT}(?:{UPRIGHT})+", _as_one_word, found)
    alternative = escape(" ".join(tex.split()), quote=True)
    return words.replace("<math ", f'<math alttext="{alternative}" ', 1)


def _as_one_word(letters: re.Match) -> str:
    return "<mi>" + re.sub(UPRIGHT, r"\1", letters[0]) + "</mi>"


def _visit(self: HTML5Translator, node: nodes.Node, is_block: bool) -> None:
    try:
        text = formula(node.astext(), is_block=is_block)
    except ValueError as error:
        LOGGER.warning(str(error), location=node)
        text = f"<code>{escape(node.astext())}</code>"
    # A long formula scrolls by itself; the keyboard has to reach it then.
    self.body.append(
        f'<div class="math-block" tabindex="0" role="group" '
        f'aria-label="formula">{text}</div>\n'
        if is_block
        else text
    )
    raise nodes.SkipNode


def visit_inline(self: HTML5Translator, node: nodes.Node) -> None:
    """Write a formula within a sentence."""
    _visit(self, node, is_block=False)


def visit_block(self: HTML5Translator, node: nodes.Node) -> None:
    """Write a formula on lines of its own."""
    _visit(self, node, is_block=True)


def setup(app: Sphinx) -> dict:
    """Register the renderer; `html_math_renderer: mathml` chooses it."""
    app.add_html_math_renderer(
        "mathml", (visit_inline, None), (visit_block, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
