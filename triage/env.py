"""Settings from the environment. A value that cannot be used stops the start with the variable's name."""
from __future__ import annotations

import os
import secrets
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def read_str(name: str, default: str) -> str:
    """The variable's value; an empty one counts as unset, as compose files pass unset variables on that way."""
    return os.environ.get(name, "").strip() or default


def read_bool(name: str, default: bool) -> bool:
    value = read_str(name, "1" if default else "0")
    if value.lower() not in _BOOLEANS:
        raise ImproperlyConfigured(f"{name} is {value!r}; use 1 or 0.")
    return _BOOLEANS[value.lower()]


def read_int(name: str, default: int, *, least: int = 1) -> int:
    value = read_str(name, str(default))
    try:
        number = int(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {value!r}; use a whole number.") from None
    if number < least:
        raise ImproperlyConfigured(f"{name} is {number}; use {least} or more.")
    return number


def read_choice(name: str, default: str, choices: tuple[str, ...]) -> str:
    value = read_str(name, default)
    if value not in choices:
        raise ImproperlyConfigured(f"{name} is {value!r}; use one of {', '.join(choices)}.")
    return value


def read_list(name: str, default: list[str]) -> list[str]:
    """Comma-separated values without blanks."""
    return [part.strip() for part in read_str(name, ",".join(default)).split(",") if part.strip()]


def read_path(name: str, default: Path) -> Path:
    path = Path(read_str(name, str(default))).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise ImproperlyConfigured(f"{name} is {path}, which is not a directory.")
    return path


def read_url(name: str, schemes: tuple[str, ...]) -> str:
    """A URL with one of the schemes, or "" when unset."""
    value = read_str(name, "")
    if value and value.split("://")[0] not in schemes:
        # Not repeated in the message: it may hold a password.
        raise ImproperlyConfigured(f"{name} must start with {' or '.join(s + '://' for s in schemes)}.")
    return value


def read_secret_key(name: str, data: Path) -> str:
    """The variable, else the key kept in `data`, made there at the first start, be it by several processes at once."""
    if key := read_str(name, ""):
        return key
    path = data / "secret_key"
    try:
        if not path.exists():
            data.mkdir(parents=True, exist_ok=True)
            draft = data / f".secret_key.{secrets.token_hex(8)}"
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(48))
            try:
                os.link(draft, path)  # fails where another process was faster: its key counts
            except FileExistsError:
                pass
            draft.unlink()
        key = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"The data directory {data} cannot be used ({error.strerror}); set TRIAGE_DATA to one that can be written."
        ) from None
    if not key:
        raise ImproperlyConfigured(f"{path} is empty; delete it to have a new key made, or set {name}.")
    return key
