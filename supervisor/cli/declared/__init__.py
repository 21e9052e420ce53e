"""The declarations of the commands, by what they work on."""
