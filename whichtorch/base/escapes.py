"""Escape sequences of a terminal in what a program writes."""

import re

ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colors, cursor
    r"|\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|[PX^_][^\x1b\n]*\x1b\\"  # DCS, SOS, PM, APC
    r"|[ -/]*[0-Z\\-~])"
)
