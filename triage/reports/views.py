"""The drafts of a module: one per pattern of copies, as pages and as files."""
from __future__ import annotations

import re

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from triage.reports.draft.document import PROGRAM
from triage.reports.elsewhere import elsewhere
from triage.reports.github import prefilled
from triage.reports.subjects import find_draft, find_report, public_link
from triage.viewer.lookup import download, page

MAX_PATTERNS = 50       # that the overview lists; all are in report.json


@page
def issues(request: HttpRequest, dump_id: str, module: int) -> HttpResponse:
    """One line per pattern; a module of one pattern goes straight to its draft."""
    found, report = find_report(dump_id, module)
    hints = elsewhere(report)
    if len(report["patterns"]) == 1 and not hints:
        return redirect("issue", dump_id, module, 1)
    return render(request, "reports/issues.html", {
        "dump": found, "module": report, "index": module, "patterns": report["patterns"][:MAX_PATTERNS],
        "more": max(0, len(report["patterns"]) - MAX_PATTERNS), "elsewhere": hints})


@page
def issue(request: HttpRequest, dump_id: str, module: int, pattern: int) -> HttpResponse:
    found, report = find_report(dump_id, module)
    draft = find_draft(found, module, report, pattern, public_link(request, found))
    context = {"dump": found, "module": report, "index": module, "pattern": pattern, "draft": draft,
               "is_program": draft.address == PROGRAM}
    context["github"], context["cut"] = prefilled(draft.title, draft.body)
    return render(request, "reports/issue.html", context)


@download
def issue_markdown(request: HttpRequest, dump_id: str, module: int, pattern: int) -> HttpResponse:
    found, report = find_report(dump_id, module)
    draft = find_draft(found, module, report, pattern, public_link(request, found))
    name = re.sub(r"[^\w.-]", "_", report["name"], flags=re.ASCII)[:100] or "module"
    return HttpResponse(draft.text, content_type="text/markdown; charset=utf-8",
                        headers={"Content-Disposition": f'attachment; filename="{name}-issue-{pattern}.md"'})
