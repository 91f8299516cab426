#!/usr/bin/env python3
"""Django's command line: `manage.py serve` starts everything, `manage.py triage PATH` analyses one dump."""
import os
import secrets
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "triage.settings")
    if sys.argv[1:2] == ["triage"]:
        # The command line needs no data directory, so it must not make one just to keep a key there.
        os.environ.setdefault("SECRET_KEY", secrets.token_urlsafe(48))
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
