"""Where a run in rounds begins and what moves it, by kind of space."""
