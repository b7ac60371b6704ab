"""What only developers of deltaworks run: `make lock`, `make bom` and `make audit`. It is not part of the package."""
