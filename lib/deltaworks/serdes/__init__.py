"""Serdes: how keys and values become bytes, compatible with Kafka's own serializers."""
