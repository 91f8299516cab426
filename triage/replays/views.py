"""Asking for a replay, watching it, ending it."""
from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.pages import printable_page
from triage.replay.source import NoReplay
from triage.replays import runs
from triage.replays.child import REPRODUCE
from triage.replays.models import Run
from triage.replays.page import replay_context
from triage.viewer.lookup import NotReady, find_module


@require_http_methods(["GET", "HEAD", "POST"])
@printable_page
def replay(request: HttpRequest, dump_id: str, module: int) -> HttpResponse:
    """GET: the part of the module's page on remedies, as it is now. POST: starts a replay, or finds the one there is."""
    try:
        dump, report = find_module(dump_id, module)
    except NotReady as waiting:
        return redirect("dump", waiting.dump.id)
    if request.method == "POST":
        refused = _start(request, dump, report)
        if refused:
            return render(request, "replays/refused.html", {"reason": refused, "dump": dump, "module": report}, status=400)
        return redirect(reverse("module", args=[dump_id, module]) + "#remedies")
    report = runs.with_replays(dump, report)
    response = render(request, "replays/_remedies.html", {"dump": dump, "module": report, **replay_context(dump, report)})
    response["Cache-Control"] = "no-store"
    return response


def _start(request: HttpRequest, dump, report: dict) -> str:
    """Starts what the form asks for; one sentence where it cannot be."""
    gpu = request.POST.get("gpu", "")
    try:
        source = runs.source(dump, report, gpu)
    except NoReplay as reason:
        return str(reason)
    name = request.POST.get("toolchain", "")
    toolchain = runs.find_toolchain(name) if name else runs.default_toolchain(report, source.platform)
    if toolchain is None or toolchain.platform != source.platform:
        return f"This service has no {'such ' if name else ''}toolchain for {source.platform}."
    runs.start(dump, report, toolchain, gpu if runs.needs_gpu(dump, report) else "")
    return ""


@require_POST
def cancel(request: HttpRequest, dump_id: str, module: int) -> HttpResponse:
    for run in Run.objects.filter(dump=dump_id, module=module):
        runs.cancel(run)
    return redirect(reverse("module", args=[dump_id, module]) + "#remedies")


@require_POST
def reproduce(request: HttpRequest, dump_id: str, module: int) -> HttpResponse:
    """Has the module of a run that is measured cut down to a small program."""
    run = runs.best_run(get_object_or_404(Dump, pk=dump_id), module)
    if run is None or not storage.load_report(run.dump)["modules"][module]["copies"]:
        raise Http404("nothing was compiled yet, or nothing is copied")
    runs.start_reproducer(run)
    return redirect(reverse("module", args=[dump_id, module]) + "#remedies")


@require_safe
def reproducer_text(request: HttpRequest, dump_id: str, module: int) -> HttpResponse:
    """The small program as a file."""
    run = runs.best_run(get_object_or_404(Dump, pk=dump_id), module)
    trial = run.trials.filter(key=REPRODUCE).exclude(row=None).first() if run is not None else None
    if trial is None or trial.row["status"] != "ok":
        raise Http404("there is no reproducer")
    response = HttpResponse(trial.row["reproducer"]["text"], content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="repro.hlo"'
    return response
