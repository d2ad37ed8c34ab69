"""From a failing script to a case that a maintainer can use."""
