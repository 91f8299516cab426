"""Changes that are worth a try, none of them measured yet: what `knowledge` allows for this dump's passes and version."""
from __future__ import annotations

from .knowledge import PassFacts, Releases, pass_facts
from .knowledge.advice import auto_layout, disable_advice
from .sentences import plural

#: Passes that copy because a value has another layout than its user wants: with the layouts free there is nothing to copy.
_LAYOUT_PASSES = ("layout-assignment", "layout_normalization")


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
            ids = found.setdefault(key, {**remedy, "copies": []})["copies"]
            if copy["id"] not in ids:       # a pass can be what introduced a copy and what triggered it
                ids.append(copy["id"])
    ordered = sorted(found.values(), key=lambda remedy: -len(remedy["copies"]))
    return [{**remedy, "sentence": _sentence(remedy)} for remedy in ordered]


def cannot_disable(copies: list[dict]) -> list[dict]:
    """The passes that introduced or triggered copies and must run: pass and why."""
    runs = [run for copy in copies for run in (copy["introduced_by"], copy["trigger"]) if run]
    facts = [found for name in dict.fromkeys(run["pass"] for run in runs) if (found := pass_facts(name)) is not None]
    return [{"pass": found.name, "why": found.why_not} for found in facts if found.disable == "no"]


def _of_copy(copy: dict, releases: Releases, platform: str | None) -> list[dict]:
    result: list[dict] = []
    introduced = copy["introduced_by"]["pass"] if copy["introduced_by"] else None
    if copy["trigger"]:
        result += _of_pass(copy["trigger"]["pass"], releases, platform, "suspected trigger: ")
    # Hoisting a conversion costs what converting in the loop costs at its peak: leaving it there saves nothing.
    if introduced and copy["kind"] != "convert":
        result += _of_pass(introduced, releases, platform)
        if (facts := pass_facts(introduced)) is not None and facts.attribute:
            result += _by_attribute(facts, releases)
    if copy["kind"] == "transpose" and introduced in _LAYOUT_PASSES:
        result += _by_layout(releases)
    if copy["kind"] == "transpose" and copy["origin"] == "program":
        result.append(_remedy("store_transposed", Releases(), True, reason=(
            "the transpose is the program's own: store the parameter in the order in which it is read")))
    return result


def _of_pass(name: str, releases: Releases, platform: str | None, prefix: str = "") -> list[dict]:
    advice = disable_advice(name, releases, platform)
    if advice.action == "none":
        return []
    by_name = advice.action == "disable_pass"
    return [_remedy(advice.action, advice.valid, advice.certain, pass_=name if by_name else None, flag=advice.flag,
                    reason=prefix + advice.reason if by_name else advice.reason)]


def _by_attribute(facts: PassFacts, releases: Releases) -> list[dict]:
    valid = facts.attribute_releases
    if not releases.meets(valid):
        return []
    return [_remedy("loop_attribute", valid, releases.within(valid), pass_=facts.name, reason=(
        f"`with jax.experimental.xla_metadata.set_xla_metadata({facts.attribute}=\"true\"):` around the loop keeps what does "
        f"not change in it"))]


def _by_layout(releases: Releases) -> list[dict]:
    auto = auto_layout(releases)
    if auto is None:
        return []
    return [_remedy("auto_layout", auto.valid, auto.certain, scope="all", reason=(
        f"each parameter is then passed in the layout that XLA wants: `jax.jit(step, in_shardings={auto.ask})` with the "
        f"classes of `jax.experimental.layout`, then `jax.device_put` the parameters once as `{auto.read}` says"))]


def _remedy(action: str, valid: Releases, certain: bool, *, pass_: str | None = None, flag: str | None = None,
            scope: str | None = None, reason: str) -> dict:
    return {"action": action, "pass": pass_, "flag": flag, "scope": scope, "valid_for": str(valid), "certain": certain,
            "verified": False, "reason": reason}


def _sentence(remedy: dict) -> str:
    """What to do, in a few words; HLO names in backticks."""
    words = {"disable_pass": f"disable `{remedy['pass']}`", "flag": f"set `{remedy['flag']}`",
             "auto_layout": "let XLA choose the parameters' layouts (AUTO)",
             "store_transposed": "store the parameters transposed",
             "loop_attribute": "mark the loop so that nothing is moved out of it"}
    return f"{words[remedy['action']]}, for {plural(len(remedy['copies']), 'copy')}"
