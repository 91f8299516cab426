"""The analysis engine: HLO dumps in, findings out. Python's standard library only."""
VERSION = "0.1.0"
GENERATOR = f"hlo-triage {VERSION}"
