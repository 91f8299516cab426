"""The front page, uploads, and what scripts ask about a dump."""
from __future__ import annotations

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from triage.dumps import owner
from triage.dumps.form import is_form, read_form, sent_file
from triage.dumps.intake import Readable, UploadRefused, check_length, enqueue, receive
from triage.dumps.models import Dump
from triage.engine.archive import DROP, KEEP
from triage.engine.cost import human_bytes
from triage.engine.printable import one_line
from triage.pages import printable_page
from triage.replays import runs

MAX_LISTED = 50         # uploads of one browser that the front page lists
FORM_BYTES = 64 * 1024  # what a form may add to the file it carries


@require_safe
@printable_page
def home(request: HttpRequest) -> HttpResponse:
    token = owner.token_of(request)
    examples = Dump.objects.filter(is_example=True).prefetch_related("modules")[:1]
    page = render(request, "dumps/home.html", {
        "mine": owner.dumps(token)[:MAX_LISTED] if token else [], "examples": examples,
        "limit": human_bytes(settings.TRIAGE_MAX_UPLOAD_BYTES), "api": request.build_absolute_uri(reverse("api-upload")),
        "rules": {"keep": KEEP, "drop": DROP, "limit": settings.TRIAGE_MAX_UPLOAD_BYTES},
    })
    # Already here: of two first uploads at once, each would bring a token of its own and the page would know one.
    owner.remember(request, page, token or owner.new_token())
    return page


@csrf_exempt    # only so that a form's size is checked before its body is read for the token; _upload asks for the token
@require_POST
def upload(request: HttpRequest) -> HttpResponse:
    """From the browser: an archive as the body (by script, answered with JSON) or in a form."""
    try:
        _check_length(request)
        read_form(request)
        return _upload(request)
    except UploadRefused as refusal:
        if not is_form(request):
            return JsonResponse({"error": str(refusal)}, status=refusal.status)
        return render(request, "dumps/refused.html", {"reason": str(refusal)}, status=refusal.status)


@csrf_protect
def _upload(request: HttpRequest) -> HttpResponse:
    token = owner.token_of(request) or owner.new_token()
    dump = _receive(request, token)
    answer = redirect(dump) if is_form(request) else JsonResponse({"url": dump.get_absolute_url()}, status=201)
    owner.remember(request, answer, token)
    return answer


@csrf_exempt    # for scripts: no cookie is looked at, so a foreign page that posts here gains nothing
@require_http_methods(["POST", "PUT"])      # `curl -T -` puts
def api_upload(request: HttpRequest) -> HttpResponse:
    """An archive as the body or in a form field; answers with the address of the dump and the owner's token."""
    token = owner.new_token()
    plain = request.GET.get("format") == "text" or request.headers.get("Accept", "") == "text/plain"
    try:
        _check_length(request)
        read_form(request)
        dump = _receive(request, token)
    except UploadRefused as refusal:
        if plain:
            return HttpResponse(f"{refusal}\n", status=refusal.status, content_type="text/plain; charset=utf-8")
        return JsonResponse({"error": str(refusal)}, status=refusal.status)
    url = request.build_absolute_uri(dump.get_absolute_url())
    if plain:
        return HttpResponse(f"{url}\n", status=201, content_type="text/plain; charset=utf-8")
    return JsonResponse({"id": dump.id, "url": url, "token": token,
                         "status_url": request.build_absolute_uri(reverse("dump-progress", args=[dump.id])),
                         "report_url": request.build_absolute_uri(reverse("report-json", args=[dump.id]))}, status=201)


@require_safe
def progress(request: HttpRequest, dump_id: str) -> JsonResponse:
    dump = get_object_or_404(Dump, pk=dump_id)
    first = [{**module, "name": one_line(module["name"]), "verdict": one_line(module["verdict"])} for module in dump.first]
    return JsonResponse({"status": dump.status, "phase": one_line(dump.phase), "done": dump.done, "total": dump.total,
                         "files": dump.files, "first": first, "error": one_line(dump.error), "finished": dump.is_finished,
                         "url": dump.get_absolute_url()})


@require_safe
def report_json(request: HttpRequest, dump_id: str) -> HttpResponse:
    """The report, schema `hlo-triage/1`; 409 with one sentence while there is none."""
    dump = get_object_or_404(Dump, pk=dump_id)
    if dump.status == Dump.Status.DONE:
        return HttpResponse(runs.report_json(dump), content_type="application/json")
    return JsonResponse({"error": dump.no_result, "status": dump.status}, status=409)


@require_POST
def retry(request: HttpRequest, dump_id: str) -> HttpResponse:
    """Analyses a failed dump again."""
    if not Dump.objects.filter(pk=dump_id).exists():
        raise Http404
    again = {"status": Dump.Status.QUEUED, "error": "", "attempts": 0, "finished": None, "heartbeat": None}
    if Dump.objects.filter(pk=dump_id, status=Dump.Status.FAILED).update(**again):
        enqueue(Dump.objects.get(pk=dump_id))
    return redirect("dump", dump_id)


def _length(request: HttpRequest) -> int | None:
    """How many bytes the sender announces; None for a body sent in chunks."""
    length = request.META.get("CONTENT_LENGTH") or ""
    return int(length) if length.isdecimal() else None


def _check_length(request: HttpRequest) -> None:
    """Raises UploadRefused for a body over the limit, before Django has stored a form's file on disk."""
    length = _length(request)
    if length is not None:
        check_length(length - FORM_BYTES if is_form(request) else length)


def _receive(request: HttpRequest, token: str) -> Dump:
    name, replay = request.GET.get("name", ""), request.GET.get("replay") == "1"
    if not is_form(request):
        return receive(_body(request), name, length=_length(request), owner_token=token, wants_replay=replay)
    sent = sent_file(request)
    return receive(sent.file, name or sent.name, length=sent.size, owner_token=token, wants_replay=replay)


def _body(request: HttpRequest) -> Readable:
    """The request's body as a stream. `curl -T -` sends it in chunks without a length, which Django takes for empty."""
    if not request.META.get("CONTENT_LENGTH") and request.META.get("wsgi.input_terminated"):
        return request.META["wsgi.input"]
    return request
