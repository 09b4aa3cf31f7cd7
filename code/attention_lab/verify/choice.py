"""Which checks of a battery are to run."""

from collections.abc import Collection


def chosen_checks(
    only: Collection[str] | None, names: Collection[str]
) -> frozenset[str]:
    """Return the names in `only`, or all if it is None.

    Raises
    ------
    ValueError
        If a name is no check's; lists those that are.
    """
    if only is None:
        return frozenset(names)
    if isinstance(only, str) or not set(only) <= set(names):
        raise ValueError(
            f"only must be a collection of {', '.join(sorted(names))}, not "
            f"{only!r}"
        )
    return frozenset(only)
