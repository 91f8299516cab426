"""`python -m triage.health_probe`: exit code 0 when the web server of this machine is healthy, for containers."""
from __future__ import annotations

import os
import sys

from triage.serve import get


def main() -> int:
    try:
        status, body = get(os.environ.get("HOST") or "127.0.0.1", int(os.environ.get("PORT") or 8000), "/healthz")
    except OSError as error:
        sys.exit(f"no answer: {error}")
    print(body)
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
