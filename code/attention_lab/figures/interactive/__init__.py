"""The scripts of the figures a reader can walk through.

`base.js`, `style.js` and `scene.js` are what all share; others import from
their neighbours with one `import … from "./name.js"` per neighbour and nothing
else. `joined` puts a figure and what it imports into one module, which a page,
a notebook and anywidget load alike. There is no build step: the files are what
runs.
"""

import functools
import hashlib
import re
from pathlib import Path

_HERE = Path(__file__).parent
_IMPORT = re.compile(r'^import [^;]*? from "\./(\w+)\.js";\n', re.MULTILINE)
_COMMENT = re.compile(
    r"^[ ]*(/\*\*.*?\*/|//[^\n]*)\n", re.MULTILINE | re.DOTALL
)
_TRAILING = re.compile(r" +// [^\n]*$", re.MULTILINE)


@functools.cache
def joined(name: str) -> str:
    """Return a figure as one ES module that imports nothing.

    It still has its `export default`, so it is what anywidget calls `_esm`.
    Comments, indents and most line ends are left out: readers of a page would
    load them.

    Parameters
    ----------
    name : the figure's file, without its ending.

    Raises
    ------
    ValueError
        If there is no such file.

    Examples
    --------
    >>> joined("flash_theatre").count("export default")
    1
    """
    parts: dict[str, str] = {}
    _collect(name, parts)
    return stripped("".join(parts.values()))


def stripped(text: str) -> str:
    r"""Return a script without comments, indents and needless line ends.

    A line may end without a semicolon only where the next goes on with it, so
    what ends in one of `,;{}([` can be joined with the next. A comment at the
    end of a line has a space before its slashes, which no text has.

    Examples
    --------
    >>> stripped("// why\nif (x) {\n  f();  // how\n}\ng();\n")
    'if (x) {f();}g();'
    """
    text = _TRAILING.sub("", _COMMENT.sub("", text))
    text = re.sub(r"^ +", "", text, flags=re.MULTILINE)
    return re.sub(r"([,;{}(\[])\n+", r"\1", re.sub(r"\n\n+", "\n", text))


def module_hash(module: str) -> str:
    """Return a short name for a module's text.

    Examples
    --------
    >>> module_hash("")
    'e3b0c44298fc'
    """
    return hashlib.sha256(module.encode()).hexdigest()[:12]


def _collect(name: str, parts: dict[str, str]) -> None:
    """Put a file behind what it imports, each once."""
    path = _HERE / f"{name}.js"
    if not path.is_file():
        known = sorted(file.stem for file in _HERE.glob("*.js"))
        raise ValueError(f"there is no {name}.js; there are {', '.join(known)}")
    text = path.read_text(encoding="utf-8")
    for needed in _IMPORT.findall(text):
        if needed not in parts:
            _collect(needed, parts)
    text = _IMPORT.sub("", text)
    parts[name] = re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE)
