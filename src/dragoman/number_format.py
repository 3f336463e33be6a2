"""Numbers with units, as text. Free of rich, so that libraries without a terminal can use it."""


def count(number: float) -> str:
    """A count with thousands separators: 12,345."""
    return f"{number:,.0f}"


def percent(share: float) -> str:
    """A share of 1 as a whole percentage: 0.864 is `86 %`."""
    return f"{100 * share:.0f} %"


def size(number_bytes: float) -> str:
    """A number of bytes in a fitting unit. Units are decimal, as for disks and networks."""
    for unit in ("B", "kB", "MB", "GB"):
        if number_bytes < 1000:
            return f"{number_bytes:.0f} {unit}" if unit == "B" else f"{number_bytes:.1f} {unit}"
        number_bytes /= 1000
    return f"{number_bytes:.1f} TB"


def span(seconds: float) -> str:
    """A duration in its two largest units: `3 min 05 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
