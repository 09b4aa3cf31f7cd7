import sys
from importlib.util import module_from_spec, spec_from_file_location

from book_config import ROOT


def load():
    """Import the Sphinx extension, which lies outside every package."""
    path = ROOT / "book" / "_ext" / "bookfixes.py"
    spec = spec_from_file_location("bookfixes", path)
    module = module_from_spec(spec)
    sys.modules["bookfixes"] = module
    spec.loader.exec_module(module)
    return module


def script(name, code):
    return f'<script type="module" data-attn-module="{name}">{code}</script>'


def test_each_module_stays_at_its_first_place_only():
    a, b = script("a1", "\nlet x = 1;\n"), script("b2", "let y")
    figure = '<figure data-attn="a1"></figure>'
    other = '<script type="module">let z</script>'
    page = figure + a + figure + a + other + b + other + a
    expected = figure + a + figure + other + b + other
    assert load().without_repeated_modules(page) == expected


def test_a_page_without_modules_is_left_alone():
    page = '<p data-attn-module="a1">text</p><script>let x</script>'
    assert load().without_repeated_modules(page) == page
