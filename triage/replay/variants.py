"""What is tried on a module: each variant changes one thing."""
from __future__ import annotations

import re
from dataclasses import dataclass, field

from triage.engine.knowledge import pass_facts

MAX_PASSES = 8          # suspected passes that are disabled, one after the other
_PASS = re.compile(r"[\w.\-]{1,100}")
_FLAG = re.compile(r"--(?P<name>xla_\w{1,100})(?:=(?P<value>[\w.,\-]{0,200}))?")
_ATTRIBUTES = "frontend_attributes={"


@dataclass(frozen=True)
class Variant:
    """`key` tells variants of one module apart; `action` and what follows are those of the report's remedies."""
    key: str
    action: str                             # "baseline" or a remedy's
    says: str                               # what is changed, in a few words; HLO names in backticks
    pass_: str | None = None
    flag: str | None = None
    scope: str | None = None
    job: dict = field(default_factory=dict)     # what the compiler is told besides
    attribute: str = ""                     # put on every while loop


BASELINE = Variant("baseline", "baseline", "nothing")
AUTO_ALL = Variant("auto-all", "auto_layout", "AUTO layouts for all parameters", scope="all", job={"auto": "all"})


def variants(module: dict, fired: dict | None = None) -> list[Variant]:
    """Everything but the baseline that is worth compiling for a module of a report, in a fixed order.

    `fired`: the passes that changed something in the baseline, see `measure`.
    """
    if not module["copies"]:
        return []
    copied = sorted({number for copy in module["copies"] for number in copy["parameters"]})
    found = [AUTO_ALL, Variant("auto-copied", "auto_layout", "AUTO layouts for the copied parameters", scope="copied",
                               job={"auto": copied})]
    found += [_disabled(name) for name in _suspects(module["copies"], fired or {})]
    attributes = [(name, facts.attribute) for name in _causes(module["copies"])
                  if (facts := pass_facts(name)) is not None and facts.attribute]
    found += [Variant(f"attribute-{attribute}", "loop_attribute", f"`{attribute}` on the loops", pass_=name,
                      attribute=attribute) for name, attribute in attributes]
    for remedy in module["remedies"]:
        flag = _FLAG.fullmatch(remedy["flag"] or "")
        if remedy["action"] == "flag" and flag:
            found.append(Variant(f"flag-{flag['name']}", "flag", f"`{remedy['flag']}`", flag=remedy["flag"],
                                 job={"options": {flag["name"]: "true" if flag["value"] is None else flag["value"]}}))
    return list({variant.key: variant for variant in found}.values())


def followers(variant: Variant, row: dict, module: dict) -> list[Variant]:
    """What one variant's measurement gives rise to: the orders that XLA chose can be stored by hand."""
    if variant.key != AUTO_ALL.key or row["status"] != "ok":
        return []
    stored = store_transposed(module, row["layouts"] or [])
    return [stored] if stored is not None else []


def store_transposed(module: dict, layouts: list[str]) -> Variant | None:
    """The copied parameters stored in the order that XLA chose for them, where that is not the order they have now.

    `layouts`: one per parameter, as the AUTO variant returned them (`{0,2,1}`, minor to major).
    """
    copied = {number for copy in module["copies"] for number in copy["parameters"]}
    now = {parameter["number"]: major_to_minor(parameter["shape"]) for parameter in module["parameters"]}
    orders = {number: order for number in sorted(copied) if number < len(layouts)
              and (order := major_to_minor(layouts[number])) != (now.get(number) or sorted(order))}
    if not orders:
        return None
    return Variant("store-transposed", "store_transposed", "the copied parameters stored with their dimensions in XLA's order",
                   job={"transposed": {str(number): order for number, order in orders.items()}})


def major_to_minor(layout: str) -> list[int]:
    """The dimensions of `{0,2,1:T(8,128)}` from the slowest to the fastest varying one."""
    inside = layout.partition("{")[2].partition("}")[0].partition(":")[0]
    return [int(part) for part in reversed(inside.split(",")) if part.strip().isdecimal()]


def with_attribute(text: str, attribute: str) -> str:
    """The module with a frontend attribute on every while loop."""
    return "\n".join([_marked(line, attribute) if " while(" in line and "body=" in line else line
                      for line in text.split("\n")])


def _marked(line: str, attribute: str) -> str:
    pair = f'{attribute}="true"'
    if pair in line:
        return line
    if _ATTRIBUTES in line:
        return line.replace(_ATTRIBUTES, f"{_ATTRIBUTES}{pair},", 1)
    before, comma, metadata = line.partition(", metadata=")
    return f"{before}, {_ATTRIBUTES}{pair}}}{comma}{metadata}"


def _suspects(copies: list[dict], fired: dict) -> list[str]:
    """Passes that triggered or introduced copies; then those that ran with effect and are known to create or move copies."""
    known = sorted(name for name in fired if _may_matter(name))
    return [name for name in dict.fromkeys([*_causes(copies), *known]) if _PASS.fullmatch(name)][:MAX_PASSES]


def _causes(copies: list[dict]) -> list[str]:
    """Passes that triggered or introduced copies, those of the most bytes first."""
    weight: dict[str, int] = {}
    for role in ("trigger", "introduced_by"):
        for copy in copies:
            if copy[role]:
                weight[copy[role]["pass"]] = weight.get(copy[role]["pass"], 0) + copy["bytes"]
    return sorted(weight, key=lambda name: -weight[name])


def _may_matter(name: str) -> bool:
    facts = pass_facts(name)
    return facts is not None and facts.disable != "no" and bool(set(facts.role) & {"C", "M"})


def _disabled(name: str) -> Variant:
    return Variant(f"disable-{name}", "disable_pass", f"`{name}` disabled", pass_=name,
                   flag=f"--xla_disable_hlo_passes={name}", job={"disable": [name]})
