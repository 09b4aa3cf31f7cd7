"""What a page of the built site weighs; budgets.toml says how much it may."""

import gzip
import tomllib
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

from built_site import Result, Site

BUDGETS = tomllib.loads(
    Path(__file__).with_name("budgets.toml").read_text(encoding="utf-8")
)["page"]
#: A page with formulas fetches their font.
MATH_FONT = "_static/fonts/stix-two-math.woff2"
#: What is small already: a server sends it as it is.
PACKED = {".woff2", ".png", ".jpg", ".webp", ".gif"}


def check_figure_data(site: Site) -> Result:
    """Each page's recordings fit into the budget of a page."""
    sizes = {}
    for path, soup in site.pages.items():
        states = soup.find_all("script", class_="attn-state")
        if states:
            text = "\n".join(tag.get_text() for tag in states)
            sizes[path] = len(gzip.compress(text.encode()))
    return _within(site, sizes, "figure_data_bytes", "bytes of recordings")


def check_weight(site: Site) -> Result:
    """Each page, with all that a browser fetches for it, is light."""
    sizes = {
        path: sum(map(_sent, [path, *fetched(site, path, soup)]))
        for path, soup in site.pages.items()
    }
    return _within(site, sizes, "bytes", "bytes gzipped")


def check_requests(site: Site) -> Result:
    """Each page needs few files."""
    counts = {
        path: 1 + len(fetched(site, path, soup))
        for path, soup in site.pages.items()
    }
    return _within(site, counts, "requests", "requests")


def fetched(site: Site, page: Path, soup: BeautifulSoup) -> set[Path]:
    """Return the files of the site that a browser fetches with a page."""
    tags = [
        *soup.select("link[rel~=stylesheet], link[rel~=icon]"),
        *soup.select("script[src], img[src]"),
    ]
    found = set()
    for tag in tags:
        parts = urlsplit(str(tag.get("href") or tag.get("src")))
        if not parts.scheme and not parts.netloc:
            found.add((page.parent / unquote(parts.path)).resolve())
    if soup.find("math"):
        found.add(site.html / MATH_FONT)
    return {path for path in found if path.is_file()}


@cache
def _sent(path: Path) -> int:
    """Return the bytes that a server sends for a file."""
    content = path.read_bytes()
    return len(content if path.suffix in PACKED else gzip.compress(content))


def _within(
    site: Site, sizes: dict[Path, int], budget: str, unit: str
) -> Result:
    """Hold every page against a budget, and say what the costliest needs."""
    limit = BUDGETS[budget]
    most = max(sizes.values(), default=0)
    result = Result(f"{unit} per page, at most {most} of {limit}", len(sizes))
    result.faults = [
        f"{site.name(path)}: {size} {unit}, more than {limit}"
        for path, size in sizes.items()
        if size > limit
    ]
    return result
