"""Columns of Arrow made of records; needs the `arrow` extra, so nothing imports it early."""

try:
    import numpy  # noqa: F401
    import pyarrow  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"reading columns needs {error.name}: pip install 'millrace[arrow]'", name=error.name
    ) from error
