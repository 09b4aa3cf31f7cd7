"""Cut the font of the formulas from STIX Two Math, into book/_static/fonts.

The whole font has 5,000 glyphs and weighs 400 KB; a page needs a few hundred.
The result is committed: a reader needs no network and a build needs no npm.
Run this only to change the version or the characters; running it again gives
the same bytes. It needs npm, fontTools (which matplotlib brings) and brotli.
"""

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from fontTools import subset

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "book" / "_static" / "fonts"
PACKAGE, VERSION = "@fontsource/stix-two-math", "5.3.0"
FONT = "files/stix-two-math-latin-400-normal.woff2"

#: First and last character of what formulas may use.
RANGES = (
    (0x20, 0x7E),  # ASCII
    (0x391, 0x3C9),  # Greek
    (0x1D434, 0x1D467),  # italic letters, as a variable is shown
    (0x1D6E2, 0x1D71B),  # italic Greek
)
UNASSIGNED = {0x3A2, 0x1D455}  # the italic h has another place, ℎ
OTHERS = "ℎℓ′…−×÷·∘⊙±√∑∏∫∂∇∞∈∉⊂∪∩∀∃≈≠≡≤≥≪≫→←↦⇒∝⊤⊥∥⌈⌉⌊⌋⟨⟩ \u2061\u2062"


def characters() -> list[int]:
    """Return the code points that the cut font keeps."""
    wanted = {ord(character) for character in OTHERS}
    for first, last in RANGES:
        wanted.update(range(first, last + 1))
    return sorted(wanted - UNASSIGNED)


def cut(source: Path, target: Path) -> None:
    """Write the chosen part of a font, its rules for formulas included."""
    options = subset.Options(
        flavor="woff2", layout_features=["*"], drop_tables=["DSIG"]
    )
    font = subset.load_font(str(source), options)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=characters())
    cutter.subset(font)
    missing = set(characters()) - set(font.getBestCmap())
    if missing:
        raise SystemExit(f"the font lacks {sorted(map(chr, missing))}")
    font["head"].modified = font["head"].created  # the same bytes each time
    font.recalcTimestamp = False
    subset.save_font(font, str(target), options)


def main() -> None:
    """Fetch the font, cut it, and say how much is left."""
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subprocess.run(
            ["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (packed,) = folder.glob("*.tgz")
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        source = folder / "package" / FONT
        target = TARGET / "stix-two-math.woff2"
        cut(source, target)
        shutil.copyfile(folder / "package" / "LICENSE", TARGET / "LICENSE")
        print(
            f"{PACKAGE} {VERSION}: {source.stat().st_size} bytes, "
            f"{target.stat().st_size} of them kept"
        )


if __name__ == "__main__":
    main()
