"""State stores: write-back caches of Python objects over the bytes that a host keeps."""
