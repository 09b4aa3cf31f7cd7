"""What the tools know about the book, read from the files that decide it.

Addresses come from _config.yml, the pages and their order from _toc.yml, exact
versions from constraints.txt. Nothing is repeated here.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Book:
    """One checkout of the book.

    Every tool takes a `Book`, so that a test can point it at a small copy.
    """

    root: Path = ROOT

    @property
    def config(self) -> dict:
        """_config.yml as Python values."""
        return yaml.safe_load(
            (self.root / "_config.yml").read_text(encoding="utf-8")
        )

    @property
    def repository(self) -> str:
        """The repository's address, without a slash at its end."""
        return self.config["repository"]["url"].rstrip("/")

    @property
    def branch(self) -> str:
        """The branch that readers and Colab get."""
        return self.config["repository"]["branch"]

    @property
    def slug(self) -> str:
        """`owner/name`, as Colab and raw-file addresses want it."""
        return urlsplit(self.repository).path.strip("/")

    @property
    def site(self) -> str:
        """The site's address, with a slash at its end.

        `html.baseurl` when it is set, else where GitHub Pages serves the
        repository.
        """
        baseurl = self.config.get("html", {}).get("baseurl")
        if baseurl:
            return baseurl.rstrip("/") + "/"
        owner, _, name = self.slug.partition("/")
        return f"https://{owner}.github.io/{name}/"

    def colab(self, page: str) -> str:
        """Return where Colab opens a page's notebook."""
        host = self.config["launch_buttons"]["colab_url"].rstrip("/")
        return f"{host}/github/{self.slug}/blob/{self.branch}/{page}.ipynb"

    def raw(self, path: str) -> str:
        """Return the address of a file's bytes, for images in notebooks."""
        return (
            "https://raw.githubusercontent.com/"
            f"{self.slug}/{self.branch}/{path}"
        )

    def pages(self) -> list[str]:
        """Return the pages of _toc.yml in order, such as `book/start`."""
        toc = yaml.safe_load(
            (self.root / "_toc.yml").read_text(encoding="utf-8")
        )
        return [toc["root"], *_files_below(toc)]

    def chapters(self) -> list[Path]:
        """Return every page of the book that runs code, in reading order.

        Pages in book/ that _toc.yml does not list come last: they have
        notebooks too.
        """
        listed = [self.root / f"{page}.md" for page in self.pages()]
        found = sorted((self.root / "book").rglob("*.md"))
        rest = [path for path in found if path not in listed]
        return [
            path
            for path in listed + rest
            if path.exists() and "kernelspec" in front_matter(path)
        ]

    def pin(self, package: str) -> str:
        """Return `name==version` from constraints.txt.

        Raises
        ------
        LookupError
            If the package is not pinned there.
        """
        wanted = _normalised(package)
        text = (self.root / "constraints.txt").read_text(encoding="utf-8")
        for line in text.splitlines():
            name, equals, version = line.partition("==")
            if equals and _normalised(name) == wanted:
                return f"{package}=={version.split()[0]}"
        raise LookupError(f"constraints.txt does not pin {package}")


def front_matter(path: Path) -> dict:
    """Return the YAML between the `---` lines at the head of a page."""
    text = path.read_text(encoding="utf-8")
    match = re.match(r"---\n(.*?)\n---\n", text, flags=re.DOTALL)
    return (yaml.safe_load(match[1]) or {}) if match else {}


def _files_below(node: dict) -> list[str]:
    """Collect the `file` entries of a table of contents, depth first."""
    files = []
    for key in ("parts", "chapters", "sections"):
        for child in node.get(key, []):
            if "file" in child:
                files.append(child["file"])
            files += _files_below(child)
    return files


def _normalised(name: str) -> str:
    """Spell a package name the one way that package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
