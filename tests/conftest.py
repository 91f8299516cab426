"""Fixtures for all tests: real dumps, a real service, a real browser. Nothing here is simulated."""
from __future__ import annotations

import os
import secrets
import shutil
import tarfile
from pathlib import Path
from typing import Callable, Iterator

import psycopg
import pytest
import redis
from django.conf import settings
from psycopg import sql

from triage.serve import Options, Service

ROOT = Path(__file__).resolve().parent.parent
SHARED_DUMPS = ROOT.parent / "shared" / "dumps"
#: Chromium must not talk to anybody but the service.
CHROMIUM_ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
                 "--disable-default-apps", "--disable-sync", "--no-default-browser-check", "--no-first-run"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        in_browser = "browser" in fixtures
        if in_browser:
            item.add_marker(pytest.mark.browser)
        if "service" in fixtures:
            item.add_marker(pytest.mark.xdist_group("service"))  # one process of the run starts it
        if not in_browser and (fixtures & {"service", "start_service", "db"} or item.get_closest_marker("django_db")):
            item.add_marker(pytest.mark.services)


@pytest.fixture(scope="session")
def shared_dumps() -> Path:
    """Directory of the real dumps (`*.tar.xz`)."""
    if not SHARED_DUMPS.is_dir():
        pytest.skip("no ../shared/dumps beside the checkout")
    return SHARED_DUMPS


@pytest.fixture(scope="session")
def unpack_dump(shared_dumps: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`unpack_dump("h100-jaxlib0.10.2-attn_heads")` is that dump's directory, unpacked once: only to be read."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared-dumps"

    def unpack(name: str) -> Path:
        if not (folder / name).exists():
            draft = folder / f".{name}.{secrets.token_hex(4)}"
            with tarfile.open(shared_dumps / f"{name}.tar.xz") as tar:
                tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.0 to 3.11.3 have none
                tar.extractall(draft)
            try:
                draft.rename(folder / name)
            except OSError:  # another process of the run was faster
                shutil.rmtree(draft)
        return folder / name / name

    return unpack


def service_environment(**changes: str) -> dict[str, str]:
    """The environment of a service of the tests': the machine's, without this run's own settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRIAGE_", "DJANGO_"))}
    return {**kept, "DJANGO_SETTINGS_MODULE": "triage.settings", **changes}


@pytest.fixture(scope="session")
def start_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Service]]:
    """`start_service(NAME="value", ...)` starts a service of its own, with the variables set; it ends with the run.

    Each has its own data, database and Redis keys, on the servers that DATABASE_URL and REDIS_URL name, if they do.
    """
    services: list[Service] = []
    databases: list[str] = []

    def start(example: bool = False, **changes: str) -> Service:
        data = tmp_path_factory.mktemp("service")
        if "DATABASE_URL" in os.environ and "DATABASE_URL" not in changes:
            databases.append(f"triage_service_{secrets.token_hex(6)}")
            changes["DATABASE_URL"] = _create_database(databases[-1])
        environment = service_environment(TRIAGE_REDIS_PREFIX=f"{data}:", **changes)
        options = Options(host="127.0.0.1", port=0, data=data, web_processes=1, worker_processes=1, example=example)
        service = Service(options, environment, (data / "service.log").open("w", encoding="utf-8"))
        services.append(service)
        service.start()
        return service

    yield start
    for service in services:
        service.stop()
        _forget_keys(f"{service.options.data}:")
    for name in databases:
        _execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def service(start_service: Callable[..., Service]) -> Service:
    """A running service that tests share; `service.options.data / "service.log"` is its log."""
    return start_service()


@pytest.fixture(scope="session")
def live_service(service: Service) -> str:
    """Address of the shared service, without a slash at the end: web server, worker and broker are real processes."""
    return service.url


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """Chromium, as Playwright's `Browser`. Where there is none it skips, or fails with TRIAGE_REQUIRE_BROWSER=1."""
    path = os.environ.get("TRIAGE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not path:
        give_up = pytest.fail if os.environ.get("TRIAGE_REQUIRE_BROWSER") == "1" else pytest.skip
        give_up("no chromium on the PATH (apt-get install chromium): browser tests did not run")
    from playwright.sync_api import sync_playwright

    # Playwright keeps an event loop running in this thread, in which Django would refuse the database.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser) -> Iterator[object]:
    """A page in a context of its own. The test fails if a script of it fails or the security policy stops something."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(20_000)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if "Content Security Policy" in line.text else None)
    yield page
    context.close()
    assert not problems


def _create_database(name: str) -> str:
    _execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return os.environ["DATABASE_URL"].rsplit("/", 1)[0] + f"/{name}"


def _execute(statement: sql.Composed) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(statement)


def _forget_keys(prefix: str) -> None:
    if settings.REDIS_URL:
        with redis.Redis.from_url(settings.REDIS_URL) as client:
            for key in client.scan_iter(match=f"{prefix}*"):
                client.delete(key)
