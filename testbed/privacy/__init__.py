"""What a released model tells of its members, and whether those who withdrew are forgotten."""
