#!/usr/bin/env python
"""Chrono's commands: `python manage.py help` lists them."""

import os
import sys


def main() -> None:
    """Run the command; a wrong setting or an unreachable database is one line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chrono.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db import OperationalError
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error.name} is not installed: run `make setup`")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"error: {error}")
    except OperationalError as error:
        reason = " ".join(str(error).split())
        sys.exit(f"error: the database does not answer: {reason}")


if __name__ == "__main__":
    main()
