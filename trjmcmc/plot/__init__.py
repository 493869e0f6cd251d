"""Pictures: tables and arrays in, axes out; matplotlib is imported when one is drawn."""
