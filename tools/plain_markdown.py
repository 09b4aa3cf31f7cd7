"""Turn a page's MyST into the plain Markdown that Colab and Jupyter show.

Colab prints a directive or a role as raw text and cannot follow a link to a
neighbouring .md file. So directives become quoted blocks with a bold head,
roles become links to the site, and every address becomes absolute. What this
module does not know it refuses: raw MyST in front of a reader is worse than a
failed build.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from posixpath import normpath

from docutils.nodes import make_id

from book_config import Book

NOTICES = {
    "attention",
    "caution",
    "danger",
    "error",
    "hint",
    "important",
    "note",
    "seealso",
    "tip",
    "warning",
}
TITLED = {"admonition", "margin", "sidebar"}
DROPPED = {"tableofcontents", "contents", "toctree"}
LITERAL = {"code-block", "code", "sourcecode"}

FENCE = re.compile(
    r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,}|:{3,})(?P<rest>.*)$"
)
DIRECTIVE = re.compile(r"^\{(?P<name>[\w:+-]+)\}[ \t]*(?P<argument>.*)$")
TARGET = re.compile(r"^\((?P<name>[\w:.-]+)\)=\s*$")
TOKEN = re.compile(
    r"""
    (?P<role>\{[A-Za-z][\w:+-]*\})?
        (?P<ticks>`+)(?P<code>(?:(?!\n\n).)+?)(?<!`)(?P=ticks)(?!`)
  | (?P<display>\$\$.+?\$\$)(?P<label>[ \t]*\((?P<equation>[\w:.-]+)\))?
  | (?P<inline>(?<!\\)\$(?![\s$])(?:(?!\n\n)[^$])+?(?<!\s)\$)
  | (?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]
        \((?P<address>[^()\s]+)(?P<title>\s+"[^"]*")?\)
  | (?P<before><(?:img|a)\b[^>]*?\b(?:src|href)=")(?P<attribute>[^"]*)
    """,
    re.VERBOSE | re.DOTALL,
)


class NotPlainError(ValueError):
    """The page uses something that has no plain Markdown form here."""


@dataclass
class Converter:
    """Converts the Markdown of one page, `book/multi_head` for instance."""

    page: str
    book: Book

    def convert(self, text: str) -> str:
        """Return the text as plain Markdown."""
        lines = "\n".join(self._blocks(text.split("\n")))
        return re.sub(r"\n{3,}", "\n\n", lines).strip()

    def _blocks(self, lines: list[str]) -> list[str]:
        """Convert fences and directives whole, the lines between inline."""
        out: list[str] = []
        prose: list[str] = []

        def flush() -> None:
            if prose:
                out.extend(self._inline("\n".join(prose)).split("\n"))
                prose.clear()

        position = 0
        while position < len(lines):
            line = lines[position]
            fence = FENCE.match(line)
            if fence:
                flush()
                end = _closing(lines, position, fence["fence"])
                body = lines[position + 1 : end]
                directive = DIRECTIVE.match(fence["rest"].strip())
                if directive:
                    out += self._directive(
                        directive["name"], directive["argument"].strip(), body
                    )
                elif fence["fence"].startswith(":"):
                    raise self._refuse(f"a ::: block without a name: {line}")
                else:
                    out += lines[position : end + 1]
                position = end + 1
                continue
            if not TARGET.match(line) and not re.match(r"^%( |$)", line):
                prose.append(line)
            position += 1
        flush()
        return out

    def _directive(
        self, name: str, argument: str, body: list[str]
    ) -> list[str]:
        """Write one directive without its fence."""
        options, body = _split_options(body)
        if name in DROPPED:
            return []
        if name in NOTICES:
            body = [argument, *body] if argument else body
            return _quoted(name.capitalize(), self._blocks(body))
        if name in TITLED:
            return _quoted(argument, self._blocks(body))
        if name in LITERAL:
            return [f"```{argument}", *body, "```"]
        if name == "math":
            return ["$$", *body, "$$"]
        if name in {"image", "figure"}:
            alt = options.get("alt", "")
            image = f"![{alt}]({self._absolute(argument, image=True)})"
            return [image, "", *self._blocks(body)]
        raise self._refuse(f"the directive {{{name}}}")

    def _inline(self, text: str) -> str:
        """Convert roles, labels and addresses; leave code and math alone."""
        return TOKEN.sub(self._token, text)

    def _token(self, match: re.Match) -> str:
        if match["role"]:
            return self._role(match["role"][1:-1], match["code"].strip())
        if match["display"]:
            return match["display"]
        if match["before"]:
            image = match["before"].startswith("<img")
            return match["before"] + self._absolute(match["attribute"], image)
        if match["address"]:
            image = bool(match["image"])
            text = match["text"] or self._title(match["address"])
            address = self._absolute(match["address"], image)
            return f"{match['image']}[{text}]({address}{match['title'] or ''})"
        return match[0]

    def _role(self, name: str, content: str) -> str:
        """Write one role, such as {doc}`the axes <axis_key>`."""
        match = re.fullmatch(r"(?P<text>.*?)\s*<(?P<target>[^<>]+)>", content)
        text, target = (
            (match["text"], match["target"]) if match else ("", content)
        )
        if name == "math":
            return f"${content}$"
        if name in {"kbd", "sub", "sup"}:
            return f"<{name}>{content}</{name}>"
        if name == "doc":
            address = f"{target}.md"
            return (
                f"[{text or self._title(address)}]({self._absolute(address)})"
            )
        if name in {"ref", "numref"} and text:
            return f"[{text}]({self._label(target)})"
        if name == "eq":
            return f"[{text or 'this equation'}]({self._label(target)})"
        raise self._refuse(f"the role {{{name}}}`{content}`")

    def _label(self, label: str) -> str:
        """Return the site address of a `(label)=` or of an equation."""
        if label not in self._labels:
            raise self._refuse(f"the label {label}, which no page has")
        return f"{self.book.site}{self._labels[label]}"

    @cached_property
    def _labels(self) -> dict[str, str]:
        """Where each label of the book stands, as `page.html#fragment`."""
        places = {}
        for page in self.book.pages():
            path = self.book.root / f"{page}.md"
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            for line in text.splitlines():
                target = TARGET.match(line)
                if target:
                    name = target["name"]
                    places[name] = f"{page}.html#{make_id(name)}"
            for match in TOKEN.finditer(text):
                name = match["equation"]
                if name:
                    places[name] = f"{page}.html#equation-{make_id(name)}"
        return places

    def _absolute(self, address: str, image: bool = False) -> str:
        """Return an address that works from anywhere."""
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", address):
            return address
        path, hash_sign, fragment = address.partition("#")
        if not path:
            return f"{self.book.site}{self.page}.html#{fragment}"
        path = self._from_root(path)
        if not (self.book.root / path).is_file():
            raise self._refuse(f"the address {address}, where nothing is")
        if image:
            return self.book.raw(path)
        if path.endswith(".md") and path.startswith("book/"):
            page = path.removesuffix(".md")
            return f"{self.book.site}{page}.html{hash_sign}{fragment}"
        return (
            f"{self.book.repository}/blob/{self.book.branch}/{path}"
            f"{hash_sign}{fragment}"
        )

    def _title(self, address: str) -> str:
        """Return the heading of the page that a link without text points to."""
        path, hash_sign, _ = address.partition("#")
        file = self.book.root / self._from_root(path)
        if not hash_sign and file.suffix == ".md" and file.is_file():
            text = file.read_text(encoding="utf-8")
            heading = re.search(r"^# (.+)$", text, flags=re.MULTILINE)
            if heading:
                return heading[1].strip()
        raise self._refuse(f"a link without text to {address}")

    def _from_root(self, path: str) -> str:
        """Return a path that was written from this page, from the root."""
        if path.startswith("/"):
            return normpath(path.lstrip("/"))
        return normpath(str(PurePosixPath(self.page).parent / path))

    def _refuse(self, what: str) -> NotPlainError:
        return NotPlainError(
            f"{self.page}.md: {what} has no plain Markdown form; "
            "write it as ordinary Markdown"
        )


def _closing(lines: list[str], start: int, fence: str) -> int:
    """Return the line that closes a fence, or the end of the text."""
    closing = re.compile(
        rf"^ {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}\s*$"
    )
    for position in range(start + 1, len(lines)):
        if closing.match(lines[position]):
            return position
    return len(lines)


def _split_options(body: list[str]) -> tuple[dict[str, str], list[str]]:
    """Take the `:key: value` lines off the head of a directive's body."""
    options = {}
    position = 0
    while position < len(body):
        option = re.match(r"^:([\w-]+):\s*(.*)$", body[position])
        if not option:
            break
        options[option[1]] = option[2]
        position += 1
    return options, body[position:]


def _quoted(head: str, body: list[str]) -> list[str]:
    """Return a quoted block with a bold head."""
    while body and not body[0].strip():
        body = body[1:]
    while body and not body[-1].strip():
        body = body[:-1]
    lines = [f"**{head}**", "", *body]
    return ["", *(f"> {line}".rstrip() for line in lines), ""]
