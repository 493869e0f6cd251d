"""From a target to a result: choices, warm-up, the loop, and when it stops."""
