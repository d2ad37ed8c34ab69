"""Why a test fails in some environments and not in others."""
