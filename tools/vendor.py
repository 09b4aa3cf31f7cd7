"""Bring MathJax into book/_static/lib, so that no page asks another host.

The copy is committed: a reader needs no network and a build needs no npm. Run
this only to change the version or the list below; running it again changes
nothing.
"""

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "book" / "_static" / "lib" / "mathjax"
VERSION = "3.2.2"

#: tex-mml-chtml.js holds the common TeX commands; when a formula uses another
#: one, MathJax fetches its extension. These are all that it may ask for, less
#: chemistry (mhchem) and proof trees (bussproofs).
EXTENSIONS = (
    "action",
    "amscd",
    "bbox",
    "boldsymbol",
    "braket",  # codespell:ignore braket
    "cancel",
    "color",
    "colorv2",
    "enclose",
    "extpfeil",
    "html",
    "newcommand",
    "unicode",
    "verb",
)
FILES = (
    "LICENSE",
    "es5/tex-mml-chtml.js",
    *(f"es5/input/tex/extensions/{name}.js" for name in EXTENSIONS),
)
FONTS = "es5/output/chtml/fonts/woff-v2"


def unpack(folder: Path) -> Path:
    """Fetch the package with npm and return the folder it unpacks to."""
    subprocess.run(
        ["npm", "pack", "--silent", f"mathjax@{VERSION}"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with tarfile.open(folder / f"mathjax-{VERSION}.tgz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


def copy_subset(package: Path, target: Path) -> None:
    """Replace `target` by the chosen files, without the es5 folder."""
    shutil.rmtree(target, ignore_errors=True)
    fonts = [
        path.relative_to(package).as_posix()
        for path in sorted((package / FONTS).glob("*.woff"))
    ]
    if not fonts:
        raise SystemExit(f"mathjax {VERSION} has no fonts in {FONTS}")
    for name in (*FILES, *fonts):
        destination = target / name.removeprefix("es5/")
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package / name, destination)
    (target / "VERSION").write_text(f"mathjax {VERSION}\n", encoding="utf-8")


def main() -> None:
    """Fetch, copy, and say how large the copy is."""
    with tempfile.TemporaryDirectory() as folder:
        copy_subset(unpack(Path(folder)), TARGET)
    files = [path for path in TARGET.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    print(
        f"mathjax {VERSION}: {len(files)} files, {size / 2**20:.1f} MiB "
        f"in {TARGET.relative_to(ROOT)}"
    )


if __name__ == "__main__":
    main()
