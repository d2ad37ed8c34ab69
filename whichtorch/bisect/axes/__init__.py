"""What can be searched: releases, days, packages, values, commits."""
