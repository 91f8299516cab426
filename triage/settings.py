"""Django's settings. What differs between installations comes from the environment; nothing has to be set."""
from __future__ import annotations

import os
from pathlib import Path

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from triage import env

BASE_DIR = Path(__file__).resolve().parent.parent
#: Everything the service writes is below this directory.
DATA_DIR = env.read_path("TRIAGE_DATA", BASE_DIR / "data")

#: Where `manage.py toolchain add` puts what compiles for other versions, GPUs and TPUs.
TRIAGE_TOOLCHAINS = env.read_path("TRIAGE_TOOLCHAINS", BASE_DIR / ".toolchains")

DEBUG = env.read_bool("DEBUG", False)
SECRET_KEY = env.read_secret_key("SECRET_KEY", DATA_DIR)

# --- limits, in bytes unless the name says otherwise ---
TRIAGE_MAX_UPLOAD_BYTES = env.read_int("TRIAGE_MAX_UPLOAD_BYTES", 2 * 1024**3)
TRIAGE_MAX_UNPACKED_BYTES = env.read_int("TRIAGE_MAX_UNPACKED_BYTES", 20 * 1024**3)
TRIAGE_MAX_FILES = env.read_int("TRIAGE_MAX_FILES", 100_000)
#: Address space of the process that analyses one dump.
TRIAGE_ANALYSIS_MEMORY_BYTES = env.read_int("TRIAGE_ANALYSIS_MEMORY_BYTES", 8 * 1024**3)
#: The longest one background task may run, in seconds.
TRIAGE_TASK_SECONDS = env.read_int("TRIAGE_TASK_SECONDS", 3600)

#: Of one recompile: address space, seconds, bytes of its own dump.
TRIAGE_REPLAY_MEMORY_BYTES = env.read_int("TRIAGE_REPLAY_MEMORY_BYTES", 16 * 1024**3)
TRIAGE_REPLAY_SECONDS = env.read_int("TRIAGE_REPLAY_SECONDS", 300)
TRIAGE_REPLAY_DUMP_BYTES = env.read_int("TRIAGE_REPLAY_DUMP_BYTES", 2 * 1024**3)

# --- who may ask, and how ---
#: The address `manage.py serve` listens on.
HOST = env.read_str("HOST", "127.0.0.1")
PORT = env.read_int("PORT", 8000, least=0)
#: Its own machine is always answered: that is how the service checks its health.
ALLOWED_HOSTS = [*env.read_list("ALLOWED_HOSTS", [HOST]), "localhost", "127.0.0.1", "[::1]"]
CSRF_TRUSTED_ORIGINS = env.read_list("CSRF_TRUSTED_ORIGINS", [])
#: Set this only behind a proxy that ends TLS and always sets or removes X-Forwarded-Proto itself.
if env.read_bool("TRIAGE_TLS_PROXY", False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SECURE_HSTS_SECONDS = 30 * 24 * 3600
SECURE_REFERRER_POLICY = "same-origin"  # the address of a dump is what protects it
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_AGE = 365 * 24 * 3600  # also of the cookie that tells which dumps this browser uploaded
SESSION_COOKIE_NAME = "triage_session"
CSRF_COOKIE_NAME = "triage_csrf"
CSRF_FAILURE_VIEW = "triage.refusals.csrf_failure"
CSRF_COOKIE_HTTPONLY = False  # the upload script sends it back as a header

# --- how much runs at once, under `manage.py serve` ---
TRIAGE_WEB_PROCESSES = env.read_int("TRIAGE_WEB_PROCESSES", 2)
TRIAGE_WEB_THREADS = env.read_int("TRIAGE_WEB_THREADS", 8)
TRIAGE_WORKER_PROCESSES = env.read_int("TRIAGE_WORKER_PROCESSES", max(1, min(4, (os.cpu_count() or 2) // 2)))
TRIAGE_REPLAY_PROCESSES = env.read_int("TRIAGE_REPLAY_PROCESSES", TRIAGE_WORKER_PROCESSES)
#: Whether the first start compiles and triages a small JAX program, so that the front page has something to show.
TRIAGE_EXAMPLE = env.read_bool("TRIAGE_EXAMPLE", True)

INSTALLED_APPS = [
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "triage",
    "triage.dumps",
    "triage.jobs",
    "triage.viewer",
    "triage.reports",
    "triage.replays",
]
MIDDLEWARE = [
    "triage.middleware.security_headers",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "triage.urls"
WSGI_APPLICATION = "triage.wsgi.application"
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "DIRS": [BASE_DIR / "templates"],
    "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False
# A folder dropped into a form without JavaScript is one multipart request with a part for every file.
DATA_UPLOAD_MAX_NUMBER_FILES = TRIAGE_MAX_FILES

# --- database ---
_SQLITE_OPTIONS = {
    # Readers never wait for a writer, and a write transaction takes its lock at the start instead of failing half-way.
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    "transaction_mode": "IMMEDIATE",
    "timeout": 30,  # seconds to wait for another process's write
}
try:
    _database = dj_database_url.parse(
        env.read_str("DATABASE_URL", f"sqlite:///{DATA_DIR}/triage.sqlite3"), conn_max_age=60, conn_health_checks=True)
except (ValueError, KeyError):
    # Not repeated in the message: it may hold a password.
    raise ImproperlyConfigured("DATABASE_URL cannot be read; use postgres://USER:PASSWORD@HOST:5432/NAME.") from None
if _database["ENGINE"].endswith("sqlite3"):
    _database["OPTIONS"] = {**_SQLITE_OPTIONS, **_database.get("OPTIONS", {})}
DATABASES = {"default": _database}

# --- files ---
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = env.read_path("TRIAGE_STATIC_ROOT", DATA_DIR / "static")
MEDIA_ROOT = DATA_DIR / "files"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": str(MEDIA_ROOT)}},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage" if DEBUG
                    else "triage.static.HashedStaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = DEBUG

# --- Redis: broker and cache; the database is the record ---
REDIS_URL = env.read_url("REDIS_URL", ("redis", "rediss"))
#: Keeps several installations apart in one Redis.
REDIS_PREFIX = env.read_str("TRIAGE_REDIS_PREFIX", "hlo-triage:")
if REDIS_URL:
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL,
                          "KEY_PREFIX": REDIS_PREFIX + "cache"}}
else:
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

# Port 0 answers nobody: without REDIS_URL a task that is sent fails, instead of landing in a stranger's queue.
CELERY_BROKER_URL = REDIS_URL or "redis://127.0.0.1:0/0"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": REDIS_PREFIX,
    "visibility_timeout": TRIAGE_TASK_SECONDS + 600,  # a task is handed out again only when its first run must be dead
    "socket_timeout": 30,
    "socket_connect_timeout": 5,
}
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 2, "interval_start": 0.2, "interval_step": 0.2, "interval_max": 1}
CELERY_TASK_ROUTES = {"triage.replays.tasks.*": {"queue": "replay"}}
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_TIME_LIMIT = TRIAGE_TASK_SECONDS
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_MAX_TASKS_PER_CHILD = 50  # gives memory of large dumps back
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"

# --- logs: names and numbers, never the text of a dump ---
_LOG_LEVEL = env.read_choice("TRIAGE_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "filters": {"one line": {"()": "triage.refusals.OneLine"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain", "filters": ["one line"]}},
    "root": {"handlers": ["console"], "level": _LOG_LEVEL},
    "loggers": {
        "django": {"handlers": ["console"], "level": "INFO", "propagate": False},
        "kombu": {"level": "WARNING"},
        "amqp": {"level": "WARNING"},
    },
}
