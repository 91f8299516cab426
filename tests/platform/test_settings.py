"""Settings come from the environment, and a bad value stops the start with its name."""
from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from tests.conftest import ROOT, service_environment
from triage import env


def manage(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = service_environment(**changes)
    return subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)


def setting(name: str, **changes: str) -> str:
    done = manage("shell", "--no-imports", "-c", f"from django.conf import settings; print(settings.{name})", **changes)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name, value", [
    ("DEBUG", "maybe"),
    ("PORT", "http"),
    ("TRIAGE_MAX_UPLOAD_BYTES", "2GB"),
    ("TRIAGE_MAX_FILES", "0"),
    ("REDIS_URL", "http://127.0.0.1"),
    ("DATABASE_URL", "nonsense://user:secret@host/name"),
    ("TRIAGE_DATA", str(ROOT / "manage.py")),
    ("TRIAGE_DATA", "/proc/nowhere"),
    ("TRIAGE_LOG_LEVEL", "loud"),
])
def test_a_bad_value_stops_the_start_with_the_name_of_its_variable(tmp_path: Path, name: str, value: str) -> None:
    done = manage("check", **{"TRIAGE_DATA": str(tmp_path), name: value})
    assert done.returncode == 1
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "secret" not in done.stderr


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "")
    assert env.read_int("PORT", 8000) == 8000


def test_the_secret_key_is_made_once_and_kept_from_others(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: env.read_secret_key("NO_SUCH_VARIABLE", data), range(8)))
    assert len(keys) == 1
    assert len(keys.pop()) > 50
    assert [path.name for path in data.iterdir()] == ["secret_key"]
    assert (data / "secret_key").stat().st_mode & 0o777 == 0o600


def test_an_empty_key_file_is_not_taken_for_a_key(tmp_path: Path) -> None:
    (tmp_path / "secret_key").touch()
    with pytest.raises(ImproperlyConfigured, match="secret_key is empty"):
        env.read_secret_key("NO_SUCH_VARIABLE", tmp_path)


def test_a_given_secret_key_is_used_and_nothing_is_written(tmp_path: Path) -> None:
    assert setting("SECRET_KEY", TRIAGE_DATA=str(tmp_path / "data"), SECRET_KEY="given") == "given"
    assert not (tmp_path / "data").exists()


def test_the_command_line_makes_no_data_directory(tmp_path: Path) -> None:
    manage("triage", "--help", TRIAGE_DATA=str(tmp_path / "data"))
    assert not (tmp_path / "data").exists()


def test_debug_is_off_and_only_this_machine_is_answered_by_default(tmp_path: Path) -> None:
    assert setting("DEBUG", TRIAGE_DATA=str(tmp_path)) == "False"
    hosts = setting("ALLOWED_HOSTS", TRIAGE_DATA=str(tmp_path))
    assert set(eval(hosts)) == {"127.0.0.1", "localhost", "[::1]"}


def test_sqlite_is_opened_for_many_processes(tmp_path: Path) -> None:
    done = manage("shell", "--no-imports", "-c", "from django.db import connection as c\n"
                  "with c.cursor() as k: print(k.execute('PRAGMA journal_mode').fetchone(), c.transaction_mode)",
                  TRIAGE_DATA=str(tmp_path), DATABASE_URL="")
    assert done.stdout.strip() == "('wal',) IMMEDIATE", done.stderr
