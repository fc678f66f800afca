"""The command line: what a shell, a script or fstab calls.

    main         the entry point: commands are loaded when they are called, errors end here
    failures     from any error to one line on stderr and an exit status
    places       where a path lies: data directory or mount point, and the address behind it
    mounting     mount, umount            background   leave the terminal once the mount answers
    topic        topic create, list, describe, alter, delete
    stored       the topics of a data directory that nobody serves
    mounted      the same through the mount of the daemon that serves it
    cat          cat; reading finds what an address stands for, copying copies it
    append       append; lines reads files, targets takes PATH apart, appending does it, interrupts
                 hold Ctrl-C back
    meanings     a sentence of each command    streams      stdin, stdout, stderr as they are found

Nothing heavy is imported at the top of a module: ``logfs --help`` is as quick as Python and click.
"""
