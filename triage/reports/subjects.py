"""A module's findings as subjects of drafts: its report with what replays measured, and the texts to quote from."""
from __future__ import annotations

import ipaddress

from django.http import Http404, HttpRequest

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.replays import runs
from triage.reports.draft import Draft, Subject, draft
from triage.reports.excerpt import Line, copy_lines
from triage.viewer.lookup import find_module
from triage.viewer.texts import Texts


def find_report(dump_id: str, module: int) -> tuple[Dump, dict]:
    """(dump, module of its report with its replays). Raises NotReady or Http404."""
    found, report = find_module(dump_id, module)
    return found, runs.with_replays(found, report)


def find_draft(found: Dump, module: int, report: dict, number: int, link: str = "") -> Draft:
    """The draft for pattern `number`, from 1. `link`: the address of the dump's page, "" to leave it out. Raises Http404."""
    if not 1 <= number <= len(report["patterns"]):
        raise Http404("no such pattern")
    run = runs.best_run(found, module)
    history = run.history if run is not None and report.get("history") == "replayed" else None
    source, index = (history, 0) if history else (found, module)

    def excerpt(stage: int, copy_id: str) -> list[Line]:
        return copy_lines(storage.load_stage(source, index, stage).record, copy_id, Texts(source, index).load)
    return draft(Subject(report, number - 1, excerpt, storage.load_report(found)["generator"], link))


def public_link(request: HttpRequest, found: Dump) -> str:
    """The address of the dump's page for a text that others read; "" where they cannot reach this service by it."""
    host = request.get_host().rsplit(":", 1)[0].strip("[]")
    return "" if host == "localhost" or host.endswith(".localhost") or _is_loopback(host) else request.build_absolute_uri(
        found.get_absolute_url())


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
