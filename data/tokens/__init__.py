"""Other tokens than characters: bytes and subwords."""
