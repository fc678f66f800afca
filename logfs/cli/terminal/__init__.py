"""The terminal, or what is in its place.

streams        stdin, stdout, stderr as they are found
tables         on a terminal, or in plain columns
live_screen    a view that is drawn again and again
progress       how far long work is, in one line
logs           where the log goes; logformat: its lines
quantities     10MiB, 2.5k, 7d
interrupts     Ctrl-C waits until what has begun is ended
background     leave the terminal once the mount answers
"""
