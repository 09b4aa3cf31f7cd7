"""The committed MathJax is the chosen part of the chosen version."""

import pytest

import vendor


def files_below(folder):
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    )


@pytest.fixture
def package(tmp_path):
    """Write an empty stand-in for the unpacked npm package."""
    names = (*vendor.FILES, f"{vendor.FONTS}/A.woff", "es5/too-much.js")
    for name in names:
        path = tmp_path / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "package"


def test_copy_has_the_chosen_files_and_forgets_older_ones(package, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "old.js").touch()
    vendor.copy_subset(package, target)
    once = files_below(target)
    vendor.copy_subset(package, target)
    assert files_below(target) == once
    assert "tex-mml-chtml.js" in once
    assert "output/chtml/fonts/woff-v2/A.woff" in once
    assert {"old.js", "too-much.js"}.isdisjoint(once)


def test_package_without_fonts_is_refused(package, tmp_path):
    (package / vendor.FONTS / "A.woff").unlink()
    with pytest.raises(SystemExit, match="has no fonts"):
        vendor.copy_subset(package, tmp_path / "target")


def test_committed_copy_is_of_this_version_and_this_list():
    files = files_below(vendor.TARGET)
    fonts = [name for name in files if name.endswith(".woff")]
    chosen = [name.removeprefix("es5/") for name in vendor.FILES]
    assert fonts
    assert files == sorted([*chosen, *fonts, "VERSION"])
    version = (vendor.TARGET / "VERSION").read_text(encoding="utf-8")
    assert version == f"mathjax {vendor.VERSION}\n"
