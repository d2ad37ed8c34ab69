"""What a triage does, in its order."""

from enum import StrEnum


class Step(StrEnum):
    """A step of a triage, by the name that its command takes."""

    ENVIRONMENT = "environment"
    REPRODUCE = "reproduce"
    LAYER = "layer"
    CLASSIFY = "classify"
    GATHER = "gather"
    MINIMISE = "minimise"
    BISECT = "bisect"
    UNIT_TEST = "unit-test"
