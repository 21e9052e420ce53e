"""Terminal emulation: what programs write to a terminal, as the text a person would see.

`sequences` cuts output into text and control functions, `screen` is pyte's screen with what it
lacks, `cells` are its rows, `keys` turns input items into bytes. All of it is pure: bytes and
values in, values out.
"""
