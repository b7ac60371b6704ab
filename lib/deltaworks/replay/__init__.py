"""Replays: process history again, compare and check the result, and publish it under a live stream.

- `model`: the request, plan and state of a replay, and its files
"""
