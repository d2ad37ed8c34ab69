"""The nouns: what is asked for, what is there, what was run and what came of it.

All of them are frozen, so that a record says tomorrow what it said today. Those that reach a file
are pydantic models: their JSON Schema is the contract that other programs read.
"""

# The nouns are everybody's: whoever uses one need not know in which module it stands.
from whichtorch.model.base import *  # noqa: F403
from whichtorch.model.environment import *  # noqa: F403
from whichtorch.model.outcome import *  # noqa: F403
from whichtorch.model.record import *  # noqa: F403  # noqa: F403
from whichtorch.model.scenario import *  # noqa: F403
