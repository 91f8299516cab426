"""The product's settings with a data directory of this test run's own, which ends with it."""
from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_data = tempfile.mkdtemp(prefix="hlo-triage-test-")
atexit.register(shutil.rmtree, _data, ignore_errors=True)
os.environ["TRIAGE_DATA"] = _data
os.environ["TRIAGE_REDIS_PREFIX"] = f"{os.path.basename(_data)}:"

from triage.settings import *  # noqa: E402, F403
from triage.settings import STATIC_ROOT, STORAGES  # noqa: E402

# Hashed names need `collectstatic`; tests inside this process read the sources. The live service does it the real way.
STORAGES = {**STORAGES, "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
STATIC_ROOT.mkdir()
