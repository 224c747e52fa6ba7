"""The command `fedbandit`: each command has a file, which holds its grammar and what it does.

`main.COMMANDS` is the one table of commands. To add a command, write a file like `audit.py` and name it there. Command
files import the rest of the library inside `run`, so that `fedbandit --help` stays quick.
"""
