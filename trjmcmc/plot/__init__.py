"""Pictures: tables and arrays in, axes out."""
