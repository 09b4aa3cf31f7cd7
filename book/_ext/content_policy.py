"""Tell the browser what a page may do: run its own scripts, ask nobody else.

The policy stands in the page, so it holds on any host, and offline. Inline
scripts are allowed by their hash; there is no `eval`, and no handler in an
attribute. Styles may stand inline: pictures and figures bring theirs along.
"""

import base64
import hashlib
import re

INLINE = re.compile(
    r"<script(?![^>]*\bsrc=)(?P<attributes>[^>]*)>(?P<code>.*?)</script>",
    re.DOTALL,
)
#: What may stand in an `onclick` of the theme: the call of one function.
HANDLER = re.compile(r'\bonclick="(?:window\.)?(\w+)\(\)"')
#: Part of the joined script: does what the attributes said.
CALL_HANDLERS = """\
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-calls]");
  if (button) window[button.dataset.calls]();
});
"""
CHARSET = '<meta charset="utf-8" />'


def with_policy(page: str) -> str:
    """Return a page with its policy, and without handlers in attributes.

    Raises
    ------
    ValueError
        If the page has no place for the policy, or a handler that is more than
        the call of a function: the browser would refuse it.
    """
    page = HANDLER.sub(r'data-calls="\1"', page)
    left = re.search(r"<[^>]*\son\w+=", page)
    if left:
        raise ValueError(f"a script in an attribute: {left[0][-80:]}")
    if CHARSET not in page:
        raise ValueError(f"the page has no {CHARSET}, where its policy goes")
    content = policy(page)
    tag = f'<meta http-equiv="Content-Security-Policy" content="{content}" />'
    return page.replace(CHARSET, f"{CHARSET}\n    {tag}", 1)


def policy(page: str) -> str:
    """Return the policy that allows exactly the scripts of a page."""
    hashes = {
        _hash(match["code"])
        for match in INLINE.finditer(page)
        if "json" not in match["attributes"]  # data; no browser runs it
    }
    scripts = " ".join(["'self'", "file:", *sorted(hashes)])
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {scripts}",
            "style-src 'self' file: 'unsafe-inline'",
            "img-src 'self' file: data:",
            "font-src 'self' file:",
            "connect-src 'self'",  # the search shows a line of each page
            "base-uri 'none'",
            "form-action 'self' file:",
        ]
    )


def _hash(code: str) -> str:
    digest = hashlib.sha256(code.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
