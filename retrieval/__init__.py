"""Local documents: loaders, chunks, store, hybrid search."""
