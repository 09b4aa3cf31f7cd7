"""Check the built site the way a reader without a network would use it.

Reads _build/html and says, one line per check, how many things it looked at
and how many are wrong; exits with 1 if any is. What a page offers to open in
Colab has to be tracked by git (`git ls-files`, so `git add` is enough): a
notebook that only lies on this disk is a broken link for everyone else.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import Tag

from book_config import Book
from built_site import Result, Site
from site_weight import check_figure_data, check_requests, check_weight

#: Elements through which a browser fetches something on its own.
FETCHING = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
#: `rel` values of <link> that only name a relation and fetch nothing.
RELATIONS = {"author", "canonical", "index", "license", "next", "prev"}
#: An address of another host inside a style sheet.
STYLE_ADDRESS = re.compile(
    r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""", re.IGNORECASE
)
#: A name space is spelled like an address, but nothing is fetched from it.
SCRIPT_ADDRESS = re.compile(r"https?://(?!www\.w3\.org/)[^\s\"'`)]+")
FILE_NAME = re.compile(r"\.(png|svg|jpe?g|gif|webp)\s*$", re.IGNORECASE)


def is_elsewhere(address: str) -> bool:
    """Say whether a browser would leave the site for this address."""
    parts = urlsplit(address.strip())
    return bool(parts.netloc) or parts.scheme in {"http", "https", "ftp"}


def check_pages(site: Site) -> Result:
    """Each page of _toc.yml was built."""
    result = Result("pages of _toc.yml")
    for page in site.book.pages():
        result.looked_at += 1
        if site.html / f"{page}.html" not in site.pages:
            result.faults.append(f"{page}.html was not built")
    return result


def check_links(site: Site) -> Result:
    """Each internal address leads to a file, each fragment to a place."""
    result = Result("internal links and fragments")
    for page, path, tag in site.tags("a", "img", "link", "script"):
        address = str(tag.get("href") or tag.get("src") or "")
        parts = urlsplit(address)
        if not address or parts.scheme or parts.netloc:
            continue
        result.looked_at += 1
        target = path
        if parts.path:
            target = (path.parent / unquote(parts.path)).resolve()
            if target.is_dir():
                target /= "index.html"
        if not target.is_relative_to(site.html) or not target.exists():
            result.faults.append(f"{page}: {address} leads nowhere")
        elif (
            parts.fragment
            and target in site.anchors
            and unquote(parts.fragment) not in site.anchors[target]
        ):
            result.faults.append(f"{page}: {address} has no such place")
    return result


def check_launches(site: Site) -> Result:
    """Each launch button opens a tracked notebook of the right branch."""
    result = Result("launch buttons")
    host = site.book.config["launch_buttons"]["colab_url"].rstrip("/")
    prefix = f"{host}/github/{site.book.slug}/blob/{site.book.branch}/"
    for page, _, tag in site.tags("a"):
        address = str(tag.get("href", ""))
        if not address.startswith(host):
            continue
        result.looked_at += 1
        notebook = unquote(urlsplit(address.removeprefix(prefix)).path)
        if not address.startswith(prefix):
            result.faults.append(f"{page}: {address} is not below {prefix}")
        elif not notebook.endswith(".ipynb"):
            result.faults.append(f"{page}: {notebook} is not a notebook")
        elif notebook not in site.tracked:
            result.faults.append(
                f"{page}: git does not track {notebook}; `git add` it"
            )
    return _one_for_each_chapter(result, site)


def check_downloads(site: Site) -> Result:
    """Each notebook that a page hands out is the tracked one."""
    result = Result("notebooks to download")
    for page, path, tag in site.tags("a"):
        address = str(tag.get("href", ""))
        if is_elsewhere(address) or not address.endswith(".ipynb"):
            continue
        result.looked_at += 1
        offered = (path.parent / unquote(address)).resolve()
        sources = site.html / "_sources"
        if not offered.is_relative_to(sources) or not offered.exists():
            result.faults.append(f"{page}: {address} is not in _sources")
            continue
        notebook = offered.relative_to(sources).as_posix()
        ours = site.book.root / notebook
        if notebook not in site.tracked:
            result.faults.append(
                f"{page}: git does not track {notebook}; `git add` it"
            )
        elif not ours.exists() or ours.read_bytes() != offered.read_bytes():
            result.faults.append(f"{page}: {address} is not our {notebook}")
    return _one_for_each_chapter(result, site)


def _one_for_each_chapter(result: Result, site: Site) -> Result:
    """Notice when the theme silently stops offering the notebooks."""
    expected = len(
        [path for path in site.book.chapters() if _is_built(site, path)]
    )
    if result.looked_at < expected:
        result.faults.append(
            f"{expected} pages run code, only {result.looked_at} offer it"
        )
    return result


def _is_built(site: Site, chapter: Path) -> bool:
    page = chapter.relative_to(site.book.root).with_suffix(".html")
    return site.html / page in site.pages


def check_hosts(site: Site) -> Result:
    """No page and no style sheet makes the browser ask another host."""
    result = Result("scripts, styles, images and fonts from this site only")
    for page, _, tag in site.tags(*FETCHING):
        if tag.name == "link" and RELATIONS & set(tag.get("rel") or []):
            continue
        for attribute in FETCHING[tag.name]:
            addresses = str(tag.get(attribute) or "")
            result.looked_at += bool(addresses)
            choices = (
                re.split(r",\s+", addresses)
                if attribute == "srcset"
                else [addresses]
            )
            result.faults += [
                f"{page}: <{tag.name}> asks {choice}"
                for choice in choices
                if is_elsewhere(choice)
            ]
    for page, _, tag in site.tags("script"):
        kind = str(tag.get("type") or "module")
        if kind == "module" or "javascript" in kind:
            result.looked_at += 1
            result.faults += [
                f"{page}: an inline script names {address}"
                for address in SCRIPT_ADDRESS.findall(tag.get_text())
            ]
    styles = [
        (path.relative_to(site.html).as_posix(), path.read_text("utf-8"))
        for path in sorted(site.html.rglob("*.css"))
    ]
    for page, _, tag in site.tags("style"):
        styles.append((page, tag.get_text()))
    for path, soup in site.pages.items():
        for tag in soup.find_all(style=True):
            styles.append((site.name(path), str(tag["style"])))
    for name, style in styles:
        result.looked_at += 1
        result.faults += [
            f"{name}: a style asks {address}"
            for address in STYLE_ADDRESS.findall(style)
        ]
    return result


def check_alternatives(site: Site) -> Result:
    """Each picture says in words what it shows."""
    result = Result("alternative texts")
    for page, _, tag in site.tags("img"):
        result.looked_at += 1
        text = str(tag.get("alt") or "").strip()
        if not text or FILE_NAME.search(text):
            result.faults.append(
                f"{page}: <img src={str(tag.get('src'))[:60]!r}> "
                f"has alt={text!r}"
            )
    for page, _, tag in site.tags("svg"):
        if tag.find_parent("svg"):
            continue
        result.looked_at += 1
        if not _svg_is_described(tag):
            result.faults.append(
                f"{page}: {str(tag)[:60]!r} has neither role=img with "
                "aria-label or <title>, nor a figure with aria-label"
            )
    return result


def _svg_is_described(tag: Tag) -> bool:
    """Say whether a screen reader has words for an inline picture."""
    title = tag.find("title", recursive=False)
    own = str(tag.get("aria-label") or (title and title.get_text()) or "")
    if tag.get("role") == "img" and own.strip():
        return True
    figure = tag.find_parent("figure")
    if figure is None:
        return tag.get("aria-hidden") == "true"  # a mere ornament
    return bool(str(figure.get("aria-label") or "").strip())


CHECKS: tuple[Callable[[Site], Result], ...] = (
    check_pages,
    check_links,
    check_launches,
    check_downloads,
    check_hosts,
    check_alternatives,
    check_figure_data,
    check_weight,
    check_requests,
)


def main(html: Path | None = None, book: Book | None = None) -> int:
    """Run every check and print what it found."""
    book = book or Book()
    html = html or book.root / "_build" / "html"
    if not html.is_dir():
        print(f"there is no site in {html}: run `make book`", file=sys.stderr)
        return 1
    site = Site(html, book)
    results = [check(site) for check in CHECKS]
    for result in results:
        print(result)
    return int(any(result.faults for result in results))


if __name__ == "__main__":
    sys.exit(main())
