"""Numbers, prices, dates and times of day in both languages."""

from dragoman.corpus.demo.lexicon import Phrase

ENGLISH_NUMERALS = "zero one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
GERMAN_NUMERALS = "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split()  # noqa: SIM905


def number(value: int) -> Phrase:
    """A number in words up to twelve, else in digits, with a comma (English) or point (German) for thousands."""
    if value < len(ENGLISH_NUMERALS):
        return Phrase(ENGLISH_NUMERALS[value], GERMAN_NUMERALS[value])
    return Phrase(f"{value:,}", f"{value:,}".replace(",", "."))


def price(cents: int) -> Phrase:
    """A price as the object of "cost", in the accusative."""
    euros, rest = divmod(cents, 100)
    if cents == 100:
        return Phrase("one euro", "einen Euro")
    whole = number(euros)
    if rest:
        return Phrase(f"{euros:,}.{rest:02} euros", f"{euros:,}".replace(",", ".") + f",{rest:02} Euro")
    return Phrase(f"{whole.en} euros", f"{whole.de} Euro")


def date(day: int, month: Phrase, year: int | None = None) -> Phrase:
    tail = "" if year is None else f" {year}"
    return Phrase(f"on {day} {month.en}{tail}", f"am {day}. {month.de}{tail}")


def clock_time(hour: int, minute: int) -> Phrase:
    """A time of day from one to eleven: "half past three" is "halb vier", literally half four."""
    this, following = number(hour), number(hour + 1)
    if minute == 0:
        return Phrase(f"at {this.en} o'clock", f"um {'ein' if hour == 1 else this.de} Uhr")
    if minute == 15:
        return Phrase(f"at a quarter past {this.en}", f"um Viertel nach {this.de}")
    if minute == 30:
        return Phrase(f"at half past {this.en}", f"um halb {following.de}")
    if minute == 45:
        return Phrase(f"at a quarter to {following.en}", f"um Viertel vor {following.de}")
    return Phrase(f"at {hour}:{minute:02}", f"um {hour}:{minute:02} Uhr")
