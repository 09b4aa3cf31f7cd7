"""A page's policy allows the scripts it has, and no other."""

import base64
import hashlib
import re
import sys

import pytest

from book_config import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))
from content_policy import CHARSET, with_policy

HEAD = f"<html><head>{CHARSET}</head><body>"


def sources(page):
    """Return {directive: its sources} of a page's policy."""
    content = re.search(r'Security-Policy" content="([^"]*)"', page)[1]
    words = [directive.split() for directive in content.split("; ")]
    return {first: rest for first, *rest in words}


def test_each_inline_script_is_allowed_by_its_hash_and_data_are_not():
    code = "\nconst a = 1 < 2;\n"
    page = with_policy(
        f"{HEAD}<script>{code}</script><script src='a.js'></script>"
        '<script type="application/json">{"a": 1}</script>'
    )
    digest = hashlib.sha256(code.encode()).digest()
    allowed = sources(page)["script-src"]
    assert f"'sha256-{base64.b64encode(digest).decode()}'" in allowed
    assert len([word for word in allowed if "sha256" in word]) == 1


def test_nothing_else_is_allowed():
    found = sources(with_policy(HEAD))
    assert found["default-src"] == ["'none'"]
    assert found["script-src"] == ["'self'", "file:"]
    for words in found.values():
        assert not {"*", "'unsafe-eval'", "http:", "https:"} & set(words)
    assert "'unsafe-inline'" not in found["script-src"]


def test_the_themes_handlers_become_data():
    page = with_policy(
        f'{HEAD}<button onclick="window.print()">a</button>'
        '<button onclick="toggleFullScreen()">b</button>'
    )
    assert 'data-calls="print"' in page
    assert 'data-calls="toggleFullScreen"' in page
    assert "onclick" not in page


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        (f'{HEAD}<a onclick="a(); b()">', "a script in an attribute"),
        (f'{HEAD}<img onerror="a()">', "a script in an attribute"),
        ("<html><head></head>", "has no <meta charset"),
    ],
)
def test_what_a_policy_cannot_allow_is_refused(page, complaint):
    with pytest.raises(ValueError, match=complaint):
        with_policy(page)
