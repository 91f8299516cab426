"""Changes that are worth a try, none of them measured yet: what `knowledge` allows for this dump's passes and version."""
from __future__ import annotations

from .knowledge import PassFacts, Releases, flag_releases, pass_facts
from .sentences import plural

AUTO_LAYOUT = "xla_pjrt_allow_auto_layout_in_hlo"
HOISTING = "while-loop-invariant-code-motion"


def remedies(copies: list[dict], version: dict | None, platform: str | None) -> list[dict]:
    """Untried remedies by what they would act on, each once: action, pass, flag, scope, copies, valid_for, certain,
    reason, sentence, verified (False).

    `certain`: every jaxlib that may have written the dump accepts it; otherwise `valid_for` must be checked first, since
    an unknown flag aborts the process. What no such jaxlib accepts is left out.
    """
    releases = Releases(version["jaxlib_first"], version["jaxlib_last"]) if version else Releases()
    found: dict[tuple, dict] = {}
    for copy in copies:
        for remedy in _of_copy(copy, releases, platform):
            key = (remedy["action"], remedy["pass"], remedy["flag"])
            found.setdefault(key, {**remedy, "copies": []})["copies"].append(copy["id"])
    ordered = sorted(found.values(), key=lambda remedy: -len(remedy["copies"]))
    return [{**remedy, "sentence": _sentence(remedy)} for remedy in ordered]


def cannot_disable(copies: list[dict]) -> list[dict]:
    """The passes that introduced or triggered copies and must run: pass and why."""
    runs = [run for copy in copies for run in (copy["introduced_by"], copy["trigger"]) if run]
    facts = [found for name in dict.fromkeys(run["pass"] for run in runs) if (found := pass_facts(name)) is not None]
    return [{"pass": found.name, "why": found.why_not} for found in facts if found.disable == "no"]


def _of_copy(copy: dict, releases: Releases, platform: str | None) -> list[dict]:
    result: list[dict] = []
    if copy["trigger"] and (facts := pass_facts(copy["trigger"]["pass"])) is not None:
        result += _of_pass(facts, releases, platform, f"suspected trigger: it {facts.does}")
    if copy["introduced_by"] and (facts := pass_facts(copy["introduced_by"]["pass"])) is not None:
        # Hoisting a conversion costs what converting in the loop costs at its peak: leaving it there saves nothing.
        if copy["kind"] != "convert":
            result += _of_pass(facts, releases, platform, f"it {facts.does}")
    if copy["kind"] == "transpose" and copy["introduced_by"] and copy["introduced_by"]["pass"] == "layout-assignment":
        result.append(_remedy("auto_layout", Releases(flag_releases(AUTO_LAYOUT).first), releases, scope="all", reason=(
            "each parameter is then passed in the layout that XLA wants: `jax.jit(step, in_shardings=Format(Layout.AUTO))`, "
            "then `jax.device_put` the parameters once as `compiled.input_formats` says; older releases of jax name these "
            "differently")))
    if copy["kind"] == "transpose" and copy["origin"] == "program":
        result.append(_remedy("store_transposed", Releases(), releases, reason=(
            "the transpose is the program's own: store the parameter in the order in which it is read")))
    return result


def _of_pass(facts: PassFacts, releases: Releases, platform: str | None, reason: str) -> list[dict]:
    result = []
    for flag in facts.flags:
        known = flag_releases(flag["flag"])
        if known is not None and (platform is None or platform in flag["platforms"]) and releases.meets(known):
            result.append(_remedy("flag", known, releases, flag=flag["flag"], reason=flag["why"]))
    if facts.disable == "yes" and not facts.blunt and releases.meets(facts.releases):
        result.append(_remedy("disable_pass", facts.releases, releases, pass_=facts.name,
                              flag=f"--xla_disable_hlo_passes={facts.name}", reason=reason))
    if facts.attribute:
        result.append(_remedy("loop_attribute", facts.releases, releases, pass_=facts.name, reason=(
            f"`with set_xla_metadata({facts.attribute}=\"true\"):` around the loop keeps its invariants in it")))
    return result


def _remedy(action: str, valid: Releases, releases: Releases, *, pass_: str | None = None, flag: str | None = None,
            scope: str | None = None, reason: str) -> dict:
    return {"action": action, "pass": pass_, "flag": flag, "scope": scope, "valid_for": str(valid),
            "certain": releases.within(valid), "verified": False, "reason": reason}


def _sentence(remedy: dict) -> str:
    """What to do, in a few words; HLO names in backticks."""
    words = {"disable_pass": f"disable `{remedy['pass']}`", "flag": f"set `{(remedy['flag'] or '').lstrip('-').split('=')[0]}`",
             "auto_layout": "let XLA choose the parameters' layouts (AUTO)",
             "store_transposed": "store the parameters transposed",
             "loop_attribute": "mark the loop so that nothing is moved out of it"}
    return f"{words[remedy['action']]}, for {plural(len(remedy['copies']), 'copy')}"
