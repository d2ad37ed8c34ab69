"""How long tests wait for what comes soon on an idle machine."""

PATIENCE = 300.0  # seconds; what has not come true by then never will
