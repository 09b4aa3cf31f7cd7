"""What a page of the built site weighs, and how much it may."""

import gzip

from built_site import Result, Site

#: Bytes that the data of all figures of a page may take, compressed as one
#: file: a reader on a phone loads them before the first figure moves.
FIGURE_DATA_BYTES = 60_000


def check_figure_data(site: Site) -> Result:
    """Each page's recordings fit into the budget of a page."""
    result = Result("pages' figure data, gzipped")
    for path, soup in site.pages.items():
        states = [
            tag.get_text()
            for tag in soup.find_all("script", class_="attn-state")
        ]
        if not states:
            continue
        result.looked_at += 1
        size = len(gzip.compress("\n".join(states).encode()))
        if size > FIGURE_DATA_BYTES:
            result.faults.append(
                f"{site.name(path)}: {len(states)} recordings bring {size} "
                f"bytes, more than {FIGURE_DATA_BYTES}"
            )
    return result
