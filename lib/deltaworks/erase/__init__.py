"""Deletes a person's data from all that a pipeline has written. (`topology.persons` says what is theirs.)"""
