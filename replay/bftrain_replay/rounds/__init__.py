"""Rounds: the time of a cluster, or of a log's idle nodes, shared among gangs in rounds of a fixed length."""
