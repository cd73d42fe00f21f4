"""The values of JSON as cells of typed columns: which value becomes what in a column of which type.

Owns the rules of docs/typed-columns.md. Readers of JSON use them for values that Arrow refuses, and
`produce -f csv` for the cells of a row. Needs no pyarrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from enum import Enum, auto
from typing import Any, Final


class Unfit(Enum):
    """What stands for a cell that its column cannot hold; such a cell is null, and is counted."""

    UNFIT = auto()


UNFIT: Final = Unfit.UNFIT
Conversion = Callable[[Any], Any]
"""Converts a value that is not null, as `parsed` returns them; returns `UNFIT` if it does not fit.

Text stands for what it says: "5" is a number, as it is in CSV.
"""


class Number(str):
    """A number of JSON, as it is written."""

    __slots__ = ()


_BOM = "\ufeff"
_SHORT_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,38})")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)((?:[eE][+-]?[0-9]{1,9})?)")
"""As people and other programs write them: 007, +5, .5, 5."""
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[ T]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6})[0-9]*)?)?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_US_PER_S = 1_000_000
_DAY_S = 86_400
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DIGITS_MAX = 76
"""Of a decimal of Arrow with 256 bits; Spark's have at most 38."""
_EXACT = Context(prec=2 * _DIGITS_MAX + 2)


_DECODER = json.JSONDecoder(
    parse_float=Number,
    parse_int=Number,
    # NaN and Infinity without quotes are no JSON, and many programs write them.
    parse_constant=lambda _: UNFIT,
)


def parsed(value: bytes) -> Any:
    """The value of a text in JSON, with each number as a `Number`, and `UNFIT` for NaN.

    Of a name that is there twice, the last value counts. Raises `ValueError` for a text that is not
    JSON, and `RecursionError` for one that is nested too deeply for this interpreter.
    """
    return _DECODER.decode(value.decode(errors="surrogateescape").removeprefix(_BOM))


def text(cell: Any) -> Any:
    """The text; a number as it is written; an object or a list as compact JSON."""
    if isinstance(cell, str):
        found = str(cell)
    else:
        try:
            found = _encoded(cell)
        except (RecursionError, TypeError):
            return UNFIT
    return found if found.isascii() or _is_unicode(found) else UNFIT


def utf8(cell: Any) -> Any:
    """The bytes of the text."""
    if type(cell) is not str:
        found = text(cell)
        return found if found is UNFIT else found.encode()
    try:
        return cell.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return UNFIT


def boolean(cell: Any) -> Any:
    """True or false; also as text, in any case."""
    if isinstance(cell, bool):
        return cell
    if type(cell) is str:
        return {"true": True, "false": False}.get(cell.lower(), UNFIT)
    return UNFIT


def number(cell: Any) -> Any:
    """The number as JSON writes it, from a number or from text that is one."""
    if not isinstance(cell, str):
        return UNFIT
    if _JSON_NUMBER.fullmatch(cell):
        return str(cell)
    found = _NUMBER.fullmatch(cell)
    if found is None or not (found[2] or found[3]):
        return UNFIT
    sign, whole, fraction, exponent = found.groups()
    return (
        ("-" if sign == "-" else "")
        + (whole.lstrip("0") or "0")
        + (f".{fraction}" if fraction else "")
        + exponent
    )


def floating(cell: Any) -> Any:
    """The number as JSON writes it, or the text NaN, Infinity or -Infinity."""
    return cell if type(cell) is str and cell in _NOT_FINITE else number(cell)


def integer(bits: int, *, is_signed: bool = True) -> Conversion:
    """Whole numbers of so many bits; 5.0 and 5e2 are whole."""
    low = -(1 << (bits - 1)) if is_signed else 0
    high = (1 << (bits - is_signed)) - 1

    def cell_of(cell: Any) -> Any:
        literal = cell if isinstance(cell, str) else UNFIT
        if literal is UNFIT:
            return UNFIT
        if _SHORT_INTEGER.fullmatch(literal):
            found = int(literal)
        else:
            literal = number(literal)
            exact = UNFIT if literal is UNFIT else _scaled(literal, 0)
            if exact is UNFIT:
                return UNFIT
            found = int(exact)
        return found if low <= found <= high else UNFIT

    return cell_of


def decimal(precision: int, scale: int) -> Conversion:
    """Decimals with so many digits, `scale` of them behind the point; nothing is rounded."""

    def cell_of(cell: Any) -> Any:
        literal = number(cell)
        exact = UNFIT if literal is UNFIT else _scaled(literal, scale)
        if exact is UNFIT or (exact and exact.adjusted() >= precision - scale):
            return UNFIT
        return exact

    return cell_of


def timestamp_us(cell: Any) -> Any:
    """Microseconds since the epoch, from ISO 8601; UTC without a zone. More digits are cut."""
    found = _TIME.fullmatch(cell) if type(cell) is str else None
    if found is None:
        return UNFIT
    year, month, day, hour, minute, second = (int(each or 0) for each in found.groups()[:6])
    if not 1 <= month <= 12 or not 1 <= day <= _days_of(year, month):
        return UNFIT
    if hour > 23 or minute > 59 or second > 59:
        return UNFIT
    offset_s = _offset_s(found[8])
    if offset_s is None:
        return UNFIT
    seconds = _day_number(year, month, day) * _DAY_S + hour * 3_600 + minute * 60 + second
    return (seconds - offset_s) * _US_PER_S + int((found[7] or "").ljust(6, "0"))


def date_days(cell: Any) -> Any:
    """Days since the epoch, from ISO 8601; of a time, the day in UTC."""
    found = timestamp_us(cell)
    return found if found is UNFIT else found // (_DAY_S * _US_PER_S)


def _encoded(cell: Any) -> str:
    """A value as compact JSON, its numbers as they are written. Raises `TypeError` for NaN."""
    if isinstance(cell, Number):
        return str(cell)
    if isinstance(cell, dict):
        fields = (f"{_encoded(name)}:{_encoded(each)}" for name, each in cell.items())
        return "{" + ",".join(fields) + "}"
    if isinstance(cell, list):
        return "[" + ",".join(map(_encoded, cell)) + "]"
    return json.dumps(cell, ensure_ascii=False)


def _is_unicode(found: str) -> bool:
    """Whether it has no half of a surrogate pair, and came from bytes that are UTF-8."""
    try:
        found.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scaled(literal: str, scale: int) -> Decimal | Unfit:
    """The number with `scale` digits behind the point, if it has no more and is not too large."""
    try:
        exact = Decimal(literal)
    except InvalidOperation:  # an exponent that no decimal has
        return UNFIT
    if exact and (exact.adjusted() > _DIGITS_MAX or exact.adjusted() < -scale):
        return UNFIT
    rounded = exact.quantize(Decimal(1).scaleb(-scale), context=_EXACT) if exact else Decimal(0)
    return rounded if rounded == exact else UNFIT


def _offset_s(zone: str | None) -> int | None:
    """Seconds east of UTC; None for a zone that does not exist."""
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        return None
    return (hours * 3_600 + minutes * 60) * (-1 if zone[0] == "-" else 1)


def _days_of(year: int, month: int) -> int:
    if month == 2 and (year % 4 or (year % 100 == 0 and year % 400)):
        return 28
    return _MONTH_DAYS[month - 1]


def _day_number(year: int, month: int, day: int) -> int:
    """Days since the epoch, in the Gregorian calendar; source: days_from_civil of H. Hinnant."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468
