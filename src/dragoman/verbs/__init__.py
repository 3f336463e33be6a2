"""What a user can ask for, verb by verb. Each imports what it needs when it is called."""
