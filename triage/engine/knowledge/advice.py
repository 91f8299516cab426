"""What to try against a pass, and how JAX's AUTO layouts are spelled: only what the releases in question accept."""
from __future__ import annotations

from dataclasses import dataclass

from . import PassFacts, Releases, flag_is_known_to, flag_releases, may_have_flag, pass_facts

DISABLE = "--xla_disable_hlo_passes"


@dataclass(frozen=True)
class Advice:
    """`action`: "flag" or "disable_pass", both with the whole `flag` for XLA_FLAGS; "none" says why in `reason`.

    `certain`: every release in question accepts it. Otherwise it is conditional: outside `valid_for` a flag may abort the
    process.
    """
    action: str
    reason: str
    flag: str | None = None
    valid: Releases = Releases()
    certain: bool = False

    @property
    def valid_for(self) -> str:
        return str(self.valid)


def disable_advice(name: str, releases: Releases, platform: str | None) -> Advice:
    """How to do without a pass in these releases: by a flag of its own before by its name, what is certain before the rest."""
    facts = pass_facts(name)
    if facts is None:
        return Advice("none", "nothing is known of this pass")
    if facts.disable == "no":
        return Advice("none", f"it must run: {facts.why_not}")
    options = [*_by_flag(facts, releases, platform), *_by_name(facts, releases, platform)]
    if not options:
        return Advice("none", facts.blunt or _why_none(facts, releases, platform))
    return min(options, key=lambda advice: not advice.certain)      # the first of the certain ones, or of all


def _by_flag(facts: PassFacts, releases: Releases, platform: str | None) -> list[Advice]:
    result = []
    for flag in facts.flags:
        if platform is not None and platform not in flag["platforms"] or flag_is_known_to(flag["flag"], releases) is False:
            continue
        # The last of several spans is what a release that is not known would have.
        pairs = zip(flag_releases(flag["flag"]), may_have_flag(flag["flag"]))
        spans = [span for span, possible in pairs if releases.meets(possible)]
        if spans:
            result.append(Advice("flag", flag["why"], flag["flag"], spans[-1], releases.within(spans[-1])))
    return result


def _by_name(facts: PassFacts, releases: Releases, platform: str | None) -> list[Advice]:
    """Names that a release does not have are ignored by it, so an open end is no risk; the flag itself is as old as JAX."""
    if facts.disable != "yes" or facts.blunt or not releases.meets(facts.releases) or not _runs_on(facts, platform):
        return []
    return [Advice("disable_pass", f"it {facts.does}", f"{DISABLE}={facts.name}", facts.releases,
                   releases.within(facts.releases))]


def _runs_on(facts: PassFacts, platform: str | None) -> bool:
    return platform is None or platform in facts.platforms


def _why_none(facts: PassFacts, releases: Releases, platform: str | None) -> str:
    if facts.disable == "unknown":
        return "whether a module compiles without it is not known"
    if not _runs_on(facts, platform):
        return f"it is not known to run on {platform}"
    return f"it is a pass of {facts.releases}"


@dataclass(frozen=True)
class AutoLayout:
    """How JAX asks for the layouts that XLA would choose. `ask`: an argument's sharding; `read`: what XLA chose."""
    ask: str
    read: str
    valid: Releases
    certain: bool


#: Each was run on the CPU with wheels of these releases: the compile lost the copy of a transposed parameter.
_AUTO_LAYOUTS = (
    (Releases("0.7.0"), "Format(Layout.AUTO)", "compiled.input_formats"),
    (Releases("0.6.2", "0.6.2"), "Format(DeviceLocalLayout.AUTO)", "compiled.input_formats"),
    (Releases("0.4.33", "0.6.1"), "Layout(DeviceLocalLayout.AUTO)", "compiled.input_layouts"),
    (Releases("0.4.30", "0.4.31"), "Layout(DeviceLocalLayout.AUTO)", "compiled.input_layouts()"),
)


def auto_layout(releases: Releases) -> AutoLayout | None:
    """The spelling of the latest of these releases; not `certain` if others of them have another. None where none has it."""
    for valid, ask, read in _AUTO_LAYOUTS:
        if releases.meets(valid):
            return AutoLayout(ask, read, valid, releases.within(valid))
    return None
