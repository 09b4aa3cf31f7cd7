"""Make the built pages light: one style sheet, one script, no icon library.

The theme asks for fifteen files, and for an icon library of 1.5 MB of which it
shows a dozen icons. After the build every page is rewritten: its style sheets
become one file, its scripts another, and the icons are in `book.css`. A page's
own name, which the theme sets in an inline script, becomes an attribute.
"""

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from content_policy import CALL_HANDLERS, with_policy
from sphinx.application import Sphinx
from theme_repairs import repaired

STYLE = re.compile(r'<link\b[^>]*\brel="stylesheet"[^>]*/?>\n?')
SCRIPT = re.compile(r'<script\b[^>]*\bsrc="[^"]*"[^>]*></script>\n?')
LATER = re.compile(r"(<script)(?=\s+src=)")
PRELOAD = re.compile(r'<link\b[^>]*\brel="preload"[^>]*/?>\n?')
PAGE_NAME = re.compile(
    r"<script>DOCUMENTATION_OPTIONS\.pagename = '([^']*)';</script>\n?"
)
VIEWPORT = re.compile(r'<meta\b[^>]*name="viewport"[^>]*>\n?')
ADDRESS = re.compile(r'\b(?:href|src)="([^"?]*)')
#: Shapes of the icon library that the style sheet would fetch.
ICON_FONT = re.compile(r"@font-face\{[^}]*vendor/fontawesome[^}]*\}")
IMPORT = re.compile(r'@import "([^"]+)";')
RELATIVE = re.compile(r"url\((?!data:|['\"]data:)['\"]?([^)'\"]+)['\"]?\)")
#: After `documentation_options.js`, which makes the object.
READ_PAGE_NAME = """\
DOCUMENTATION_OPTIONS.pagename = document.documentElement.dataset.page;
// A browser lets no script read other files of a folder, only of a server.
if (location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
"""


#: Only the search page asks for these; they look for each other by name.
APART = {"searchtools.js", "language_data.js"}
#: A policy without inline scripts forbids this link of Sphinx.
HIDE_MATCHES = 'href="javascript:SphinxHighlight.hideSearchWords()"'


class LightSite:
    """The built site, whose pages share the joined files.

    Parameters
    ----------
    root : folder of the built HTML.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.static = self.root / "_static"
        self.joined: set[Path] = set()

    def lighten(self) -> None:
        """Rewrite every page, and drop the files that none asks for."""
        for page in sorted(self.root.rglob("*.html")):
            text = page.read_text(encoding="utf-8")
            if not page.is_relative_to(self.static) and "<head" in text:
                page.write_text(self.rewritten(text, page), encoding="utf-8")
        for path in self.joined:
            path.unlink()
        shutil.rmtree(self.static / "vendor", ignore_errors=True)
        for path in self.static.glob("scripts/fontawesome*"):
            path.unlink()

    def rewritten(self, text: str, page: Path) -> str:
        """Return a page that asks for one style sheet and one script."""
        name = PAGE_NAME.search(text)
        text = PAGE_NAME.sub("", PRELOAD.sub("", text))
        if name:
            text = text.replace("<html ", f'<html data-page="{name[1]}" ', 1)
        first = VIEWPORT.search(text)
        if first:
            text = first[0].join(
                [text[: first.start()], VIEWPORT.sub("", text[first.end() :])]
            )
        text = self._join(text, page, STYLE, "css", self._style)
        text = self._join(text, page, SCRIPT, "js", _script)
        # The search index calls what another script defines.
        return with_policy(repaired(LATER.sub(r"\1 defer", text)))

    def _join(
        self,
        text: str,
        page: Path,
        tag: re.Pattern,
        kind: str,
        read: Callable[[Path], str],
    ) -> str:
        """Replace the tags of a kind by one, where the first of them stood."""
        matches = [
            (match, path)
            for match in tag.finditer(text)
            if (path := self._file(match[0], page)) is not None
        ]
        if not matches:
            return text
        kept = [path for _, path in matches if path.stem != "fontawesome"]
        joined = self._write("\n".join(map(read, kept)), kind)
        self.joined.update(kept)
        address = "../" * (len(page.relative_to(self.root).parts) - 1) + joined
        new = (
            f'<link rel="stylesheet" href="{address}" />\n'
            if kind == "css"
            else f'<script defer src="{address}"></script>\n'
        )
        parts, end = [], 0
        for match, _ in matches:
            parts.append(text[end : match.start()])
            end = match.end()
        parts.insert(1, new)
        return "".join(parts) + text[end:]

    def _file(self, tag: str, page: Path) -> Path | None:
        """Return the file of `_static` that a tag asks for."""
        found = ADDRESS.search(tag)
        if found is None or ("type=" in tag and "text/css" not in tag):
            return None
        path = (page.parent / found[1]).resolve()
        is_ours = path.is_relative_to(self.static) and path.exists()
        return path if is_ours and path.name not in APART else None

    def _write(self, content: str, kind: str) -> str:
        """Write a joined file once; return its address from the root."""
        digest = hashlib.sha256(content.encode()).hexdigest()[:12]
        path = self.static / f"site.{digest}.{kind}"
        path.write_text(content, encoding="utf-8")
        return path.relative_to(self.root).as_posix()

    def _style(self, path: Path) -> str:
        """Return a style sheet as it reads from the joined file's place."""

        def moved(match: re.Match) -> str:
            target = (path.parent / match[1]).resolve()
            return f'url("{target.relative_to(self.static).as_posix()}")'

        def imported(match: re.Match) -> str:
            target = (path.parent / match[1]).resolve()
            self.joined.add(target)
            return self._style(target)

        text = ICON_FONT.sub("", path.read_text(encoding="utf-8"))
        return IMPORT.sub(imported, RELATIVE.sub(moved, text))


def _script(path: Path) -> str:
    """Return a script; what follows in the joined file starts afresh."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^//# sourceMappingURL=.*$", "", text, flags=re.MULTILINE)
    if path.name == "documentation_options.js":
        text += f"\n{READ_PAGE_NAME}\n{CALL_HANDLERS}"
    if HIDE_MATCHES in text:
        text = text.replace(HIDE_MATCHES, 'href="#" data-calls="hideMatches"')
        text += "\nwindow.hideMatches = SphinxHighlight.hideSearchWords;"
    return text + "\n;"


def lighten(app: Sphinx, exception: Exception | None) -> None:
    """Lighten the site when it is built without an error."""
    if not exception and app.builder.format == "html":
        LightSite(Path(app.outdir)).lighten()


def setup(app: Sphinx) -> dict:
    """Run after everything else that touches the built pages."""
    app.connect("build-finished", lighten, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
