"""Options: names, parsing and checks. Pure: no broker is asked."""
