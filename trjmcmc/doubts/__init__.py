"""What speaks against an answer: one kind of doubt, and the checks that find them."""
