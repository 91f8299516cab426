"""What gunicorn does beyond its options; see serve.web_command."""
from __future__ import annotations

from gunicorn.arbiter import Arbiter
from gunicorn.workers.base import Worker

from triage.tether import die_with_parent


def post_fork(server: Arbiter, worker: Worker) -> None:
    """A process in the middle of a request must not outlive the server it belongs to."""
    die_with_parent(worker.ppid)
