"""Lines that become records: of open files that append, of whole texts, of regular files.

form         what is said of whole lines: their form, and what became of them
notes        what a writer notes of its writes for the next process
writer       what one open file that writes does
append       whole lines at once, to a partition or by their keys
pipelined    whole lines of a regular file, read and encoded by two threads in turn
"""
