"""What is found before any map is trusted: pilot draws that owe nothing to one."""
