"""Cells -> attempts -> records: the plan, the lab that runs scripts, and the cluster."""
